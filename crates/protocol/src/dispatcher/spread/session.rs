//! An epoch in which a flow is spread: who has its packets, what they were like, and how many come.

use std::collections::VecDeque;

use crate::message::{Epoch, FlowId, Header, History, Message, Targets, UnitId};

use crate::dispatcher::config::Spread;
use crate::dispatcher::load::rate_bps;
use crate::dispatcher::machine::Order;

/// An epoch in which a flow is spread; or the time behind it in which helpers may still have
/// packets of it.
pub(super) struct Session {
    pub flow: FlowId,
    pub epoch: Epoch,
    /// Those that have packets, the anchor first; none once it is over.
    pub members: Vec<Member>,
    /// Helpers that get none any more. They cannot help again in this epoch.
    pub leaving: Vec<Leaving>,
    /// When those that have not parted were told last that they are to.
    pub told_ns: u64,
    /// Whose turn it is.
    turn: usize,
    /// Headers of its last packets.
    headers: VecDeque<Header>,
    /// The clock of the first of them.
    first: u64,
    /// The anchor was told those up to this clock.
    told: u64,
    /// What comes now, and what came before.
    window: Window,
    before: Window,
}

pub(super) struct Member {
    pub unit: UnitId,
    /// The last clock before it was one.
    base: u64,
    /// The clocks of its last packets, one more than headers are repeated.
    sent: VecDeque<u64>,
}

pub(super) struct Leaving {
    pub unit: UnitId,
    /// The clock of its last packet; none: it got none.
    last: Option<u64>,
    /// It has done with the epoch.
    pub has_parted: bool,
}

/// What came of the flow since then.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub since_ns: u64,
    pub bytes: u64,
}

impl Window {
    /// The last flowlet of no more than so many bytes, if all came evenly until then.
    pub fn last_flowlet(self, until_ns: u64, size_max: u64) -> Window {
        if self.bytes <= size_max {
            return self;
        }
        let time_ns = until_ns.saturating_sub(self.since_ns) as f64 * size_max as f64 / self.bytes as f64;
        Window { since_ns: until_ns - time_ns as u64, bytes: size_max } // Less than all of that time.
    }
}

impl Session {
    /// An epoch that begins behind this clock, with this unit. Before it came so much.
    pub fn new(
        (flow, epoch, base): (FlowId, Epoch, u64),
        anchor: UnitId,
        now_ns: u64,
        before: Window,
    ) -> Session {
        Session {
            flow,
            epoch,
            members: vec![Member::new(anchor, base)],
            leaving: Vec::new(),
            told_ns: now_ns,
            turn: 0,
            headers: VecDeque::new(),
            first: base + 1,
            told: base,
            window: Window { since_ns: now_ns, bytes: 0 },
            before,
        }
    }

    pub fn is_over(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether it is over, and no helper has packets any more.
    pub fn is_done(&self) -> bool {
        self.is_over() && self.leaving.iter().all(|helper| helper.has_parted)
    }

    /// Whether packets of it may be at this unit.
    pub fn has(&self, unit: UnitId) -> bool {
        self.members.iter().any(|member| member.unit == unit) || self.is_leaving(unit)
    }

    /// Whether this unit was a helper, and may still have packets.
    pub fn is_leaving(&self, unit: UnitId) -> bool {
        self.leaving.iter().any(|helper| helper.unit == unit && !helper.has_parted)
    }

    /// Units that were helpers, and have done with it.
    pub fn parted_units(&self) -> impl Iterator<Item = UnitId> + '_ {
        self.leaving.iter().filter(|helper| helper.has_parted).map(|helper| helper.unit)
    }

    /// Whether this unit is or was one of those that have packets.
    pub fn knows(&self, unit: UnitId) -> bool {
        self.members.iter().any(|member| member.unit == unit)
            || self.leaving.iter().any(|helper| helper.unit == unit)
    }

    /// The clock behind the last header.
    pub fn next(&self) -> u64 {
        self.first + self.headers.len() as u64
    }

    /// How many headers the anchor was not told.
    pub fn untold(&self) -> u64 {
        self.next() - 1 - self.told
    }

    /// These helpers have packets, too, from now on. What the anchor is told.
    pub fn join(&mut self, helpers: &[UnitId]) -> Order {
        let (to, last) = (self.members[0].unit, self.next() - 1);
        self.members.extend(helpers.iter().map(|&unit| Member::new(unit, last)));
        let helpers = Targets::of_distinct(helpers.iter().copied());
        Order::Send { to, message: Message::Spread { flow: self.flow, epoch: self.epoch, last, helpers } }
    }

