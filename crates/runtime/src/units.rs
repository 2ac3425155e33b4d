//! Units on one thread: flowlets are cut, packed on units that come and go, and their flows' states
//! go from unit to unit, as between machines (S3, S42, S49); but each step is a call, and a message
//! is there as soon as it is sent.
//!
//! What comes out is what one unit would have made of the same packets, byte for byte and in the
//! same order. For that, a packet of no known flow is routed and processed alone, behind all before
//! it: what it does to pools and to aliases is felt by others.
//!
//! ```text
//! batch -> admit -> route -> unit: may it be processed? -> waits -> flush: chain
//!                         |                                  ^
//!                         +-- in the midst of a flowlet: surely
//! ```

mod config;
mod engine;
mod report;
mod tally;
mod unheard;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::swap;
use std::rc::Rc;

use graph::{Chain, ChainError, Change, FlowLookup, Options};
use packet::{DropReason, FlowKey, Packet, PacketClass, PacketPool};
use protocol::dispatcher::{Arrival, Guess, Numbered, Order, Routed, Router, UnitState};
use protocol::message::{FlowId, Message, Stamp, UnitId};
use protocol::metering::{Epoch, Epochs};
use protocol::unit::{Outbox, Unit};

pub use config::{FLOWS_MAX, UNITS_MAX, UnitsConfig};
use engine::{ChainEngine, Machine};
pub use report::UnitsReport;
use tally::Tally;
use unheard::Unheard;

use crate::backend::{Backend, Core};
use crate::report::Report;
use crate::work::Work;

/// The most epochs that are told of: an hour of the usual ones. Then they become twice as long.
pub const EPOCHS_MAX: usize = 36_000;

/// So many packets ahead, what units know of their flows is brought to the cache: so that it comes
/// in time, and does not have to make room again for what is needed first.
const AHEAD: usize = 16;

/// The units of a machine, and their router.
pub struct Units {
    config: UnitsConfig,
    router: Router,
    units: Vec<Unit<ChainEngine>>,
    machine: Rc<RefCell<Machine>>,
    epochs: Epochs,
    /// When the first packet came: epochs count from there.
    began_ns: Option<u64>,
    now_ns: u64,
    /// Before this time nothing is due: at the router, at a unit, in the chain, or of an epoch.
    due_ns: u64,
    work: Work,
    tally: Tally,
    /// Packets that were given to engines without their units.
    unheard: Unheard,
    /// Which flow each packet of a batch probably belongs to.
    guesses: Vec<Guess>,
    /// Those of a batch from the first one on that does not just go on.
    behind: Vec<Packet>,
    orders: Vec<Order>,
    outbox: Outbox<Packet>,
    todo: VecDeque<Todo>,
}

/// Each unit that runs: its load, as a share of its capacity, and its flows.
pub(crate) fn loads(router: &Router, capacity_bps: u64) -> impl Iterator<Item = (UnitId, f64, u32)> + '_ {
    let runs = |state| matches!(state, UnitState::Active | UnitState::Draining);
    let running = router.units().filter(move |unit| runs(unit.state));
    running.map(move |unit| (unit.unit, f64::from(unit.load_bps) / capacity_bps as f64, unit.flows))
}

/// What is on its way from a part to another one.
enum Todo {
    Order(Order),
    ToRouter(UnitId, Message),
    ToUnit(UnitId, UnitId, Message),
    Packet(UnitId, Stamp, Packet),
}

/// Units cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum UnitsError {
    /// The router refuses what it is told.
    #[error(transparent)]
    Router(#[from] protocol::dispatcher::RouterError),
    /// More flows than units can number.
    #[error(
        "units know up to {FLOWS_MAX} flows, and the policy asks for {0}: say `settings {{ flows: ... }}`"
    )]
    Flows(u32),
    /// There is no memory for tables.
    #[error(transparent)]
    Chain(#[from] ChainError),
}

