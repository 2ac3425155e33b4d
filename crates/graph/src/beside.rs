//! Running state functions of several functions in parallel: the runner, and the threshold (B18).

/// A piece of work.
pub type Piece<'a> = dyn FnMut() + Send + 'a;

/// Runs two pieces of work in parallel. A graph has no threads of its own: it gets a runner.
pub trait Beside: Send {
    /// Runs both, once each, and returns when both are done. `here` runs on this core. `there` runs
    /// on another core at the same time or, if none is free, before or after `here`; the result is
    /// the same.
    fn run(&mut self, here: &mut Piece<'_>, there: &mut Piece<'_>);
}

/// Minimum work of the shorter side for a group of packets to run in parallel: about twice the cost
/// of handing a group over and getting it back, whatever its size (`rivulet lab run Y3`).
pub const GROUP_NS: u64 = 2_000;

/// The same for each packet of the group: the other core must fetch it and a copy of its flow's
/// states.
pub const PACKET_NS: u64 = 250;

/// The runner of state functions in parallel, and its threshold.
pub struct SideBySide {
    /// The runner.
    pub runner: Box<dyn Beside>,
    /// A clock in nanoseconds that measures them. It may begin at any value.
    pub clock_ns: fn() -> u64,
    /// Minimum work of the shorter side for a group of packets: [`GROUP_NS`], unless there is a
    /// reason for another value.
    pub group_ns: u64,
    /// The same for each packet of it: [`PACKET_NS`]. With 0 for both, they run in parallel
    /// whenever that is allowed.
    pub packet_ns: u64,
}
