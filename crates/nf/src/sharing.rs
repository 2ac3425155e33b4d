//! Sharing of sets, pools, meters and payload caches between instances of an NF on several threads.
//!
//! One instance has them at a time. It acquires them at the first use in a call and releases them
//! when the call ends, so for a packet or a group they behave as if there were no other instances.

use std::mem::swap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::meters::Meters;
use crate::payload_cache::PayloadCache;
use crate::pool::SharedPool;
use crate::set::SharedSet;
use crate::shared_state::SharedState;

/// Attempts before an instance sleeps until the state is released; it is never held for long.
const LOOKS: u32 = 200;

/// A handle to the shared state of the instances of one NF.
#[derive(Clone)]
pub struct SharedHandle(Arc<SharedCell>);

struct SharedCell {
    /// `None` while an instance holds the state.
    state: Mutex<Option<State>>,
    back: Condvar,
}

/// The shared state itself.
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
    /// Moves an instance's state into a new handle.
    fn of(shared: &mut SharedState) -> SharedHandle {
        let mut state = State::default();
        state.swap(shared);
        SharedHandle(Arc::new(SharedCell { state: Mutex::new(Some(state)), back: Condvar::new() }))
    }

    /// Acquires the state, waiting until no other instance holds it.
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

/// An instance's access to state shared with others.
#[derive(Default)]
pub(crate) struct Access {
    common: Option<SharedHandle>,
    /// Set while the state is acquired: it is then in the instance's [`SharedState`].
    is_here: bool,
}

impl Access {
    /// Returns true if other instances have the state, too.
    pub fn is_shared(&self) -> bool {
        self.common.is_some()
    }

    /// Returns the handle, creating it if needed.
    pub fn share(&mut self, shared: &mut SharedState) -> SharedHandle {
        self.common.get_or_insert_with(|| SharedHandle::of(shared)).clone()
    }

    /// Replaces the instance's own state by the shared one.
    pub fn join(&mut self, common: SharedHandle, shared: &mut SharedState) {
        State::default().swap(shared);
        self.common = Some(common);
    }

    /// Acquires the state.
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

    /// Releases the state to others.
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

    /// Ends sharing after all other instances have stopped; this instance keeps the state.
    pub fn keep(&mut self, shared: &mut SharedState) {
        self.open(shared);
        *self = Access::default();
    }
}
