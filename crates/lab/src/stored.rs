//! A unit that does not keep its flows' states: they are in a store, or are fetched from another
//! unit and returned (S93, S94). It is the baseline of units that keep them.
//!
//! A dispatcher cuts flows and flowlets, as for units that keep their states; state that functions
//! share among flows stays at the unit. Its output equals the chain's as long as no flow expires:
//! timers of a state that is elsewhere fire at the flow's next packet.

mod peer;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;

use graph::{FlowChange, FlowLookup, Graph};
use packet::{DropReason, Packet, PacketClass, PacketPool};
use protocol::dispatcher::{Dispatched, Dispatcher, DispatcherError, DispatcherOutput, PacketArrival};
use protocol::message::{FlowId, FromDispatcher, FromUnit, RefuseReason, Stamp, UnitId};

pub use peer::{Gone, Peer};
use runtime::elastic::UnitsConfig;
use runtime::saved::{Source, release, restore, save};

/// The place of states.
pub trait Store {
    /// It cannot be reached, or refuses a command.
    type Error;

    /// Appends the state that was written last to `state`; nothing if there is none. Whether it was
    /// at hand: nothing had to be waited for.
    ///
    /// # Errors
    /// The store failed.
    fn read(&mut self, flow: FlowId, state: &mut Vec<u8>) -> Result<bool, Self::Error>;

    /// Writes a state, and waits until that is done.
    ///
    /// # Errors
    /// The store failed.
    fn write(&mut self, flow: FlowId, state: &[u8]) -> Result<(), Self::Error>;

    /// The same, and waits for nothing. What is read later is this.
    ///
    /// # Errors
    /// The store failed.
    fn push(&mut self, flow: FlowId, state: &[u8]) -> Result<(), Self::Error>;

    /// Forgets a flow that has ended.
    ///
    /// # Errors
    /// The store failed.
    fn forget(&mut self, flow: FlowId) -> Result<(), Self::Error>;
}

/// When states are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Never: they stay in the unit.
    Never,
    /// Before and after every packet.
    EveryPacket,
    /// Read when a flowlet begins, written when its flow has been silent for half of T (S94).
    EveryFlowlet,
}

/// Counters of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// States read.
    pub reads: u64,
    /// Of these, accesses that did not wait.
    pub at_hand: u64,
    /// States written.
    pub writes: u64,
    /// Bytes of state in both.
    pub bytes: u64,
}

