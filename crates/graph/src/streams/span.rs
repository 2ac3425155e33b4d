//! Spans of streams.

/// The span of a segment in its stream; its FIN counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub from: u64,
    pub until: u64,
}

impl Span {
    /// The span of bytes that a host accepts at once or never: nothing replaces them.
    pub const AT_ONCE: Span = Span { from: 0, until: u64::MAX };
}
