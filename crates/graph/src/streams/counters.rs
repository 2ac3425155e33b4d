//! Counters of stream reassembly.

use serde::Serialize;
use telemetry::record;

record! {
    /// Counters of stream reassembly.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct StreamCounters [] {
        /// Bytes delivered to functions, in order.
        pub bytes: u64 = counter("stream_bytes"),
        /// Bytes that arrived out of order and waited.
        pub bytes_out_of_order: u64 = counter("stream_bytes_out_of_order"),
        /// Bytes retransmitted after delivery.
        pub bytes_retransmitted: u64 = counter("stream_bytes_retransmitted"),
        /// Gaps: the receiver has their bytes, but they were not seen; or see `gave_up`.
        pub gaps: u64 = counter("stream_gaps"),
        /// Bytes missing in gaps.
        pub bytes_missing: u64 = counter("stream_bytes_missing"),
        /// Out-of-order segments without memory: a gap, or inline a drop.
        pub gave_up: u64 = counter("stream_segments_without_memory"),
        /// Segments of `gave_up` and `unrecorded` with a connection or source at its share.
        pub over_share: u64 = counter("stream_segments_over_share"),
        /// Streams that lost kept data to others.
        pub gave_way: u64 = counter("streams_displaced"),
        /// Segments that differed from others at the same place: an evasion attempt, or a broken
        /// host.
        pub differing: u64 = counter("stream_segments_differing"),
        /// Segments and acknowledgements too far from their stream; ignored.
        pub out_of_window: u64 = counter("stream_segments_out_of_window"),
        /// Resets and SYNs that no host would heed; ignored (RFC 5961 3 and 4).
        pub refused: u64 = counter("stream_segments_refused"),
        /// Segments with a wrong checksum, in a direction that began with a right one.
        pub damaged: u64 = counter("stream_segments_damaged"),
        /// Segments that hosts ignore for their IP header, a time to live that ends before the
        /// host, or an MD5 signature that was not agreed on.
        pub ignored: u64 = counter("stream_segments_ignored"),
        /// Segments with a timestamp that is too old (RFC 7323 5).
        pub old: u64 = counter("stream_segments_old"),
        /// Segments beyond the window that their receiver has offered.
        pub beyond_window: u64 = counter("stream_segments_beyond_window"),
        /// Inline, segments without memory to remember them.
        pub unrecorded: u64 = counter("stream_segments_unrecorded"),
        /// Inline, packets with a raised TTL (`low_ttl`).
        pub raised: u64 = counter("stream_packets_ttl_raised"),
        /// Inline, segments restored to the bytes first sent (`differing`).
        pub replaced: u64 = counter("stream_segments_replaced"),
        /// Urgent bytes, which hosts read outside the stream.
        pub urgent: u64 = counter("stream_bytes_urgent"),
        /// Segments that hosts may ignore: damaged, with acknowledgments of unsent bytes, or SYNs
        /// with bytes. Their bytes count once acknowledged.
        pub doubtful: u64 = counter("stream_segments_doubtful"),
        /// Doubtful segments without memory.
        pub doubtful_lost: u64 = counter("stream_segments_doubtful_lost"),
        /// Fragments of datagrams that functions inspect.
        pub fragments: u64 = counter("stream_fragments"),
        /// Datagrams that could not be reassembled (overlaps, contradictions, timeout, displaced):
        /// a gap.
        pub fragments_lost: u64 = counter("stream_datagrams_lost"),
    }
}
