//! Another unit, on a thread of its own, as the place where states are: as if a flow's every second
//! flowlet were that unit's.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use graph::Graph;
use packet::PacketPool;
use protocol::message::FlowId;

use super::Store;
use runtime::saved::{Source, release, restore, save};
use runtime::transport::MAILS;

/// The other unit's thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other unit is gone")]
pub struct Gone;

/// A unit that flows go to and come back from. It sleeps when it has nothing to do.
pub struct Peer {
    /// None: it is to end.
    mails: Option<SyncSender<Mail>>,
    /// Never more than there can be mails: each that is sent has what came taken in.
    states: Receiver<State>,
    is_ahead: bool,
    /// The newest state of each flow that has come, until it is wanted.
    here: HashMap<FlowId, State>,
    /// Handovers of each flow's state.
    handed_over: HashMap<FlowId, u64>,
    thread: Option<JoinHandle<()>>,
}

/// To the other unit.
enum Mail {
    /// It has this flow from now on.
    State(State),
    /// Takes the state back that was handed over for the n-th time.
    Pull(FlowId, u64),
    /// Forgets a flow that has ended.
    Forget(FlowId),
}

struct State {
    flow: FlowId,
    /// Handovers of the flow's state, with this one.
    number: u64,
    bytes: Vec<u8>,
}

impl Peer {
    /// Starts a unit with this chain, which has no flows yet. If `is_ahead`, it returns each state
    /// as soon as it has it (S51); otherwise on request (S49).
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(graph: Box<Graph>, is_ahead: bool) -> std::io::Result<Peer> {
        let (mails, inbox) = sync_channel(MAILS);
        let (outbox, states) = channel();
        let other = Other { graph, pool: PacketPool::new(0), is_ahead, outbox };
        let thread = std::thread::Builder::new().name("peer".to_owned()).spawn(move || other.run(&inbox))?;
        Ok(Peer {
            mails: Some(mails),
            states,
            is_ahead,
            here: HashMap::new(),
            handed_over: HashMap::new(),
            thread: Some(thread),
        })
    }

    fn send(&mut self, mail: Mail) -> Result<(), Gone> {
        self.take_in();
        self.mails.as_ref().ok_or(Gone)?.send(mail).map_err(|_| Gone)
    }

    /// Takes what has come.
    fn take_in(&mut self) {
        let states = &self.states;
        self.here.extend(states.try_iter().map(|state| (state.flow, state)));
    }
}

impl Store for Peer {
    type Error = Gone;

    fn read(&mut self, flow: FlowId, state: &mut Vec<u8>) -> Result<bool, Gone> {
        let Some(&number) = self.handed_over.get(&flow) else { return Ok(true) };
        match self.is_ahead {
            true => self.take_in(),
            false => self.send(Mail::Pull(flow, number))?,
        }
        let mut at_hand = true;
        loop {
            if let Some(newest) = self.here.remove(&flow).filter(|state| state.number == number) {
                state.extend_from_slice(&newest.bytes);
                return Ok(at_hand);
            }
            at_hand = false;
            let state = self.states.recv().map_err(|_| Gone)?;
            self.here.insert(state.flow, state);
        }
    }

    /// The same as a push: what is read later is this.
    fn write(&mut self, flow: FlowId, state: &[u8]) -> Result<(), Gone> {
        self.push(flow, state)
    }

    fn push(&mut self, flow: FlowId, state: &[u8]) -> Result<(), Gone> {
        let number = self.handed_over.entry(flow).or_default();
        *number += 1;
        let state = State { flow, number: *number, bytes: state.to_vec() };
        self.send(Mail::State(state))
    }

    fn forget(&mut self, flow: FlowId) -> Result<(), Gone> {
        self.here.remove(&flow);
        match self.handed_over.remove(&flow) {
            Some(_) => self.send(Mail::Forget(flow)),
            None => Ok(()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.mails = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // That it failed was seen by who waited for it.
        }
    }
}

/// The other unit, on its thread.
struct Other {
    graph: Box<Graph>,
    pool: PacketPool,
    is_ahead: bool,
    outbox: Sender<State>,
}

impl Other {
    /// Works until all senders are gone, or until it gets a damaged state.
    fn run(mut self, inbox: &Receiver<Mail>) {
        for mail in inbox {
            let goes_on = match mail {
                Mail::State(State { flow, number, bytes }) => {
                    let taken =
                        restore(&mut self.graph, flow.index, (&bytes, Source::Handed), &mut self.pool)
                            .is_ok();
                    taken && (!self.is_ahead || self.send(flow, number))
                }
                Mail::Pull(flow, number) => {
                    let sent = self.send(flow, number);
                    release(&mut self.graph, flow.index);
                    sent
                }
                Mail::Forget(flow) => {
                    release(&mut self.graph, flow.index);
                    true
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Sends a state, and says whether there still is somebody to get it.
    fn send(&mut self, flow: FlowId, number: u64) -> bool {
        let mut bytes = Vec::new();
        save(&mut self.graph, flow.index, &mut bytes);
        self.outbox.send(State { flow, number, bytes }).is_ok()
    }
}
