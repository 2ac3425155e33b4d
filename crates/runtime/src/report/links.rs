//! Links to the other nodes of a cluster, and handshakes.

use std::collections::BTreeMap;

use serde::Serialize;
use telemetry::{Family, Kind, MetricUnit, record};

static DATAGRAMS: Family = Family {
    name: "link_datagrams",
    kind: Kind::Counter,
    unit: MetricUnit::Own,
    help: "Datagrams of links to other nodes, by what became of them.",
    outer_labels: &[],
    label: Some("result"),
    known: &[],
};

record! {
    /// The links of a node to other nodes of its cluster, all together since its start.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct LinksReport [] {
        /// Links to other nodes now.
        pub links: u64 = gauge("links"),
        /// Links that began.
        pub started: u64 = counter("links_started"),
        /// Links that ended because the other node was silent for too long, or had ended them.
        pub dead: u64 = counter("links_dead"),
        /// Times at which another node was suspect: it was silent for 75 ms to 0.3 s.
        pub suspected: u64 = counter("links_suspected"),
        /// Times at which this process did not run for 0.1 s or more: too little processor time, or
        /// it was stopped.
        pub stalls: u64 = counter("process_stalls"),
        /// Sum of these times, in milliseconds.
        pub stalled_ms: u64 = counter("process_stalled_milliseconds"),
        /// Datagrams sent.
        pub datagrams_sent: u64 = part(DATAGRAMS, "sent"),
        /// Authentic datagrams received.
        pub datagrams_received: u64 = part(DATAGRAMS, "received"),
        /// Datagrams sent that count as lost.
        pub datagrams_lost: u64 = part(DATAGRAMS, "lost"),
        /// Bytes of datagrams sent over links.
        pub bytes_sent: u64 = counter("link_bytes_sent"),
        /// Bytes of authentic datagrams received over links.
        pub bytes_received: u64 = counter("link_bytes_received"),
        /// Parts of messages sent again over links.
        pub blocks_retransmitted: u64 = counter("link_blocks_retransmitted"),
        /// The least path MTU of all links now, in bytes of IP packets; 0 without links.
        pub mtu_least: u64 = level("link_mtu_least"),
        /// Times that links began to send larger datagrams, because the path carries them.
        pub mtu_raised: u64 = counter("link_mtu_raised"),
        /// Times that links fell back to small datagrams, because the path no longer carries
        /// larger ones, or seemed not to.
        pub mtu_lowered: u64 = counter("link_mtu_lowered"),
        /// Datagrams that the system refused as too large for the way out. Their messages left in
        /// smaller ones.
        pub datagrams_too_large: u64 = counter("link_datagrams_too_large"),
        /// Received datagrams refused without effect, by reason: `forged` (a wrong tag),
        /// `replayed`, `truncated`, `oversized`, `version`, `phase` (of an unknown key),
        /// `connection` (of an earlier link), `dead` (after the link's end), `unknown_peer` (of no
        /// link).
        pub refused: BTreeMap<&'static str, u64> = counter("link_datagrams_refused", reason),
        /// Messages of other nodes refused: malformed, not the sender's to send, or about flows of
        /// a dispatcher's former process.
        pub messages_refused: u64 = counter("link_messages_refused"),
        /// Messages and packets that the dispatcher has passed on between units that cannot reach
        /// each other.
        pub messages_relayed: u64 = counter("link_messages_relayed"),
        /// Handshakes with other nodes, by result: `connected` and `failed` of those that this node
        /// began, `no_room` of those that it did not begin because too many nodes are named;
        /// `accepted`, `refused` and `too_many` of the others; `not_taken`, times at which no
        /// connection could be taken, as for want of descriptors.
        pub handshakes: BTreeMap<&'static str, u64> = counter("handshakes", result),
        /// Entries of the cluster's store that were passed over: no unit's, or without room.
        pub store_entries_refused: u64 = counter("store_entries_refused"),
        /// End of the node's own certificate, or of its authority if that is earlier, in seconds
        /// since 1970.
        pub certificate_expiry_seconds: Option<u64> = gauge("certificate_expiry_seconds"),
    }
}
