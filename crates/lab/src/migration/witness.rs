//! Packets that came and left, and the states of their flows.

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchedPacket {
    /// Its flow, from 0.
    pub flow: u32,
    /// Its number in the flow, from 1.
    pub seq: u32,
    /// Time of arrival at the switch.
    pub came_ns: u64,
}

/// A flow's state: it encodes which packets made it, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldState(u64);

impl FoldState {
    /// Adds a packet.
    pub fn add(&mut self, seq: u32) {
        let mut sum = self.0.rotate_left(5) ^ u64::from(seq);
        self.0 = packet::split_mix(&mut sum);
    }

    /// As it is saved.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// From what was saved.
    pub fn of_bytes(bytes: [u8; 8]) -> FoldState {
        FoldState(u64::from_be_bytes(bytes))
    }
}

/// The outcome of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MigrationOutcome {
    /// From the command until the last flow has moved, in ns.
    pub total_ns: u64,
    /// From the begin of a flow's move to its end, in ns; the mean of all flows.
    pub mean_ns: f64,
    /// The longest time that a packet spent more than the median packet before the migration.
    pub wait_ns: u64,
    /// Packets that never left.
    pub lost: u64,
    /// Packets that left after a later one of their flow.
    pub reordered: u64,
    /// Flows with a state other than that of all their packets in order.
    pub wrong_states: u64,
    /// Messages, of all flows and nodes.
    pub messages: u64,
    /// Packets that arrived.
    pub packets: u64,
}

/// The packets of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct FlowLog {
    /// Arrival time of its second packet.
    phase_ns: u64,
    sent: u32,
    left: u32,
    /// The highest seq that has left.
    highest: u32,
    reordered: u32,
    begun_ns: Option<u64>,
    moved_ns: Option<u64>,
    expected: FoldState,
}

/// Watches all flows.
#[derive(Clone, Debug)]
pub struct MoveWitness {
    flows: Vec<FlowLog>,
    started_ns: Option<u64>,
    moving: u32,
    ended_ns: u64,
    /// Times of packets that came before the migration.
    before_ns: Vec<u64>,
    longest_ns: u64,
}

impl MoveWitness {
    /// Creates a witness of this many flows; none has begun.
    pub fn new(flows: u32) -> MoveWitness {
        MoveWitness {
            flows: vec![FlowLog::default(); flows as usize],
            started_ns: None,
            moving: flows,
            ended_ns: 0,
            before_ns: Vec::new(),
            longest_ns: 0,
        }
    }

    /// Sets the arrival time of a flow's second packet.
    pub fn set_phase(&mut self, flow: u32, phase_ns: u64) {
        self.flows[flow as usize].phase_ns = phase_ns;
    }

    /// Flows that have not moved.
    pub fn moving(&self) -> u32 {
        self.moving
    }

    /// The next packet of a flow, and the time of the one after it; none if all flows moved a while
    /// ago.
    pub fn next_packet(
        &mut self,
        flow: u32,
        now_ns: u64,
        period_ns: u64,
        after_ns: u64,
    ) -> Option<(SwitchedPacket, u64)> {
        if self.moving == 0 && now_ns > self.ended_ns + after_ns {
            return None;
        }
        let log = &mut self.flows[flow as usize];
        log.sent += 1;
        log.expected.add(log.sent);
        let next_ns = if log.sent == 1 { log.phase_ns } else { now_ns + period_ns };
        Some((SwitchedPacket { flow, seq: log.sent, came_ns: now_ns }, next_ns))
    }

    /// The migration is commanded.
    pub fn start(&mut self, now_ns: u64) {
        self.started_ns = Some(now_ns);
    }

    /// The move of a flow begins.
    pub fn begin(&mut self, flow: u32, now_ns: u64) {
        self.flows[flow as usize].begun_ns.get_or_insert(now_ns);
    }

    /// A flow has moved.
    pub fn end(&mut self, flow: u32, at_ns: u64) {
        let log = &mut self.flows[flow as usize];
        if log.moved_ns.is_none() {
            log.moved_ns = Some(at_ns);
            self.moving -= 1;
            self.ended_ns = self.ended_ns.max(at_ns);
        }
    }

    /// A packet has left.
    pub fn left(&mut self, packet: SwitchedPacket, at_ns: u64) {
        let log = &mut self.flows[packet.flow as usize];
        log.left += 1;
        log.reordered += u32::from(packet.seq < log.highest);
        log.highest = log.highest.max(packet.seq);
        let took_ns = at_ns - packet.came_ns;
        match self.started_ns {
            Some(_) => self.longest_ns = self.longest_ns.max(took_ns),
            None => self.before_ns.push(took_ns),
        }
    }

    /// The outcome, with each flow's state at the end.
    ///
    /// # Errors
    ///
    /// If flows have not moved.
    pub fn finish(mut self, states: &[Option<FoldState>], messages: u64) -> Result<MigrationOutcome, String> {
        if self.moving > 0 {
            return Err(format!("{} flows have not moved", self.moving));
        }
        let started_ns = self.started_ns.unwrap_or_default();
        let middle = self.before_ns.len() / 2;
        let usual_ns = match self.before_ns.is_empty() {
            true => 0,
            false => *self.before_ns.select_nth_unstable(middle).1,
        };
        let mut outcome = MigrationOutcome {
            total_ns: self.ended_ns - started_ns,
            wait_ns: self.longest_ns.saturating_sub(usual_ns),
            messages,
            ..MigrationOutcome::default()
        };
        let mut moves_ns = 0;
        for (log, state) in self.flows.iter().zip(states) {
            outcome.packets += u64::from(log.sent);
            outcome.lost += u64::from(log.sent.saturating_sub(log.left));
            outcome.reordered += u64::from(log.reordered);
            outcome.wrong_states += u64::from(*state != Some(log.expected));
            moves_ns += log.moved_ns.unwrap_or_default() - log.begun_ns.unwrap_or(started_ns);
        }
        outcome.mean_ns = moves_ns as f64 / self.flows.len().max(1) as f64;
        Ok(outcome)
    }
}
