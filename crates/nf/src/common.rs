//! Sets, pools, meters and contents that several instances of a function share which run on
//! different threads.
//!
//! One instance has them at a time: it takes them with the first use in a call, and gives them back
//! when the call is over. So for a packet, and for a group of them, they are what they would be if
//! there were no others.

use std::mem::swap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::contents::PayloadCache;
use crate::context::SharedState;
use crate::meters::Meters;
use crate::pool::SharedPool;
use crate::set::SharedSet;

/// How often an instance looks again before it sleeps until they are given back: they are not kept
/// for long.
const LOOKS: u32 = 200;

/// Where instances of one function take their sets, pools, meters and contents from.
#[derive(Clone)]
pub struct SharedHandle(Arc<Shelf>);

struct Shelf {
    /// None: an instance has them.
    state: Mutex<Option<State>>,
    back: Condvar,
}

/// What is shared.
#[derive(Default)]
struct State {
    sets: Vec<SharedSet>,
    pools: Vec<SharedPool>,
    meters: Vec<Meters>,
    contents: Vec<PayloadCache>,
}

impl State {
    fn swap(&mut self, shared: &mut SharedState) {
        swap(&mut self.sets, &mut shared.sets);
        swap(&mut self.pools, &mut shared.pools);
        swap(&mut self.meters, &mut shared.meters);
        swap(&mut self.contents, &mut shared.contents);
    }
}

impl SharedHandle {
    /// What this instance has is to be had here from now on.
    fn of(shared: &mut SharedState) -> SharedHandle {
        let mut state = State::default();
        state.swap(shared);
        SharedHandle(Arc::new(Shelf { state: Mutex::new(Some(state)), back: Condvar::new() }))
    }

    /// Takes it, as soon as nobody else has it.
    fn take(&self) -> State {
        for _ in 0..LOOKS {
            if let Ok(Some(state)) = self.0.state.try_lock().as_deref_mut().map(Option::take) {
                return state;
            }
            std::hint::spin_loop();
        }
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match state.take() {
                Some(state) => return state,
                None => state = self.0.back.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn give(&self, state: State) {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        self.0.back.notify_one();
    }
}

/// An instance's access to what it shares with others.
#[derive(Default)]
pub(crate) struct Access {
    common: Option<SharedHandle>,
    /// Whether it is here: then it is where it would be if it were the instance's own.
    is_here: bool,
}

impl Access {
    /// Where others get it, too.
    pub fn share(&mut self, shared: &mut SharedState) -> SharedHandle {
        self.common.get_or_insert_with(|| SharedHandle::of(shared)).clone()
    }

    /// Has this in place of its own.
    pub fn join(&mut self, common: SharedHandle, shared: &mut SharedState) {
        State::default().swap(shared);
        self.common = Some(common);
    }

    /// Sees to it that it is here.
    #[inline]
    pub fn open(&mut self, shared: &mut SharedState) {
        if self.common.is_some() && !self.is_here {
            self.fetch(shared);
        }
    }

    #[cold]
    fn fetch(&mut self, shared: &mut SharedState) {
        if let Some(common) = &self.common {
            common.take().swap(shared);
            self.is_here = true;
        }
    }

    /// Lets others have it.
    #[inline]
    pub fn close(&mut self, shared: &mut SharedState) {
        if self.is_here {
            self.bring_back(shared);
        }
    }

    #[cold]
    fn bring_back(&mut self, shared: &mut SharedState) {
        if let Some(common) = &self.common {
            let mut state = State::default();
            state.swap(shared);
            common.give(state);
            self.is_here = false;
        }
    }

    /// Nobody else runs any more: it is this instance's own.
    pub fn keep(&mut self, shared: &mut SharedState) {
        self.open(shared);
        *self = Access::default();
    }
}
