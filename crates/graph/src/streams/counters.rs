//! Counters of stream reassembly.

/// Counters of stream reassembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Bytes delivered in order.
    pub bytes: u64,
    /// Bytes copied to an out-of-order queue.
    pub bytes_out_of_order: u64,
    /// Bytes retransmitted after delivery.
    pub bytes_retransmitted: u64,
    /// Gaps announced.
    pub gaps: u64,
    /// Bytes missing in them.
    pub bytes_missing: u64,
    /// Out-of-order segments without memory to keep them: a gap, or inline they were dropped.
    pub gave_up: u64,
    /// Of these and of `unrecorded`, those whose stream or source held its share.
    pub over_share: u64,
    /// Streams of which something that was kept gave way to others.
    pub gave_way: u64,
    /// Segments that differed from others that they overlapped: an attempt to evade, or a broken
    /// host.
    pub differing: u64,
    /// Segments and acknowledgements too far from where their stream stands.
    pub out_of_window: u64,
    /// Resets and SYNs that no host would heed (RFC 5961 3 and 4).
    pub refused: u64,
    /// Segments with a wrong checksum, in a direction that began with a right one.
    pub damaged: u64,
    /// Segments that hosts ignore for their IP header, a time to live that ends before the host, or
    /// an MD5 signature that was not agreed on.
    pub ignored: u64,
    /// Segments with a timestamp that is too old (RFC 7323 5).
    pub old: u64,
    /// Segments beyond the window that their receiver has offered.
    pub beyond_window: u64,
    /// Inline, segments without memory to remember them.
    pub unrecorded: u64,
    /// Inline, packets whose TTL was raised.
    pub raised: u64,
    /// Inline, segments whose bytes were replaced by those sent first.
    pub replaced: u64,
    /// Urgent bytes, which hosts read outside the stream.
    pub urgent: u64,
    /// Segments with bytes or an end that count only once they are acknowledged: a SYN's, those of
    /// damaged segments, and of those that acknowledge what was not sent.
    pub doubtful: u64,
    /// Times that such bytes were forgotten for lack of memory.
    pub doubtful_lost: u64,
    /// Fragments of datagrams.
    pub fragments: u64,
    /// Datagrams that could not be put together from them: they overlap, or contradict each other;
    /// they took too long; or they gave way to others. Bytes of a stream that were in them are a
    /// gap.
    pub fragments_lost: u64,
}

impl StreamCounters {
    /// Returns all counters with their names in reports.
    pub fn by_name(&self) -> [(&'static str, u64); 23] {
        [
            ("bytes", self.bytes),
            ("bytes_out_of_order", self.bytes_out_of_order),
            ("bytes_retransmitted", self.bytes_retransmitted),
            ("gaps", self.gaps),
            ("bytes_missing", self.bytes_missing),
            ("gave_up", self.gave_up),
            ("over_share", self.over_share),
            ("gave_way", self.gave_way),
            ("differing", self.differing),
            ("out_of_window", self.out_of_window),
            ("refused", self.refused),
            ("damaged", self.damaged),
            ("ignored", self.ignored),
            ("old", self.old),
            ("beyond_window", self.beyond_window),
            ("unrecorded", self.unrecorded),
            ("raised", self.raised),
            ("replaced", self.replaced),
            ("urgent", self.urgent),
            ("doubtful", self.doubtful),
            ("doubtful_lost", self.doubtful_lost),
            ("fragments", self.fragments),
            ("fragments_lost", self.fragments_lost),
        ]
    }
}
