//! Growing buffers when memory runs short: which flows may still take some, and which buffers are
//! evicted.
//!
//! While more than a quarter of the memory is free, any flow may take what it needs. Below that,
//! the flows of one source may hold its share. When memory is full, buffers are evicted: first
//! those of connections that are not open, in order of arrival. Then those of open connections,
//! idle ones first, and sources above their share before others.

use packet::memory::OutOfMemory;

use super::{Buffers, FlowBuffer, Kept, NUMBER_LEN, excess};
use crate::record::RecordHeader;
use crate::sources::{ReportLimit, SourceAccounts};

/// Share of the memory that the flows of one source may hold once it runs short, in percent.
pub const BUFFER_SHARE_PERCENT: u8 = 10;

/// The reason that data of a flow was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryShortage {
    /// All memory is in use, and nothing can be evicted.
    Memory = 0,
    /// The flow's source holds its full share.
    Share = 1,
    /// The flow's buffer was evicted in favour of others.
    Evicted = 2,
}

impl MemoryShortage {
    const COUNT: usize = 3;
}

/// Granularity of the sources' accounts, in bytes.
const GRAIN: usize = 64;
/// Number of accounts of sources.
const ACCOUNTS: u64 = 1 << 16;
/// Divisor of memory for the part that is free for all.
const FREE_PART: usize = 4;
/// Bytes kept free for each buffer of the current flow while something can be evicted.
const RESERVE_BYTES: usize = 64 << 10;
/// Divisor of memory that bounds this reserve.
const RESERVE_PART: usize = 8;
/// Limit on the buffers of open connections scanned for eviction, per buffer taken.
const SCANNED_MAX: usize = 128;
/// Limit on the buffers evicted per buffer taken.
const VICTIMS_MAX: usize = 32;
/// Limit on the uses that protect a buffer from eviction.
const USES_MAX: u8 = 3;
/// No buffer.
const NONE: u32 = u32::MAX;

/// A link in the queue of buffers of connections that are not open.
#[derive(Clone, Copy)]
struct QueueLink {
    next: u32,
    previous: u32,
}

/// State for times when memory is short.
pub(super) struct Supply {
    sources: SourceAccounts,
    /// With less free memory than this, shares apply.
    free: usize,
    /// With less free memory than this, buffers are evicted.
    reserve: usize,
    /// The queue's links, by buffer, then its first and last buffer.
    places: Vec<QueueLink>,
    first: u32,
    last: u32,
    /// The next buffer to scan among open connections.
    hand: usize,
    evictions: u64,
    count: u64,
    kind: Option<MemoryShortage>,
    reports: ReportLimit<{ MemoryShortage::COUNT }>,
}

impl Supply {
    pub fn new(memory: usize, count: usize, percent: u8, seed: u64) -> Result<Supply, OutOfMemory> {
        let share = memory / GRAIN * usize::from(percent.min(100)) / 100;
        let sources = SourceAccounts::new(ACCOUNTS, u32::try_from(share).unwrap_or(u32::MAX), seed)?;
        Ok(Supply {
            free: if percent < 100 { memory / FREE_PART } else { 0 },
            reserve: (count * RESERVE_BYTES).min(memory / RESERVE_PART),
            places: Vec::new(),
            first: NONE,
            last: NONE,
            hand: 0,
            evictions: 0,
            count: 0,
            kind: None,
            reports: ReportLimit::new(sources.accounts())?,
            sources,
        })
    }

    /// Returns the free memory from which on nothing is limited, for flows with `count` buffers of
    /// up to `len_max` bytes.
    pub fn plenty(&self, count: usize, len_max: usize) -> usize {
        self.free.max(count * len_max)
    }

    /// Counts a shortage.
    #[cold]
    pub fn note(&mut self, kind: MemoryShortage) {
        self.count += 1;
        self.kind = Some(kind);
    }

