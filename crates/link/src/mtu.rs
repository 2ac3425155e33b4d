//! The size of datagrams that the path carries (DPLPMTUD, RFC 8899).
//!
//! A link begins with a size that every path carries, and probes larger ones: padded datagrams
//! that carry nothing else, so their loss costs nothing. Where the path becomes narrower, large
//! datagrams are lost while small ones arrive, or the system refuses them; the link then falls back
//! to its first size at once and searches again. A fall without need costs a few round trips at
//! that size, so the rules need no proof.

/// Probes of a size that are lost before it counts as too large (RFC 8899 5.1.2, MAX_PROBES).
pub const MTU_PROBES_MAX: u32 = 3;

/// Time after which larger sizes are tried again (RFC 8899 5.1.1, PMTU_RAISE_TIMER).
pub const MTU_RAISE_NS: u64 = 60_000_000_000;

/// Lost large datagrams, over at least a round trip, after which the path counts as narrower.
const BLACK_HOLE_LOSSES: u32 = 3;

/// Probe timeouts in a row after which large datagrams are suspected.
const BLACK_HOLE_TIMEOUTS: u32 = 2;

/// The size tried first: Ethernet's 1,500 bytes, less the headers of IPv6 and UDP.
const TYPICAL: usize = 1_452;

/// Sizes worth a probe: usual MTUs, less the headers of IPv4 (28 bytes) or IPv6 (48) and UDP.
const SIZES: [usize; 24] = [
    1_252, 1_302, 1_332, 1_352, 1_372, 1_392, 1_402, 1_412, 1_422, 1_432, 1_444, 1_452, 1_472, 1_952, 2_952,
    3_952, 5_952, 7_952, 8_452, 8_852, 8_902, 8_922, 8_952, 8_972,
];

/// The size of a link's datagrams, and the search for a larger one.
#[derive(Debug)]
pub(crate) struct PathMtu {
    base: usize,
    most: usize,
    size: usize,
    /// The least size that did not pass in this search.
    too_large: usize,
    search: Search,
    lost: Option<LossRun>,
    /// The size when the last search ended; 0 before the first one has.
    announced: usize,
}

#[derive(Debug)]
enum Search {
    /// A size must be probed, after this many probes of it that were lost.
    Probe { lost: u32 },
    /// A probe is on its way.
    Wait { size: usize, lost: u32, number: u64, sent_ns: u64, until_ns: u64 },
    /// The search has ended; larger sizes are tried again then, if there are any.
    Done { again_ns: Option<u64> },
}

/// Large datagrams lost since one of their size was acknowledged.
#[derive(Clone, Copy, Debug)]
struct LossRun {
    count: u32,
    /// The least of their sizes.
    least: usize,
    /// When the first of them was sent.
    since_ns: u64,
}

/// A change of the size, for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuChange {
    /// The first search has ended.
    Found,
    /// The path carries less than before.
    Lowered,
    /// The path carries more than before.
    Raised,
}

impl PathMtu {
    pub(crate) fn new(base: usize, most: usize) -> PathMtu {
        let search = if base == most { Search::Done { again_ns: None } } else { Search::Probe { lost: 0 } };
        let announced = if base == most { base } else { 0 };
        PathMtu { base, most, size: base, too_large: most + 1, search, lost: None, announced }
    }

    /// Returns the size that the path is known to carry.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the size to probe now.
    #[inline]
    pub(crate) fn probe(&self) -> Option<usize> {
        match self.search {
            Search::Probe { .. } => self.next_size(),
            _ => None,
        }
    }

    /// Returns the next size of the search: the typical one, the largest, then halfway between what
    /// passes and what does not.
    fn next_size(&self) -> Option<usize> {
        let is_open = |size: &usize| (self.size + 1..self.too_large.min(self.most + 1)).contains(size);
        if is_open(&TYPICAL) {
            return Some(TYPICAL);
        }
        if is_open(&self.most) {
            return Some(self.most);
        }
        let open = || SIZES.into_iter().filter(is_open);
        open().nth(open().count() / 2)
    }

    /// Notes that a probe has left; it counts as lost at `until_ns`.
    pub(crate) fn note_probe(&mut self, number: u64, size: usize, sent_ns: u64, until_ns: u64) {
        if let Search::Probe { lost } = self.search {
            self.search = Search::Wait { size, lost, number, sent_ns, until_ns };
        }
    }

