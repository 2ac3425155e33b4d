//! What a packet takes from its flow, and what the flow takes from it, when it joins.

use nf::record::Header;
use packet::Meta;

use crate::Timeouts;
use crate::flows::AS_LONG_AS_BEFORE;

/// How packets join their flows in a chain.
pub(crate) struct Joining {
    /// How long flows are kept.
    pub timeouts: Timeouts,
    /// Whether the functions, not the chain, say that.
    pub keeps_flows: bool,
    /// Whether any function has attributes: else no flow has tags, and its record's second line is not touched.
    pub tags: bool,
}

impl Joining {
    /// The packet takes its number in the flow and the flow's tags, and moves the connection on.
    #[inline(always)]
    pub fn join(&self, meta: &mut Meta, header: &mut Header) {
        let connection = header.connection.after(meta, meta.direction);
        header.clock += 1;
        meta.clock = header.clock;
        meta.phase = connection.phase();
        meta.tags = if self.tags { header.tags } else { 0 };
        meta.realias = false;
        meta.keep_ms = if self.keeps_flows || meta.protocol != header.key.protocol {
            0 // The functions say it; and an ICMP error about the flow does not keep it (RFC 5508 REQ-10).
        } else if connection == header.connection && header.timeout_ms != 0 {
            AS_LONG_AS_BEFORE
        } else {
            self.timeouts.of(meta.protocol, connection)
        };
        header.connection = connection;
    }
}