    /// Charges a buffer for its current content.
    #[inline]
    pub fn charge(&mut self, at: usize, kept: &mut Kept, header: &RecordHeader) {
        let grains = kept.bytes.len().div_ceil(GRAIN) as u32; // A buffer's length fits in a `u32`.
        if kept.is_weak || kept.charged != grains {
            self.charge_other(at, kept, grains, header);
        }
    }

    #[inline(never)]
    fn charge_other(&mut self, at: usize, kept: &mut Kept, grains: u32, header: &RecordHeader) {
        if kept.is_weak {
            if header.connection.gives_way() {
                if std::mem::replace(&mut kept.charged, grains) == 0 {
                    self.push(at as u32);
                }
                return;
            }
            if kept.charged > 0 {
                self.unlink(at as u32);
            }
            (kept.is_weak, kept.charged) = (false, 0);
            kept.account = self.sources.account(header.source()) as u16; // There are 2^16 accounts.
        }
        match grains.checked_sub(kept.charged) {
            Some(more) => self.sources.add(kept.account.into(), more),
            None => self.sources.remove(kept.account.into(), kept.charged - grains),
        }
        kept.charged = grains;
    }

    /// Discharges a buffer that became empty.
    pub fn discharge(&mut self, at: usize, kept: &mut Kept) {
        match std::mem::take(&mut kept.charged) {
            0 => {}
            _ if kept.is_weak => self.unlink(at as u32),
            grains => self.sources.remove(kept.account.into(), grains),
        }
        (kept.is_weak, kept.uses) = (true, 0);
    }

    fn push(&mut self, at: u32) {
        if self.places.len() <= at as usize {
            self.places.resize(at as usize + 1, QueueLink { next: NONE, previous: NONE });
        }
        let last = std::mem::replace(&mut self.last, at);
        match last {
            NONE => self.first = at,
            last => self.places[last as usize].next = at,
        }
        self.places[at as usize] = QueueLink { next: NONE, previous: last };
    }

    fn unlink(&mut self, at: u32) {
        let Some(&QueueLink { next, previous }) = self.places.get(at as usize) else { return };
        match previous {
            NONE => self.first = next,
            previous => self.places[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.places[next as usize].previous = previous,
        }
    }

    /// Returns the buffers of connections that are not open, oldest first.
    fn weak(&self) -> impl Iterator<Item = u32> {
        let next = |&at: &u32| self.places.get(at as usize).map(|place| place.next);
        std::iter::successors(Some(self.first), next).take_while(|&at| at != NONE)
    }
}

impl Kept {
    /// Counts a repeated use by its flow.
    #[inline]
    pub(super) fn use_again(&mut self) {
        if self.charged > 0 {
            self.uses = (self.uses + 1).min(USES_MAX);
        }
    }
}

impl Buffers {
    /// Returns the number of times that data was not kept, or was missed after an eviction.
    pub(crate) fn shortages(&self) -> u64 {
        self.supply.count
    }

    /// Returns the number of buffers evicted in favour of others.
    pub fn evictions(&self) -> u64 {
        self.supply.evictions
    }

    pub(crate) fn last_shortage(&self) -> Option<MemoryShortage> {
        self.supply.kind
    }

    /// Checks if a shortage that met this flow should be reported now.
    pub(crate) fn is_to_report(&mut self, kind: MemoryShortage, header: &RecordHeader, now_ns: u64) -> bool {
        let account = self.supply.sources.account(header.source());
        self.supply.reports.is_due(kind as usize, account, now_ns)
    }