    /// Returns the number of lost probes of the size that is tried: the next one waits longer.
    pub(crate) fn probes_lost(&self) -> u32 {
        match self.search {
            Search::Probe { lost } | Search::Wait { lost, .. } => lost,
            Search::Done { .. } => 0,
        }
    }

    /// Notes that the peer has received a probe of this size; returns whether the size has grown.
    pub(crate) fn note_answer(&mut self, size: usize) -> bool {
        if size <= self.size || size > self.most {
            return false;
        }
        self.size = size;
        self.too_large = self.too_large.max(size + 1);
        self.search = Search::Probe { lost: 0 };
        true
    }

    /// Notes that the system has refused a probe with this number; returns whether it was one.
    pub(crate) fn note_refused_probe(&mut self, number: u64) -> bool {
        match self.search {
            Search::Wait { size, number: probe, .. } if probe == number => {
                self.too_large = size;
                self.search = Search::Probe { lost: 0 };
                true
            }
            _ => false,
        }
    }

    /// Returns when [`PathMtu::handle_timeout`] has something to do.
    #[inline]
    pub(crate) fn next_timeout_ns(&self) -> Option<u64> {
        match self.search {
            Search::Probe { .. } => None,
            Search::Wait { until_ns, .. } => Some(until_ns),
            Search::Done { again_ns } => again_ns,
        }
    }