impl Units {
    /// Units that run this chain, which has no flows yet.
    ///
    /// # Errors
    /// If the configuration makes no sense, the chain may have more than [`FLOWS_MAX`] flows, or
    /// there is no memory for tables.
    pub fn new(config: UnitsConfig, chain: &Chain) -> Result<Units, UnitsError> {
        if chain.options().flows_max > FLOWS_MAX {
            return Err(UnitsError::Flows(chain.options().flows_max));
        }
        let router = Router::new(config.router(chain.options()))?;
        let nothing = Chain::new(Vec::new(), Options { flows_max: 1, ..*chain.options() })?;
        let machine = Rc::new(RefCell::new(Machine::new(Box::new(nothing), PacketPool::new(0))));
        let unit = |id| Unit::new(config.unit(id), ChainEngine::new(id, Rc::clone(&machine)));
        let mut epochs =
            Epochs::new(config.epoch_ns, u64::MAX, config.units_max, config.capacity_bps).keeping(EPOCHS_MAX);
        for number in 0..config.units_min {
            epochs.set_on(0, UnitId(number), true);
            epochs.set_ready(0, UnitId(number), true);
        }
        Ok(Units {
            units: (0..config.units_max).map(UnitId).map(unit).collect(),
            work: Work::at(config.capacity_bps),
            tally: Tally::new(config.units_max),
            config,
            router,
            machine,
            epochs,
            began_ns: None,
            now_ns: 0,
            due_ns: 0,
            unheard: Unheard::default(),
            guesses: Vec::new(),
            behind: Vec::new(),
            orders: Vec::new(),
            outbox: Outbox::default(),
            todo: VecDeque::new(),
        })
    }

    /// Processes packets in order, as [`Chain::process`] does.
    pub fn process(
        &mut self,
        chain: &mut Box<Chain>,
        batch: &mut Vec<Packet>,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        self.lend(chain, out, pool);
        self.machine.borrow_mut().chain.admit(batch, |hash| self.router.prefetch(hash));
        let mut guesses = std::mem::take(&mut self.guesses);
        guesses.extend(batch.iter().map(|packet| {
            let guess = self.router.guess(packet.meta().hash);
            self.unheard.prefetch(guess.slot());
            guess
        }));
        // Units hear of packets that begin flowlets; of others, few.
        let many_are_heard = self.router.expects_flowlets();
        let count = if many_are_heard { 0 } else { self.all_go_on(batch, &guesses) };
        let (gone, rest) = guesses.split_at(count);
        let mut behind = std::mem::take(&mut self.behind);
        behind.extend(batch.drain(count..));
        self.machine.borrow_mut().add_all(gone, batch.drain(..));
        self.go_or_begin(&mut behind, rest, many_are_heard);
        self.behind = behind;
        guesses.clear();
        self.guesses = guesses;
        self.flush();
        self.lend(chain, out, pool);
    }

    /// Lets time pass, to get buffers back that wait for it.
    pub fn advance(
        &mut self,
        chain: &mut Box<Chain>,
        now_ns: u64,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        self.lend(chain, out, pool);
        self.now_ns = self.now_ns.max(now_ns);
        self.pass_time();
        self.lend(chain, out, pool);
    }

    /// The run is over: closes the last epoch, which ends behind the last packet.
    pub fn finish(&mut self) {
        if self.began_ns.is_some() {
            self.tally.tell(&mut self.epochs, &self.router, self.work);
            self.epochs.finish(self.since_ns(self.now_ns), self.router.counters().flowlets());
        }
    }

    /// What the units did.
    pub fn report(&self) -> UnitsReport {
        UnitsReport::of(
            &self.config,
            self.router.counters(),
            self.units.iter().map(Unit::counters),
            self.loads().count(),
            &self.epochs,
        )
    }

    /// The epochs that are over.
    pub fn epochs(&self) -> &[Epoch] {
        self.epochs.done()
    }

