//! Spans of streams.

/// The span of a segment in its stream; its FIN counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub from: u64,
    pub until: u64,
}

impl Span {
    /// The span of what a host takes at once if it takes it at all: nothing replaces it.
    pub const AT_ONCE: Span = Span { from: 0, until: u64::MAX };
}