    /// Declares a probe lost, or begins another search. A loss means nothing about a size if the
    /// peer was silent since the probe, that is, since `heard_ns`. Returns whether a probe was
    /// lost.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64, heard_ns: u64) -> bool {
        match self.search {
            Search::Wait { size, lost, sent_ns, until_ns, .. } if until_ns <= now_ns => {
                let lost = lost + u32::from(heard_ns > sent_ns);
                self.search = Search::Probe { lost: lost % MTU_PROBES_MAX };
                if lost == MTU_PROBES_MAX {
                    self.too_large = self.too_large.min(size);
                }
                true
            }
            Search::Done { again_ns: Some(again_ns) } if again_ns <= now_ns => {
                self.too_large = self.most + 1;
                self.search = Search::Probe { lost: 0 };
                false
            }
            _ => false,
        }
    }

    /// Ends the search if no size is left to try; returns the change since the last one.
    pub(crate) fn finish(&mut self, now_ns: u64) -> Option<MtuChange> {
        if !matches!(self.search, Search::Probe { .. }) || self.next_size().is_some() {
            return None;
        }
        let again_ns = (self.size < self.most).then(|| now_ns.saturating_add(MTU_RAISE_NS));
        self.search = Search::Done { again_ns };
        let before = std::mem::replace(&mut self.announced, self.size);
        match self.size {
            _ if before == 0 => Some(MtuChange::Found),
            size if size < before => Some(MtuChange::Lowered),
            size if size > before => Some(MtuChange::Raised),
            _ => None,
        }
    }

    /// Notes that a datagram has arrived.
    #[inline]
    pub(crate) fn note_acked(&mut self, size: usize, sent_ns: u64) {
        if self.lost.is_some_and(|run| size >= run.least && sent_ns >= run.since_ns) {
            self.lost = None;
        }
    }

    /// Notes that a datagram was lost while later ones arrived; returns whether the path seems to
    /// have become narrower (RFC 8899 4.3).
    pub(crate) fn note_lost(&mut self, size: usize, sent_ns: u64, rtt_ns: u64) -> bool {
        if size <= self.base {
            return false;
        }
        let run = self.lost.get_or_insert(LossRun { count: 0, least: size, since_ns: sent_ns });
        run.count += 1;
        run.least = run.least.min(size);
        run.count >= BLACK_HOLE_LOSSES && sent_ns >= run.since_ns.saturating_add(rtt_ns)
    }

    /// Returns whether large datagrams are suspected after this many probe timeouts in a row.
    pub(crate) fn is_suspect(&self, timeouts: u32) -> bool {
        timeouts >= BLACK_HOLE_TIMEOUTS && self.size > self.base
    }

    /// Falls back to the size that every path carries, and searches again, below `too_large`.
    /// Returns whether the size has changed.
    pub(crate) fn lower(&mut self, too_large: usize) -> bool {
        self.lost = None;
        if self.size == self.base {
            return false;
        }
        self.size = self.base;
        self.too_large = too_large;
        self.search = Search::Probe { lost: 0 };
        true
    }

    /// Returns a bound for [`PathMtu::lower`] that rules out no size up to the present one.
    pub(crate) fn above_size(&self) -> usize {
        self.size + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a path that carries up to `path` bytes; returns the size, the change and the
    /// number of probes.
    fn search(mtu: &mut PathMtu, path: usize) -> (usize, Option<MtuChange>, u32) {
        for probes in 0..100 {
            if let Some(change) = mtu.finish(0) {
                return (mtu.size(), Some(change), probes);
            }
            let Some(size) = mtu.probe() else { return (mtu.size(), None, probes) };
            mtu.note_probe(u64::from(probes), size, 0, 10);
            if size <= path {
                assert!(mtu.note_answer(size));
            } else {
                assert!(mtu.handle_timeout(10, 5));
            }
        }
        panic!("the search does not end");
    }

    #[test]
    fn usual_mtus_are_found() {
        for (mtu, headers, found) in [
            (1_280, 48, 1_232),
            (1_280, 28, 1_252),
            (1_420, 48, 1_372),
            (1_420, 28, 1_392),
            (1_450, 48, 1_402),
            (1_460, 28, 1_432),
            (1_492, 48, 1_444),
            (1_500, 48, 1_452),
            (1_500, 28, 1_472),
            (9_000, 48, 8_952),
            (9_001, 28, 8_972),
        ] {
            let mut path = PathMtu::new(1_232, 8_972);
            let (size, change, probes) = search(&mut path, mtu - headers);
            assert_eq!((size, change), (found, Some(MtuChange::Found)), "{mtu}");
            assert!(probes <= 24, "{probes} probes for {mtu}");
        }
    }

    #[test]
    fn what_the_system_refuses_is_not_tried_again() {
        let mut mtu = PathMtu::new(1_232, 8_972);
        mtu.note_probe(1, 1_452, 0, 10);
        assert!(!mtu.note_refused_probe(2) && mtu.note_refused_probe(1));
        let mut tried = Vec::new();
        while let Some(size) = mtu.probe() {
            tried.push(size);
            mtu.note_probe(2, size, 0, 10);
            assert!(mtu.note_refused_probe(2));
        }
        assert!(tried.iter().all(|size| *size < 1_452), "{tried:?}");
        assert_eq!((mtu.finish(0), mtu.size()), (Some(MtuChange::Found), 1_232));
    }

    #[test]
    fn probes_that_are_lost_with_everything_else_say_nothing() {
        let mut mtu = PathMtu::new(1_232, 8_972);
        for at_ns in 0..20 {
            mtu.note_probe(at_ns, 1_452, at_ns, at_ns + 1);
            assert!(mtu.handle_timeout(at_ns + 1, 0));
            assert_eq!(mtu.probe(), Some(1_452));
        }
    }

    #[test]
    fn larger_sizes_are_tried_again_by_a_timer() {
        let mut mtu = PathMtu::new(1_232, 8_972);
        assert_eq!(search(&mut mtu, 1_300).0, 1_252);
        assert_eq!((mtu.probe(), mtu.next_timeout_ns()), (None, Some(MTU_RAISE_NS)));
        assert!(!mtu.handle_timeout(MTU_RAISE_NS, MTU_RAISE_NS));
        assert_eq!(search(&mut mtu, 8_952), (8_952, Some(MtuChange::Raised), 7));
        assert!(mtu.lower(8_952));
        assert_eq!(search(&mut mtu, 1_500).1, Some(MtuChange::Lowered));
        assert!(mtu.lower(mtu.above_size()));
        assert_eq!(search(&mut mtu, 1_500).1, None, "the same as before");
    }

    // RFC 8899 4.3.
    #[test]
    fn losses_of_large_datagrams_only_are_a_black_hole() {
        let mut mtu = PathMtu::new(1_232, 1_452);
        assert!(!(0..9).any(|at| mtu.note_lost(1_232, at, 1)), "small ones");
        assert!(!(0..9).any(|at| mtu.note_lost(1_400, at, 10)), "one burst");
        mtu.note_acked(1_300, 9);
        assert!(mtu.note_lost(1_452, 10, 10), "smaller ones arrive");
        mtu.note_acked(1_400, 11);
        assert!(!mtu.note_lost(1_452, 30, 10), "one of the size has arrived");
    }
}