    /// Each unit that runs: its load, as a share of its capacity, and its flows.
    pub fn loads(&self) -> impl Iterator<Item = (UnitId, f64, u32)> + '_ {
        loads(&self.router, self.config.capacity_bps)
    }

    /// The chain and the buffers are the units' for the time of a call; and then their owner's
    /// again.
    fn lend(&self, chain: &mut Box<Chain>, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let machine = &mut *self.machine.borrow_mut();
        swap(&mut machine.chain, chain);
        swap(&mut machine.out, out);
        swap(&mut machine.pool, pool);
    }

    fn since_ns(&self, now_ns: u64) -> u64 {
        now_ns - self.began_ns.unwrap_or(now_ns)
    }

    /// Packets of which some begin flowlets; `many`, as far as is known.
    fn go_or_begin(&mut self, packets: &mut Vec<Packet>, guesses: &[Guess], mut many: bool) {
        let mut packets = packets.drain(..);
        for guesses in guesses.chunks(AHEAD) {
            if many {
                for (unit, slot) in guesses.iter().filter_map(|&guess| self.router.whereabouts(guess)) {
                    self.router.prefetch_flowlet(slot);
                    self.units[unit.index()].prefetch_flow(slot);
                }
            }
            let before = self.router.counters().flowlets();
            for (&guess, packet) in guesses.iter().zip(packets.by_ref()) {
                self.packet(packet, guess);
            }
            // Flows that began together are cut together.
            many |= 2 * (self.router.counters().flowlets() - before) > guesses.len() as u64;
        }
    }

    /// Packets from the front of `packets` go on to their units as long as these need not hear of
    /// them: nearly all are in the midst of flowlets. How many; they are to wait for the chain, by
    /// the slots that were guessed.
    #[inline]
    fn all_go_on(&mut self, packets: &[Packet], guesses: &[Guess]) -> usize {
        let arrivals = packets.iter().zip(guesses).map_while(|(packet, &guess)| {
            let meta = packet.meta();
            let arrival = Arrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
            (meta.class == PacketClass::Whole).then_some((meta.transit.timestamp_ns, arrival, guess))
        });
        let bytes_before = self.router.counters().bytes;
        let times = self.now_ns..self.due_ns;
        let count = self.router.number_all(times, arrivals, |packet| self.unheard.add(packet));
        self.now_ns = self.router.now_ns();
        self.tally.came(count as u64, self.router.counters().bytes - bytes_before);
        count
    }

    /// A packet that was admitted.
    #[inline]
    fn packet(&mut self, packet: Packet, guess: Guess) {
        if packet.meta().class != PacketClass::Whole {
            return self.odd(packet);
        }
        self.come(&packet);
        let meta = packet.meta();
        let arrival = Arrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
        match self.router.number_on(self.now_ns, arrival, guess) {
            Some(numbered) => self.go_on(numbered, packet),
            None => self.apart(packet),
        }
    }

    /// A packet that is not a whole one of a flow.
    #[cold]
    fn odd(&mut self, packet: Packet) {
        let is_refused =
            packet.meta().class == PacketClass::NotIp && self.machine.borrow().chain.is_refused(&packet);
        if !is_refused {
            self.come(&packet); // As in the chain, no time goes by with what cannot be read.
        }
        self.alone(packet);
    }

    /// Time passes until the packet has come.
    #[inline(always)]
    fn come(&mut self, packet: &Packet) {
        self.now_ns = self.now_ns.max(packet.meta().transit.timestamp_ns);
        if self.now_ns >= self.due_ns {
            self.flush();
            self.pass_time();
        }
        self.tally.came(1, packet.meta().wire_len.into());
    }

    /// A packet that is not one in the midst of a flowlet.
    #[inline(never)]
    fn apart(&mut self, packet: Packet) {
        let meta = packet.meta();
        let arrival = Arrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
        match self.router.route_known(self.now_ns, arrival, &mut self.orders) {
            Some(Routed::To { unit, stamp }) => {
                self.due_ns = self.due_ns.min(self.router.due_ns());
                self.carry_out();
                self.deliver(unit, stamp, packet);
            }
            Some(Routed::Refused) | None => self.alone(packet),
        }
    }

    /// A packet that is not a plain one of a known flow: it is routed when all before it are
    /// through, and processed before any behind it.
    #[cold]
    fn alone(&mut self, mut packet: Packet) {
        self.flush();
        let way = {
            let Machine { chain, pool, .. } = &mut *self.machine.borrow_mut();
            chain.way(&mut packet, pool)
        };
        let meta = packet.meta();
        let (key, hash) = match way {
            FlowLookup::Flow { key, hash } => (key, hash),
            FlowLookup::Either { key, hash } => match self.is_live(meta.hash, &meta.key) {
                true => (meta.key, meta.hash),
                false => (key, hash),
            },
            FlowLookup::Aside => {
                let Machine { chain, pool, out, .. } = &mut *self.machine.borrow_mut();
                return chain.process_aside(packet, out, pool);
            }
        };
        let arrival = Arrival { key: &key, hash, len: meta.wire_len };
        let routed = self.router.route(self.now_ns, arrival, &mut self.orders);
        self.due_ns = self.due_ns.min(self.router.due_ns());
        self.carry_out();
        match routed {
            Routed::To { unit, stamp } => {
                self.deliver(unit, stamp, packet);
                self.flush();
                // The chain may have had no room for it.
                self.ended(unit, stamp.flow.slot);
                self.carry_out();
            }
            Routed::Refused => {
                let Machine { chain, pool, .. } = &mut *self.machine.borrow_mut();
                chain.drop_admitted(packet, DropReason::FlowTableFull, pool);
            }
        }
    }

    /// Whether there is a flow with this key; one whose time is over ends.
    fn is_live(&mut self, hash: u64, key: &FlowKey) -> bool {
        let Some(flow) = self.router.flow(hash, key) else { return false };
        {
            let Machine { chain, pool, .. } = &mut *self.machine.borrow_mut();
            chain.end_expired_of(flow.slot, self.now_ns, pool);
        }
        self.take_changes();
        self.router.flow(hash, key).is_some()
    }

    /// Gives a packet in the midst of a flowlet to its unit.
    #[inline(always)]
    fn go_on(&mut self, numbered: Numbered, packet: Packet) {
        if self.unheard.add(&numbered) {
            return self.machine.borrow_mut().add(numbered.flow.slot, packet);
        }
        self.begin_to_go_on(numbered, packet);
    }

    /// The same for one that its unit hears of: the second one of a flowlet, or any if something is
    /// due once the flow falls silent.
    #[inline(never)]
    fn begin_to_go_on(&mut self, numbered: Numbered, packet: Packet) {
        let (unit, stamp) = (numbered.unit, self.router.stamp_on(&numbered));
        let to = &mut self.units[unit.index()];
        match to.pass(self.now_ns, &stamp, packet) {
            Ok(u64::MAX) => self.unheard.begin(&numbered),
            Ok(_) => self.due_ns = self.due_ns.min(to.due_ns()),
            Err(packet) => self.deliver_aside(unit, stamp, packet),
        }
    }

    /// Gives a packet to its unit.
    fn deliver(&mut self, unit: UnitId, stamp: Stamp, packet: Packet) {
        self.catch_up(unit, stamp.flow);
        let to = &mut self.units[unit.index()];
        match to.pass(self.now_ns, &stamp, packet) {
            Ok(_) => self.due_ns = self.due_ns.min(to.due_ns()),
            Err(packet) => self.deliver_aside(unit, stamp, packet),
        }
    }

    /// The unit hears of the flow's packets that it has not heard of, if it has the state. To be
    /// called before it hears of anything else that has to do with the flow.
    fn catch_up(&mut self, unit: UnitId, flow: FlowId) {
        let unit = &mut self.units[unit.index()];
        self.unheard.tell(flow.slot, |clock| unit.catch_up(flow, clock));
    }

    /// Gives a packet to its unit that is not just the next one of its flow there.
    #[inline(never)]
    fn deliver_aside(&mut self, unit: UnitId, stamp: Stamp, packet: Packet) {
        let to = &mut self.units[unit.index()];
        to.packet(self.now_ns, stamp, packet, &mut self.outbox);
        self.due_ns = self.due_ns.min(to.due_ns());
        self.collect(unit);
        self.carry_out();
    }

    /// What waits crosses the chain, and what comes of that becomes known.
    fn flush(&mut self) {
        {
            let machine = &mut *self.machine.borrow_mut();
            machine.flush();
            if !machine.take_news() {
                return;
            }
            self.due_ns = self.due_ns.min(machine.chain.due_ns());
        }
        self.take_changes();
    }

    /// Lets the router and the units know what has become of the chain's flows.
    fn take_changes(&mut self) {
        if self.machine.borrow().chain.changes().is_empty() {
            return;
        }
        let mut changes = std::mem::take(self.machine.borrow_mut().chain.changes_mut());
        for change in changes.drain(..) {
            match change {
                Change::Alias { home, key, hash } => self.set_alias(home, &key, hash),
                Change::Ended { home } => {
                    let owner = self.machine.borrow().owner(home);
                    owner.into_iter().for_each(|owner| self.ended(owner, home));
                }
                Change::FirstFragment { .. } => {} // There is one chain, which has learnt it.
            }
        }
        *self.machine.borrow_mut().chain.changes_mut() = changes;
        self.carry_out();
    }

    /// A flow's alias is known to the router before anything else is routed (DESIGN 3.8). The chain
    /// knows best whose it is.
    fn set_alias(&mut self, home: u32, key: &FlowKey, hash: u64) {
        let Some(flow) = self.router.flow_in(home) else { return };
        self.router.take_alias(flow, key, hash, &mut self.orders);
    }

    /// A flow of this unit ended in the chain: if it has not begun anew since, there is nothing
    /// left of it.
    fn ended(&mut self, unit: UnitId, home: u32) {
        let Some(flow) = self.router.flow_in(home) else { return };
        if !self.machine.borrow().has(home) {
            self.catch_up(unit, flow);
            self.units[unit.index()].propose_end(self.now_ns, flow, &mut self.outbox);
            self.collect(unit);
        }
    }

    /// Does what is due by now; nothing waits.
    #[cold]
    fn pass_time(&mut self) {
        let now_ns = self.now_ns;
        let began_ns = *self.began_ns.get_or_insert(now_ns);
        self.tally.tell(&mut self.epochs, &self.router, self.work);
        self.epochs.pass(now_ns - began_ns, self.router.counters().flowlets());
        {
            let Machine { chain, pool, .. } = &mut *self.machine.borrow_mut();
            chain.advance(now_ns, pool);
        }
        self.take_changes();
        if self.router.due_ns() <= now_ns {
            self.router.advance(now_ns, &mut self.orders);
        }
        for number in 0..self.units.len() {
            if self.units[number].due_ns() <= now_ns {
                self.units[number].advance(now_ns, &mut self.outbox);
                self.collect(UnitId(number as u16));
            }
        }
        self.carry_out();
        self.update_due();
    }

    /// When something is due next. In between it may only come to be earlier, with what packets and
    /// messages bring about.
    fn update_due(&mut self) {
        let epoch_ns = self.began_ns.map_or(0, |began_ns| began_ns.saturating_add(self.epochs.ends_ns()));
        let parts = [self.machine.borrow().chain.due_ns(), self.router.due_ns(), epoch_ns];
        let units = self.units.iter().map(Unit::due_ns);
        self.due_ns = units.chain(parts).min().unwrap_or(0);
    }

    /// Carries out the router's orders, and what follows from them, until nothing is left to do.
    fn carry_out(&mut self) {
        loop {
            if !self.orders.is_empty() {
                self.todo.extend(self.orders.drain(..).map(Todo::Order));
            }
            let Some(todo) = self.todo.pop_front() else { return };
            match todo {
                Todo::Order(order) => self.order(order),
                Todo::ToRouter(from, message) => {
                    self.router.receive(self.now_ns, from, message, &mut self.orders);
                }
                Todo::ToUnit(from, to, message) => self.message(Some(from), to, message),
                Todo::Packet(to, stamp, packet) => {
                    self.send_on(to, stamp, packet);
                }
            }
        }
    }

    /// A packet that came to a unit whose flow had gone on.
    fn send_on(&mut self, to: UnitId, stamp: Stamp, packet: Packet) {
        self.catch_up(to, stamp.flow);
        self.units[to.index()].packet(self.now_ns, stamp, packet, &mut self.outbox);
        self.collect(to);
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Send { to, message } => self.message(None, to, message),
            Order::Start(unit) => self.start(unit),
            Order::Stop(unit) => {
                let since_ns = self.since_ns(self.now_ns);
                self.epochs.set_ready(since_ns, unit, false);
                self.epochs.set_on(since_ns, unit, false);
            }
        }
    }

    /// Starts a unit: here, that takes no time.
    fn start(&mut self, unit: UnitId) {
        let since_ns = self.since_ns(self.now_ns);
        self.epochs.set_on(since_ns, unit, true);
        self.epochs.set_ready(since_ns, unit, true);
        self.router.started(self.now_ns, unit);
        self.due_ns = self.due_ns.min(self.router.due_ns());
    }

    fn message(&mut self, from: Option<UnitId>, to: UnitId, message: Message) {
        if let Some(flow) = message.flow() {
            self.catch_up(to, flow);
        }
        let unit = &mut self.units[to.index()];
        unit.receive(self.now_ns, from, message, &mut self.outbox);
        self.due_ns = self.due_ns.min(unit.due_ns());
        self.collect(to);
    }

    /// Takes what a unit wants sent.
    fn collect(&mut self, unit: UnitId) {
        let outbox = &mut self.outbox;
        if !outbox.to_router.is_empty() {
            self.todo.extend(outbox.to_router.drain(..).map(|message| Todo::ToRouter(unit, message)));
        }
        if !outbox.to_units.is_empty() {
            self.todo.extend(outbox.to_units.drain(..).map(|(to, message)| Todo::ToUnit(unit, to, message)));
        }
        if !outbox.is_empty() {
            self.collect_rare(unit);
        }
    }

    /// The same, of what there seldom is.
    #[cold]
    fn collect_rare(&mut self, unit: UnitId) {
        let outbox = &mut self.outbox;
        for message in outbox.to_all.drain(..) {
            let others =
                self.router.units().filter(|other| other.state == UnitState::Active && other.unit != unit);
            self.todo.extend(others.map(|other| Todo::ToUnit(unit, other.unit, message.clone())));
        }
        let forwarded = outbox.forwarded.drain(..);
        self.todo.extend(forwarded.map(|(to, stamp, packet)| Todo::Packet(to, stamp, packet)));
        for (_, _, packet) in outbox.dropped.drain(..) {
            // Messages are there as soon as they are sent, so no packet comes too late or has to
            // wait.
            let Machine { chain, pool, .. } = &mut *self.machine.borrow_mut();
            chain.drop_admitted(packet, DropReason::Internal, pool);
        }
    }
}

impl Backend for Units {
    fn process(&mut self, batch: &mut Vec<Packet>, core: Core<'_>) {
        Units::process(self, core.chain, batch, core.out, core.pool);
    }

    fn handle_timeout(&mut self, now_ns: u64, core: Core<'_>) {
        self.advance(core.chain, now_ns, core.out, core.pool);
    }

    fn finish(&mut self, _core: Core<'_>) -> bool {
        Units::finish(self);
        true
    }

    fn add_to_report(&self, report: &mut Report, _names: &[String]) {
        report.units = Some(self.report());
    }

    fn units(&self) -> Option<&Units> {
        Some(self)
    }
}
