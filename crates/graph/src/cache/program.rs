//! Programs: the steps of packets on the fast path. The values are each flow's own, so few programs
//! serve all flows (B5, B6).

use nf::Recording;
use nf::record::CacheLines;
use packet::{DropReason, OuterMatches, Side, TAG_LEN, Tag, TagKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::topology::{EdgeId, FilterReads, NfSet};

mod commuting;
mod draft;

pub(crate) use draft::Draft;

/// Maximum number of programs of a graph. A recorded packet that would need another one becomes no
/// rule.
pub(crate) const PROGRAMS_MAX: usize = 1024;

/// The number of a program, with four bits: its rules are checked before every packet; its packets
/// form groups of their own; it does not take every packet; it was predicted, not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub(crate) struct ProgramId(u16);

impl ProgramId {
    const WATCHED: u16 = 1 << 15;
    const APART: u16 = 1 << 14;
    const LIMITED: u16 = 1 << 13;
    const PREDICTED: u16 = 1 << 12;

    /// All bits other than its place among programs.
    const FLAGS: u16 = ProgramId::WATCHED | ProgramId::APART | ProgramId::LIMITED | ProgramId::PREDICTED;

    /// Returns true if packets follow it until the rule is changed.
    #[inline(always)]
    pub fn is_unwatched(self) -> bool {
        self.0 & ProgramId::WATCHED == 0
    }

    /// Returns true if it does not take every packet: a packet may be in a tunnel, be too long to
    /// be put into one, lack room for tags, or have other outer headers than those removed.
    #[inline(always)]
    pub fn is_limited(self) -> bool {
        self.0 & ProgramId::LIMITED != 0
    }

    /// Returns the same program as a predicted one.
    pub fn predicted(self) -> ProgramId {
        ProgramId(self.0 | ProgramId::PREDICTED)
    }

    /// Returns true if it was predicted: then it is predicted again after each command.
    #[inline(always)]
    pub fn is_predicted(self) -> bool {
        self.0 & ProgramId::PREDICTED != 0
    }

    /// Returns true if its rules have events: recorded ones have all events, predicted ones only
    /// those caused by packets.
    #[inline]
    pub fn has_events(self) -> bool {
        !self.is_predicted() || !self.is_unwatched()
    }

    fn index(self) -> usize {
        usize::from(self.0 & !ProgramId::FLAGS)
    }
}

/// The path of a packet of a known flow: a program, or one of these. They have numbers that no
/// program has, because they are compared for every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub(crate) struct Path(u16);

impl Path {
    /// The packet takes the slow path.
    pub const SLOW: Path = Path(u16::MAX);
    /// The packet takes the slow path as a group of its own, and is recorded.
    pub const RECORD: Path = Path(u16::MAX - 1);
    /// The rule must be checked first: a command, or any packet, may have ended it.
    pub const REVALIDATE: Path = Path(u16::MAX - 2);
    /// The packet takes the slow path, unless functions predict what they would do to it.
    pub const PREDICT: Path = Path(u16::MAX - 3);

    /// Returns the path along a program.
    #[inline(always)]
    pub const fn fast(program: ProgramId) -> Path {
        Path(program.0)
    }

    /// Returns the program of the path, if it has one.
    #[inline(always)]
    pub fn program(self) -> Option<ProgramId> {
        (self.0 < Path::PREDICT.0).then_some(ProgramId(self.0))
    }

    /// Returns true if such packets may be in one group with others on the slow path or on other
    /// programs. Functions that see every packet, sets and meters may depend on the order of
    /// packets.
    #[inline(always)]
    pub fn mixes(self) -> bool {
        self == Path::SLOW || self.is_alone_to_itself()
    }

    /// Returns true if such a packet affects only its own flow.
    #[inline(always)]
    pub fn is_alone_to_itself(self) -> bool {
        self.0 & (ProgramId::WATCHED | ProgramId::APART) == 0
    }

    /// Returns true if it is a program without a check before every packet: the next packet may
    /// have it, too.
    #[inline(always)]
    pub fn is_fast(self) -> bool {
        self.program().is_some_and(ProgramId::is_unwatched)
    }

    /// Returns true if it is a program without a check before every packet that takes all packets.
    #[inline(always)]
    pub fn is_plain_fast(self) -> bool {
        self.0 & (ProgramId::WATCHED | ProgramId::LIMITED) == 0
    }
}

const _: () = assert!(PROGRAMS_MAX < (ProgramId::PREDICTED - 4) as usize, "paths have numbers of their own");

/// Steps in the order in which packets take them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// The side that the packets entered by.
    side: Side,
    steps: Vec<Step>,
    /// The lines of flows' records that most packets touch.
    lines: CacheLines,
    /// True if any packet may cause an event.
    watched: bool,
    /// True if the order of packets of several flows matters.
    apart: bool,
    /// True if it does not take every packet; see [`ProgramId::is_limited`].
    limited: bool,
    /// The outer headers and tags that packets must have.
    covers: OuterMatches,
}

