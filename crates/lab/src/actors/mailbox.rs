//! An actor with a mailbox for each flow, by kameo, all on one thread.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kameo::actor::{Actor, ActorRef, Spawn};
use kameo::message::{Context, Message};
use packet::FlowHasher;
use tokio::runtime::{Builder, Runtime};

use super::{ChainState, FlowLoop, FlowMap, HashedKey, ShortFrame, key_of, run_chain};

/// Packets that actors have processed, and packets that passed.
#[derive(Default)]
struct Tally {
    processed: AtomicU64,
    passed: AtomicU64,
}

/// A flow's actor.
struct FlowActor {
    functions: u32,
    state: ChainState,
    tally: Arc<Tally>,
}

impl Actor for FlowActor {
    type Args = FlowActor;
    type Error = Infallible;

    async fn on_start(actor: FlowActor, _itself: ActorRef<FlowActor>) -> Result<FlowActor, Infallible> {
        Ok(actor)
    }
}

/// A packet in a mailbox.
struct Delivered(ShortFrame);

impl Message<Delivered> for FlowActor {
    type Reply = ();

    async fn handle(&mut self, Delivered(frame): Delivered, _context: &mut Context<Self, ()>) {
        let passes = run_chain(self.functions, &frame, &mut self.state);
        self.tally.passed.fetch_add(u64::from(passes), Ordering::Relaxed);
        self.tally.processed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A request for the number of packets that a flow's actor has seen.
struct CountPackets;

impl Message<CountPackets> for FlowActor {
    type Reply = u64;

    async fn handle(&mut self, _count: CountPackets, _context: &mut Context<Self, u64>) -> u64 {
        self.state.packets
    }
}

/// An actor for each flow, on one thread.
pub struct ActorLoop {
    functions: u32,
    hasher: FlowHasher,
    actors: FlowMap<ActorRef<FlowActor>>,
    tally: Arc<Tally>,
    sent: u64,
    runtime: Runtime,
}

impl ActorLoop {
    /// Without flows.
    ///
    /// # Errors
    ///
    /// If the actors' runtime cannot start.
    pub fn new(functions: u32) -> Result<ActorLoop, String> {
        Ok(ActorLoop {
            functions,
            hasher: FlowHasher::new(1),
            actors: FlowMap::default(),
            tally: Arc::default(),
            sent: 0,
            runtime: Builder::new_current_thread().build().map_err(|error| error.to_string())?,
        })
    }
}

impl FlowLoop for ActorLoop {
    fn process(&mut self, batch: &[ShortFrame]) -> u64 {
        let ActorLoop { functions, hasher, actors, tally, sent, runtime } = self;
        let before = tally.passed.load(Ordering::Relaxed);
        runtime.block_on(async {
            for frame in batch {
                let (key, hash) = key_of(hasher, frame);
                let actor = actors.entry(HashedKey(key, hash)).or_insert_with(|| {
                    let tally = Arc::clone(tally);
                    FlowActor::spawn(FlowActor { functions: *functions, state: ChainState::default(), tally })
                });
                // A mailbox has room for a batch.
                *sent += u64::from(actor.tell(Delivered(*frame)).try_send().is_ok());
            }
            while tally.processed.load(Ordering::Relaxed) < *sent {
                tokio::task::yield_now().await;
            }
        });
        tally.passed.load(Ordering::Relaxed) - before
    }

    fn counted(&mut self) -> u64 {
        let ActorLoop { actors, runtime, .. } = self;
        runtime.block_on(async {
            let mut counted = 0;
            for actor in actors.values() {
                counted += actor.ask(CountPackets).await.unwrap_or(0);
            }
            counted
        })
    }
}