    /// Returns a buffer with a limit, for content taken while memory is short.
    #[cold]
    #[inline(never)]
    pub(super) fn ration(
        &mut self,
        numbers: &[u8],
        at: Option<usize>,
        bytes: Vec<u8>,
        header: &RecordHeader,
    ) -> FlowBuffer {
        // A flow that was charged stays charged: a forged reset would also mark its connection as
        // closed.
        let is_charged = |kept: &Kept| !kept.is_weak && kept.charged > 0;
        let own = || numbers.chunks_exact(NUMBER_LEN).filter_map(|number| self.index(number)).chain(at);
        let is_weak =
            header.connection.gives_way() && !own().filter_map(|at| self.kept.get(at)).any(is_charged);
        let mut left = usize::MAX;
        if !is_weak && self.room < self.supply.free {
            let own = at.and_then(|at| self.kept.get(at)).filter(|kept| !kept.is_weak);
            let own = own.map_or(0, |kept| kept.charged as usize);
            let account = self.supply.sources.account(header.source());
            left = (self.supply.sources.left(account) as usize + own) * GRAIN;
        }
        if left > bytes.len() {
            self.make_room(numbers, is_weak);
        }
        // While this buffer is out, only the same flow's other buffers can take memory: their part
        // is reserved.
        let part = (self.room / self.spec.count.max(1)).min(self.spec.len_max);
        let short = match part {
            part if left < part => Some(MemoryShortage::Share),
            part if part < self.spec.len_max => Some(MemoryShortage::Memory),
            _ => None,
        };
        FlowBuffer { len_max: part.min(left).max(bytes.len()), bytes, refused: 0, short, was_evicted: false }
    }

    /// Evicts buffers until the reserve is free. Connections that are not open take nothing from
    /// open ones.
    fn make_room(&mut self, own: &[u8], is_weak: bool) {
        let is_own = |at: u32| own.chunks_exact(NUMBER_LEN).any(|number| number == (at + 1).to_le_bytes());
        for _ in 0..VICTIMS_MAX {
            if self.room >= self.supply.reserve {
                return;
            }
            // A flow has no more buffers of its own than `count`.
            let Some(at) = self.supply.weak().find(|&at| !is_own(at)) else { break };
            self.give_way(at as usize);
        }
        if is_weak || self.kept.is_empty() {
            return;
        }
        let mut idle = [0; VICTIMS_MAX];
        let mut idle_count = 0;
        let any_over = self.supply.sources.is_any_over();
        let mut least = None;
        for _ in 0..SCANNED_MAX.min(self.kept.len()) {
            if self.room >= self.supply.reserve {
                return;
            }
            let at = self.supply.hand % self.kept.len();
            self.supply.hand = at + 1;
            let kept = &mut self.kept[at];
            if kept.bytes.is_empty() || kept.is_weak || is_own(at as u32) {
                continue;
            }
            let is_first =
                if any_over { self.supply.sources.is_over(kept.account.into()) } else { kept.uses == 0 };
            if is_first {
                self.give_way(at);
            } else if kept.uses == 0 && idle_count < idle.len() {
                idle[idle_count] = at;
                idle_count += 1;
            } else {
                if least.is_none_or(|(uses, _)| kept.uses < uses) {
                    least = Some((kept.uses, at));
                }
                kept.uses = kept.uses.saturating_sub(1);
            }
        }
        let least = least.map(|(_, at)| at).filter(|_| idle_count == 0);
        for &at in idle[..idle_count].iter().chain(&least) {
            if self.room < self.supply.reserve {
                self.give_way(at);
            }
        }
    }

    /// Evicts a buffer; its flow will learn of the loss.
    fn give_way(&mut self, at: usize) {
        let Some(kept) = self.kept.get_mut(at) else { return };
        let bytes = std::mem::take(&mut kept.bytes);
        self.room += bytes.len();
        self.excess -= excess(&bytes);
        self.supply.discharge(at, kept);
        kept.is_lost = true;
        self.supply.evictions += 1;
    }
}

#[cfg(test)]
mod tests {
    use packet::parse::protocol;
    use packet::{Addr, Endpoint, FlowKey, Scope};
    use zerocopy::FromZeros;

    use super::*;
    use crate::{BufferSpec, Connection};

    /// Memory for 40 full buffers.
    static SPEC: BufferSpec = BufferSpec { count: 2, len_max: 256, memory: 40 * 256 };

    struct Flow {
        header: RecordHeader,
        numbers: [u8; 8],
    }