    /// The unit whose turn it is.
    pub fn take_turn(&mut self, len: u32) -> UnitId {
        let member = self.turn % self.members.len(); // There are some: it is not over.
        self.turn = member + 1;
        self.window.bytes += u64::from(len);
        self.members[member].unit
    }

    /// Whether what comes has been measured for so long.
    pub fn is_measured(&self, now_ns: u64, window_ns: u64) -> bool {
        now_ns.saturating_sub(self.window.since_ns) >= window_ns
    }

    /// What the flow asks for; it is measured anew from now on.
    pub fn measure(&mut self, now_ns: u64) -> f32 {
        let window = Window { since_ns: now_ns, bytes: 0 };
        self.before = std::mem::replace(&mut self.window, window);
        rate_bps(self.before.bytes, now_ns.saturating_sub(self.before.since_ns).max(1))
    }

    /// What has come lately, for a window or more.
    pub fn lately(&self) -> Window {
        Window { since_ns: self.before.since_ns, bytes: self.before.bytes + self.window.bytes }
    }

    /// The headers that the anchor was not told.
    pub fn tell(&mut self, end: Option<u64>) -> Message {
        let first = self.told + 1;
        let skipped = (first - self.first) as usize;
        let headers: Vec<Header> = self.headers.iter().skip(skipped).cloned().collect();
        self.told = self.next() - 1;
        Message::Told { flow: self.flow, epoch: self.epoch, first, headers, end }
    }

    /// Helpers of which this is so get no packets any more. What they are told.
    pub fn dismiss(
        &mut self,
        now_ns: u64,
        is_dismissed: impl Fn(UnitId) -> bool,
    ) -> impl Iterator<Item = Order> + '_ {
        let from = self.leaving.len();
        self.leaving
            .extend(self.members.extract_if(1.., |helper| is_dismissed(helper.unit)).map(Leaving::from));
        self.told_ns = now_ns;
        self.leaving[from..].iter().map(|helper| helper.part(self.flow, self.epoch))
    }

    /// It is over: whose flow it is, and what that unit is told. The helpers are to be told to
    /// [part](Session::partings).
    pub fn close(&mut self, now_ns: u64) -> Option<(UnitId, Message)> {
        let anchor = self.members.first()?;
        let (anchor, end) = (anchor.unit, anchor.last().unwrap_or(anchor.base));
        let message = self.tell(Some(end));
        self.leaving.extend(self.members.drain(..).skip(1).map(Leaving::from));
        self.told_ns = now_ns;
        self.headers = VecDeque::new();
        Some((anchor, message))
    }

    /// What helpers are told that get no packets any more, and have not said that they have parted.
    pub fn partings(&self) -> impl Iterator<Item = Order> + '_ {
        let leaving = self.leaving.iter().filter(|helper| !helper.has_parted);
        leaving.map(|helper| helper.part(self.flow, self.epoch))
    }

    /// Helpers of which this is so have done with the epoch.
    pub fn parted(&mut self, has_parted: impl Fn(UnitId) -> bool) {
        self.leaving.iter_mut().for_each(|helper| helper.has_parted |= has_parted(helper.unit));
    }

    /// What goes with the next packet, which is this header's and `unit`'s.
    pub fn history(&mut self, unit: UnitId, header: Header, config: &Spread) -> History {
        let next = self.next();
        let Some(member) = self.members.iter_mut().find(|member| member.unit == unit) else {
            return History::default(); // Cannot be: it was its turn.
        };
        let previous = member.last().unwrap_or(member.base);
        let is_repeated = member.sent.len() > usize::from(config.repeats);
        let oldest = if is_repeated { member.sent.pop_front() } else { None };
        member.sent.push_back(next);
        let first = (oldest.unwrap_or(member.base) + 1).max(self.first);
        let headers = self.headers.iter().skip((first - self.first) as usize).cloned().collect();
        self.headers.push_back(header);
        // The anchor is told half of them at a time, so that none goes that it was not told.
        while self.headers.len() > usize::from(config.history_max) && self.first <= self.told {
            self.headers.pop_front();
            self.first += 1;
        }
        History { previous, first, headers }
    }
}

impl Member {
    fn new(unit: UnitId, base: u64) -> Member {
        Member { unit, base, sent: VecDeque::new() }
    }

    /// The clock of its last packet.
    fn last(&self) -> Option<u64> {
        self.sent.back().copied()
    }
}

impl From<Member> for Leaving {
    fn from(member: Member) -> Leaving {
        Leaving { unit: member.unit, last: member.last(), has_parted: false }
    }
}

impl Leaving {
    fn part(&self, flow: FlowId, epoch: Epoch) -> Order {
        Order::Send { to: self.unit, message: Message::Part { flow, epoch, last: self.last } }
    }
}
