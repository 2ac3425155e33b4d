//! Joining packets to their flows.

use nf::Connection;
use nf::record::RecordHeader;
use packet::{Meta, PacketClass};

use super::Timeouts;

/// The timeout after this packet is the same as after the flow's previous one, which may still
/// change it while its group is processed.
pub(crate) const AS_LONG_AS_BEFORE: u32 = nf::KEEP_MS_MAX + 1;

/// The way packets join their flows in a graph.
#[derive(Clone, Copy)]
pub(crate) struct Joining {
    /// The timeouts of flows.
    pub timeouts: Timeouts,
    /// True if functions, not the graph, set the timeouts.
    pub keeps_flows: bool,
    /// True if any function has attributes. Otherwise no flow has tags, and the second line of its
    /// record is not touched.
    pub tags: bool,
    /// True if packets leave with keys of their own flow, which can be its alias.
    pub has_aliases: bool,
}

impl Joining {
    /// Gives the packet its number in the flow and the flow's tags, and updates the connection.
    /// Returns true if the connection changed.
    #[inline]
    pub fn join(&self, meta: &mut Meta, header: &mut RecordHeader) -> bool {
        if meta.class == PacketClass::Whole && meta.protocol == header.key.protocol {
            let connection =
                header.connection.after_whole(meta.protocol, meta.tcp_flags, meta.transit.direction);
            return self.join_whole(meta, header, connection, 0);
        }
        let connection = header.connection.after(meta, meta.transit.direction);
        self.number(meta, header, connection);
        let is_of_flow = meta.protocol == header.key.protocol;
        // An ICMP error about the flow does not keep it (RFC 5508 REQ-10).
        meta.transit.keep_ms = if is_of_flow { self.keep_ms(meta, header, connection) } else { 0 };
        move_on(header, connection)
    }

    /// Same for a whole packet of the flow's own protocol, with the connection after it. `wish_ms`:
    /// the timeout set by functions that need not see the packet. Returns true if the connection
    /// changed.
    #[inline(always)]
    pub fn join_whole(
        &self,
        meta: &mut Meta,
        header: &mut RecordHeader,
        connection: Connection,
        wish_ms: u32,
    ) -> bool {
        self.number(meta, header, connection);
        meta.transit.keep_ms =
            if self.keeps_flows { wish_ms } else { self.keep_ms(meta, header, connection) };
        move_on(header, connection)
    }

    #[inline(always)]
    fn number(&self, meta: &mut Meta, header: &mut RecordHeader, connection: Connection) {
        header.seq += 1;
        meta.transit.seq = header.seq;
        meta.transit.phase = connection.phase();
        meta.transit.tags = if self.tags { header.tags } else { 0 };
        meta.transit.relearn_alias = false;
    }

    /// Returns the timeout after a packet that brings the flow's connection to this; 0 if functions
    /// set it.
    #[inline(always)]
    fn keep_ms(&self, meta: &Meta, header: &RecordHeader, connection: Connection) -> u32 {
        if self.keeps_flows {
            0
        } else if connection == header.connection && header.timeout_ms != 0 {
            AS_LONG_AS_BEFORE
        } else {
            self.timeouts.of(meta.protocol, connection)
        }
    }
}

/// Sets the connection. Returns true if it changed.
#[inline(always)]
fn move_on(header: &mut RecordHeader, connection: Connection) -> bool {
    let changed = header.connection != connection;
    header.connection = connection;
    changed
}