    impl Flow {
        fn new(source: u32, connection: Connection) -> Flow {
            let end = |addr: u32| Endpoint::new(Addr::from_v4_bytes(addr.to_be_bytes()), 1);
            let (key, reversed) =
                FlowKey::new(end(source), end(u32::MAX), protocol::TCP, 4, Scope::default(), 0);
            let mut header = RecordHeader::new_zeroed();
            header.set_key(key, reversed);
            header.connection = connection;
            Flow { header, numbers: [0; 8] }
        }

        /// Appends to a buffer and returns the number of bytes that fit.
        fn push(&mut self, buffer: usize, len: usize, buffers: &mut Buffers) -> usize {
            let mut taken = buffers.take(&mut self.numbers, buffer, &self.header);
            let pushed = taken.push(&vec![7; len]);
            buffers.give(&mut self.numbers, buffer, taken, &self.header);
            pushed
        }

        fn fill(&mut self, buffers: &mut Buffers) -> usize {
            self.push(0, 256, buffers) + self.push(1, 256, buffers)
        }
    }

    fn buffers() -> Buffers {
        Buffers::new(&SPEC, SPEC.memory, BUFFER_SHARE_PERCENT, 7).unwrap()
    }

    fn shortage(buffers: &Buffers) -> (u64, Option<MemoryShortage>) {
        (buffers.shortages(), buffers.last_shortage())
    }

    const OPEN: Connection = Connection::ESTABLISHED;
    const HALF_OPEN: Connection = Connection::SYN_SENT;

    #[test]
    fn forged_reset_frees_no_share() {
        let mut buffers = buffers();
        let mut attacker: Vec<Flow> = (0..1_000).map(|_| Flow::new(1, OPEN)).collect();
        for flow in &mut attacker {
            flow.push(0, 2 * GRAIN, &mut buffers);
        }
        let before = buffers.used_bytes();
        for flow in attacker.iter_mut().filter(|flow| flow.numbers != [0; 8]) {
            flow.header.connection = Connection::RESET;
            flow.push(0, 256, &mut buffers);
            flow.push(1, 256, &mut buffers);
        }
        // While its buffer is out, a flow finds plenty of memory again.
        assert!(buffers.used_bytes() <= before + 256);
    }

    #[test]
    fn source_above_its_share_leaves_memory_for_others() {
        let mut buffers = buffers();
        let mut attacker: Vec<Flow> = (0..1_000).map(|_| Flow::new(1, OPEN)).collect();
        let taken: usize = attacker.iter_mut().map(|flow| flow.fill(&mut buffers)).sum();
        assert!(taken * 4 <= SPEC.memory * 3 + 4 * 512, "{taken}");
        assert!(
            matches!(shortage(&buffers), (900.., Some(MemoryShortage::Share))),
            "{:?}",
            shortage(&buffers)
        );
        let before = buffers.shortages();
        let mut other = Flow::new(2, OPEN);
        assert_eq!(other.fill(&mut buffers), 512);
        assert_eq!((buffers.shortages(), buffers.evictions()), (before, 0));
        attacker.iter_mut().for_each(|flow| buffers.release(&mut flow.numbers));
        buffers.release(&mut other.numbers);
        assert_eq!(buffers.used_bytes(), 0);
        let mut again = Flow::new(1, OPEN);
        assert_eq!((again.fill(&mut buffers), buffers.shortages()), (512, before));
    }

    #[test]
    fn buffers_of_closed_connections_are_evicted_first() {
        let mut buffers = buffers();
        let mut open = Flow::new(1, OPEN);
        open.push(0, 100, &mut buffers);
        let mut flood: Vec<Flow> = (0..1_000).map(|at| Flow::new(10 + at, HALF_OPEN)).collect();
        flood.iter_mut().for_each(|flow| _ = flow.fill(&mut buffers));
        assert!(buffers.evictions() > 1_000, "the flood evicts itself: {}", buffers.evictions());
        let mut others: Vec<Flow> = (0..10).map(|at| Flow::new(2_000 + at, OPEN)).collect();
        let before = buffers.shortages();
        assert!(others.iter_mut().all(|other| other.fill(&mut buffers) == 512));
        assert_eq!((open.push(0, 100, &mut buffers), buffers.shortages()), (100, before));
        let first = &mut flood[0];
        let oldest = buffers.take(&mut first.numbers, 0, &first.header);
        assert_eq!(
            (oldest.as_slice(), shortage(&buffers)),
            (&[][..], (before + 1, Some(MemoryShortage::Evicted)))
        );
        // The remaining buffers are in the queue, and nothing else is.
        flood
            .iter_mut()
            .chain(&mut others)
            .chain([&mut open])
            .for_each(|flow| buffers.release(&mut flow.numbers));
        assert_eq!((buffers.used_bytes(), buffers.supply.weak().count()), (0, 0));
    }