/// A step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The function only counts the packet.
    Pass(usize),
    /// The next n steps run state functions that commute (B18).
    Together(usize),
    /// These state functions of the function run.
    Functions(usize, Batch),
    /// The function processes the packet: it cannot be consolidated, or its actions vary.
    Process(usize),
    /// The packet gets this DSCP.
    SetDscp(u8),
    /// The packet gets its new ends.
    Rewrite {
        /// True if the packet still has its original ends: no function that sees every packet came
        /// before.
        known: bool,
    },
    /// The packet gets the outer headers of its rule, from the function.
    Encap(usize),
    /// The packet gets this tag, from the function.
    PushTag(usize, Tag),
    /// The function removes the n bytes of outer headers with which the packet arrived.
    Decap(usize, usize),
    /// The function removes the outermost tag of this kind with which the packet arrived.
    PopTag(usize, TagKind),
    /// The function's layer is left out, because a later function removes it and no function sees
    /// it. The packet counts as that much longer until `Restored` (B14).
    Cancelled(usize, Layer),
    /// The packet counts as that much shorter again.
    Restored(Layer),
    /// The function, which has counted it, drops it.
    Drop(usize, DropReason),
    /// The packet takes this edge, which counts it.
    Edge(EdgeId),
    /// The packet is dropped at the end of its path.
    DropAtEnd(DropReason),
}

/// A layer that one function pushes and another one pops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Outer headers of n bytes.
    Outer(u8),
    /// A VLAN tag or an MPLS label.
    Tag,
}

impl Layer {
    /// Returns its length in bytes.
    pub fn len(self) -> usize {
        match self {
            Layer::Outer(len) => usize::from(len),
            Layer::Tag => TAG_LEN,
        }
    }
}

/// State functions of one function, by their numbers, in order (B18, B19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    ids: [u16; BATCH_MAX],
    len: u8,
}

/// Maximum number of state functions of one function and packet. A packet with more becomes no
/// rule.
const BATCH_MAX: usize = 4;

impl Batch {
    pub fn of(recording: &Recording) -> Option<Batch> {
        let (mut ids, len) = ([0; BATCH_MAX], recording.functions.len());
        for (id, function) in ids.get_mut(..len)?.iter_mut().zip(&recording.functions) {
            *id = function.id;
        }
        Some(Batch { ids, len: len as u8 })
    }

    /// Returns their numbers.
    #[inline]
    pub fn as_slice(&self) -> &[u16] {
        self.ids.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// The programs of a graph.
#[derive(Default)]
pub(crate) struct Programs(Vec<Program>);

impl Programs {
    /// Returns the number of a program, new or known; `None` if there are too many.
    pub fn number(&mut self, program: &Program) -> Option<ProgramId> {
        let index = match self.0.iter().position(|known| known == program) {
            Some(index) => index,
            None if self.0.len() == PROGRAMS_MAX => return None,
            None => {
                self.0.push(program.clone());
                self.0.len() - 1
            }
        };
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let Program { watched, apart, limited, .. } = *program;
        let flags = [
            flag(watched, ProgramId::WATCHED),
            flag(apart, ProgramId::APART),
            flag(limited, ProgramId::LIMITED),
        ];
        Some(ProgramId(flags.iter().fold(index as u16, |id, flag| id | flag)))
    }

    /// Returns the lines of flows' records that packets on a path touch; `all` on the slow path.
    #[inline]
    pub fn lines(&self, path: Path, all: CacheLines) -> CacheLines {
        path.program().and_then(|id| self.0.get(id.index())).map_or(all, |program| program.lines)
    }

    /// Returns the outer headers and tags that packets of a limited program must have.
    #[inline]
    pub fn covers(&self, id: ProgramId) -> Option<&OuterMatches> {
        self.0.get(id.index()).map(|program| &program.covers)
    }

    /// Returns the steps of a program; none if there is no such program.
    #[inline]
    pub fn steps(&self, id: ProgramId) -> &[Step] {
        self.0.get(id.index()).map_or(&[], |program| &program.steps)
    }
}

/// The path of the packet that a program is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenPath<'a> {
    /// The functions.
    pub stages: NfSet,
    /// The edges, in order; none in a graph without branches.
    pub edges: &'a [EdgeId],
    /// The reason to drop it at the end of its path.
    pub drop: Option<DropReason>,
    /// The fields that filters of the graph read and that may differ between packets of a flow.
    pub reads: FilterReads,
}

impl TakenPath<'_> {
    /// The path of all packets of a graph without branches.
    pub const LINE: TakenPath<'static> = TakenPath {
        stages: NfSet::ALL,
        edges: &[],
        drop: None,
        reads: FilterReads { tcp_flags: false, dscp: false, vlan: false, attributes: false },
    };
}
