//! What a chain is given to run state functions of several functions side by side: who does it, and
//! when it is worth it (B18).

/// A piece of work.
pub type Piece<'a> = dyn FnMut() + Send + 'a;

/// Runs two pieces of work beside each other. A chain knows no threads: it is given one who does.
pub trait Beside: Send {
    /// Runs both, once each, `here` on this core, and returns when both are through. `there` runs
    /// on another core at the same time, or, if none is free, before or behind `here`: that is the
    /// same.
    fn run(&mut self, here: &mut Piece<'_>, there: &mut Piece<'_>);
}

/// What the shorter side has to take for a group of packets, in nanoseconds, for two sides to be
/// worth it: some twice what it takes to hand a group over and to get it back, whatever is in it
/// (`rivulet lab run Y3`).
pub const GROUP_NS: u64 = 2_000;

/// The same for each packet of the group, which the other core has to fetch, with a copy of its
/// flow's states.
pub const PACKET_NS: u64 = 250;

/// How state functions run side by side, and when.
pub struct SideBySide {
    /// Who runs them.
    pub runner: Box<dyn Beside>,
    /// A clock in nanoseconds, with which is measured how long they take. It may begin anywhere.
    pub clock_ns: fn() -> u64,
    /// What the shorter side has to take for a group of packets, in nanoseconds: [`GROUP_NS`],
    /// unless there is a reason for another.
    pub group_ns: u64,
    /// And for each packet of it: [`PACKET_NS`]. With 0 for both, they run side by side whenever
    /// that is allowed.
    pub packet_ns: u64,
}