    #[test]
    fn idle_open_connections_are_evicted_before_busy_ones() {
        let mut buffers = buffers();
        let mut idle = Flow::new(1, OPEN);
        let mut active = Flow::new(2, OPEN);
        idle.fill(&mut buffers);
        active.fill(&mut buffers);
        for source in 10..500 {
            Flow::new(source, OPEN).fill(&mut buffers);
            active.push(0, 0, &mut buffers);
            active.push(1, 0, &mut buffers);
        }
        let shortages = buffers.shortages();
        let kept = |flow: &mut Flow, buffers: &mut Buffers| {
            buffers.take(&mut flow.numbers, 0, &flow.header).as_slice().len()
        };
        assert_eq!((kept(&mut active, &mut buffers), buffers.shortages()), (256, shortages));
        assert_eq!((kept(&mut idle, &mut buffers), buffers.shortages()), (0, shortages + 1));
        assert_eq!(buffers.last_shortage(), Some(MemoryShortage::Evicted));
    }

    #[test]
    fn evictions_are_remembered_across_a_move() {
        let (mut here, mut there) = (buffers(), buffers());
        let mut flow = Flow::new(1, HALF_OPEN);
        flow.fill(&mut here);
        (0..100).for_each(|at| _ = Flow::new(10 + at, HALF_OPEN).fill(&mut here));
        let mut saved = Vec::new();
        here.save(&flow.numbers, &mut saved);
        assert_eq!(there.restore(&mut flow.numbers, &flow.header, &saved), Some(&[][..]));
        assert_eq!(there.shortages(), 0);
        flow.push(1, 1, &mut there);
        assert_eq!(shortage(&there), (1, Some(MemoryShortage::Evicted)));
    }

    #[test]
    fn moved_flow_learns_of_content_that_did_not_fit() {
        let (mut here, mut there) = (buffers(), Buffers::new(&SPEC, 300, 100, 7).unwrap());
        let mut flow = Flow::new(1, OPEN);
        flow.fill(&mut here);
        let mut saved = Vec::new();
        here.save(&flow.numbers, &mut saved);
        assert_eq!(there.restore(&mut flow.numbers, &flow.header, &saved), Some(&[][..]));
        let before = there.shortages();
        assert_eq!((there.used_bytes(), flow.push(0, 1, &mut there)), (0, 1));
        assert_eq!((there.shortages() - before, there.last_shortage()), (1, Some(MemoryShortage::Evicted)));
        there.release(&mut flow.numbers);
        assert_eq!(there.used_bytes(), 0);
    }

    #[test]
    fn accounts_follow_their_flows() {
        let (mut here, mut there) = (buffers(), buffers());
        let mut flows: Vec<Flow> = (0..20).map(|_| Flow::new(1, OPEN)).collect();
        for flow in &mut flows {
            flow.fill(&mut here);
            let mut saved = Vec::new();
            here.save(&flow.numbers, &mut saved);
            here.release(&mut flow.numbers);
            there.restore(&mut flow.numbers, &flow.header, &saved).unwrap();
        }
        let account = there.supply.sources.account(flows[0].header.source());
        let held = |buffers: &Buffers| buffers.supply.sources.held(account) as usize * GRAIN;
        assert_eq!((held(&here), held(&there)), (0, there.used_bytes()));
        assert!(there.used_bytes() > SPEC.memory / 2);
    }
}