/// A packet could not be processed.
#[derive(Debug, thiserror::Error)]
pub enum StoredError<E> {
    /// The store fails.
    #[error("the store of states: {0}")]
    Store(#[source] E),
    /// The bytes are no state.
    #[error(transparent)]
    Refused(#[from] RefuseReason),
}

/// A unit with the states of its flows in a store.
pub struct Stored<S> {
    graph: Box<Graph>,
    dispatcher: Dispatcher,
    store: S,
    habit: Habit,
    /// T / 2, in nanoseconds.
    silence_ns: u64,
    flows: Vec<Flow>,
    /// When flows will have fallen silent, unless another packet comes than that with this seq.
    silent: VecDeque<(u64, FlowId, u64)>,
    accesses: Accesses,
    now_ns: u64,
    /// Room that is reused.
    batch: Vec<Packet>,
    orders: Vec<DispatcherOutput>,
    state: Vec<u8>,
}

/// The unit's knowledge of a flow, by the dispatcher's index.
#[derive(Clone, Copy, Default)]
struct Flow {
    generation: u32,
    /// Its last packet's number.
    seq: u64,
    /// Packets have changed its state since it was written.
    is_news: bool,
}

impl<S: Store> Stored<S> {
    /// A unit that runs this chain, which has no flows yet. `gap_ns` is T.
    ///
    /// # Errors
    /// If `gap_ns` is 0, or there is no memory for the dispatcher's tables.
    pub fn new(graph: Box<Graph>, store: S, habit: Habit, gap_ns: u64) -> Result<Stored<S>, DispatcherError> {
        let config = UnitsConfig { units_max: 1, gap_ns, ..UnitsConfig::default() };
        let router = protocol::dispatcher::Config {
            when_full: protocol::dispatcher::WhenFlowsFull::RefuseNew,
            ..config.dispatcher(graph.options())
        };
        Ok(Stored {
            dispatcher: Dispatcher::new(router)?,
            graph,
            store,
            habit,
            silence_ns: gap_ns / 2,
            flows: Vec::new(),
            silent: VecDeque::new(),
            accesses: Accesses::default(),
            now_ns: 0,
            batch: Vec::new(),
            orders: Vec::new(),
            state: Vec::new(),
        })
    }

    /// Writes the states of flows that have fallen silent by now. To be called before each packet:
    /// what has to be looked at until then grows with packets.
    ///
    /// # Errors
    /// If the store fails.
    pub fn pass_time(&mut self, now_ns: u64) -> Result<(), StoredError<S::Error>> {
        while let Some(&(at_ns, flow, seq)) = self.silent.front()
            && at_ns <= now_ns
        {
            self.silent.pop_front();
            let known = self.flows.get(flow.index as usize);
            if known.is_some_and(|known| (known.generation, known.seq) == (flow.generation, seq)) {
                self.push(flow)?;
            }
        }
        Ok(())
    }

    /// Processes the next packet; what leaves is added to `out`.
    ///
    /// # Errors
    /// If the store fails: then the packet is lost.
    pub fn process(
        &mut self,
        packet: Packet,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) -> Result<(), StoredError<S::Error>> {
        let mut admitted = [packet];
        self.graph.classify(&mut admitted, |_| {});
        let [mut packet] = admitted;
        if packet.meta().class == PacketClass::NotIp && self.graph.classifier().is_refused(&packet) {
            self.graph.process_without_flow(packet, out, pool);
            return Ok(());
        }
        self.now_ns = self.now_ns.max(packet.meta().transit.timestamp_ns);
        let way = self.graph.flow_of(&mut packet, pool);
        let meta = packet.meta();
        let (key, hash) = match way {
            FlowLookup::Flow { key, hash } => (key, hash),
            FlowLookup::Either { .. } if self.dispatcher.flows().find(meta.hash, &meta.key).is_some() => {
                (meta.key, meta.hash)
            }
            FlowLookup::Either { key, hash } => (key, hash),
            FlowLookup::Aside => {
                self.graph.process_without_flow(packet, out, pool);
                return Ok(());
            }
        };
        let arrival = PacketArrival { key: &key, hash, len: meta.wire_len };
        let Dispatched::To { stamp, .. } =
            self.dispatcher.handle_packet(self.now_ns, arrival, &mut self.orders)
        else {
            self.graph.classifier_mut().discard(packet, DropReason::FlowTableFull, pool);
            return Ok(());
        };
        self.fetch(&stamp, pool)?;
        self.batch.push(packet);
        self.graph.process_batch(&mut self.batch, &[stamp.flow.index], out, pool);
        self.ended(stamp.flow.index); // The graph may have had no room for it.
        self.take_changes(pool)?;
        self.keep(stamp.flow)
    }

    /// Returns the store's counters.
    pub fn accesses(&self) -> Accesses {
        self.accesses
    }

    /// Its chain.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The state is here when the packet with this stamp is processed.
    fn fetch(&mut self, stamp: &Stamp, pool: &mut PacketPool) -> Result<(), StoredError<S::Error>> {
        let id = stamp.flow;
        self.flow(id).seq = stamp.seq;
        let begins_flowlet = stamp.targets.is_some();
        let is_wanted = match self.habit {
            Habit::Never => false,
            Habit::EveryPacket => true,
            Habit::EveryFlowlet => begins_flowlet && stamp.seq > 1,
        };
        if !is_wanted {
            return Ok(());
        }
        self.push(id)?; // Of a flowlet that was cut by its size: its flow did not fall silent.
        release(&mut self.graph, id.index);
        self.state.clear();
        let at_hand = self.store.read(id, &mut self.state).map_err(StoredError::Store)?;
        self.accesses.reads += 1;
        self.accesses.at_hand += u64::from(at_hand);
        self.accesses.bytes += self.state.len() as u64;
        let source = if self.habit == Habit::EveryPacket { Source::Handed } else { Source::Copied };
        restore(&mut self.graph, id.index, (&self.state, source), pool)?;
        Ok(())
    }

    /// A packet has changed the state: it is written, or will be.
    fn keep(&mut self, id: FlowId) -> Result<(), StoredError<S::Error>> {
        if self.dispatcher.flows().at(id.index) != Some(id) {
            return Ok(()); // It ended with the packet.
        }
        match self.habit {
            Habit::Never => {}
            Habit::EveryPacket => {
                self.save(id);
                self.store.write(id, &self.state).map_err(StoredError::Store)?;
                release(&mut self.graph, id.index);
            }
            Habit::EveryFlowlet => {
                let flow = self.flow(id);
                flow.is_news = true;
                let seq = flow.seq;
                self.silent.push_back((self.now_ns.saturating_add(self.silence_ns), id, seq));
            }
        }
        Ok(())
    }

    /// Writes a flow's state if that is news, and does not wait.
    fn push(&mut self, id: FlowId) -> Result<(), StoredError<S::Error>> {
        if !std::mem::take(&mut self.flow(id).is_news) {
            return Ok(());
        }
        self.save(id);
        self.store.push(id, &self.state).map_err(StoredError::Store)
    }

    /// Saves the flow's state for writing.
    fn save(&mut self, id: FlowId) {
        self.state.clear();
        save(&mut self.graph, id.index, &mut self.state);
        self.accesses.writes += 1;
        self.accesses.bytes += self.state.len() as u64;
    }

    /// The dispatcher gets to know what has become of flows.
    fn take_changes(&mut self, pool: &mut PacketPool) -> Result<(), StoredError<S::Error>> {
        if self.graph.changes().is_empty() && self.orders.is_empty() {
            return Ok(());
        }
        let mut changes = std::mem::take(self.graph.changes_mut());
        for change in changes.drain(..) {
            match change {
                FlowChange::Alias { handle: home, key, hash } => {
                    if let Some(flow) = self.dispatcher.flows().at(home) {
                        self.dispatcher.aliases().take(flow, &key, hash, &mut self.orders);
                    }
                }
                FlowChange::Ended { handle: home, .. } => self.ended(home),
                FlowChange::FirstFragment { .. } => {} // There is one graph, which has learnt it.
            }
        }
        let mut orders = std::mem::take(&mut self.orders);
        for order in orders.drain(..) {
            if let DispatcherOutput::Send { message: FromDispatcher::End { flow }, .. } = order {
                self.graph.flows_mut().end(flow.index, pool);
                self.flow(flow).is_news = false;
                self.store.forget(flow).map_err(StoredError::Store)?;
            }
        }
        self.orders = orders;
        // That flows of theirs end is what the dispatcher has just said.
        changes.append(self.graph.changes_mut());
        changes.clear();
        *self.graph.changes_mut() = changes;
        Ok(())
    }

    /// Ends the flow if the chain has nothing under this handle.
    fn ended(&mut self, home: u32) {
        let Some(id) = self.dispatcher.flows().at(home) else { return };
        if self.graph.flows().of_handle(home).next().is_none() {
            // One unit, so one owner.
            let message = FromUnit::Expire { flow: id, epoch: 1, seq: self.flow(id).seq };
            self.dispatcher.handle_message(self.now_ns, UnitId(0), message, &mut self.orders);
        }
    }

    /// Returns the entry of a flow; a new one if the index was another flow's.
    fn flow(&mut self, id: FlowId) -> &mut Flow {
        let slot = id.index as usize;
        if self.flows.len() <= slot {
            self.flows.resize(slot + 1, Flow::default());
        }
        let flow = &mut self.flows[slot];
        if flow.generation != id.generation {
            *flow = Flow { generation: id.generation, ..Flow::default() };
        }
        flow
    }
}

/// A store in the unit's own memory.
impl Store for HashMap<FlowId, Vec<u8>> {
    type Error = Infallible;

    fn read(&mut self, flow: FlowId, state: &mut Vec<u8>) -> Result<bool, Infallible> {
        state.extend(self.get(&flow).into_iter().flatten());
        Ok(true)
    }

    fn write(&mut self, flow: FlowId, state: &[u8]) -> Result<(), Infallible> {
        self.push(flow, state)
    }

    fn push(&mut self, flow: FlowId, state: &[u8]) -> Result<(), Infallible> {
        self.insert(flow, state.to_vec());
        Ok(())
    }

    fn forget(&mut self, flow: FlowId) -> Result<(), Infallible> {
        self.remove(&flow);
        Ok(())
    }
}
