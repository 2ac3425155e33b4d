//! Links to other nodes, as resources of the API.

use std::collections::BTreeMap;

use cluster::LinkInfo;
use runtime::report::LinksReport;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A link to another node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Link)]
pub struct LinkResource {
    /// Name of the other node, as in its certificate.
    pub node: String,
    /// Address of its latest authentic datagram.
    pub address: String,
    /// Smoothed round-trip time.
    pub rtt_seconds: f64,
    /// Length of IP packets to the node, at most, as far as the path is known to carry them.
    #[serde(default)]
    pub mtu: u64,
    /// Times that the path no longer carried packets as large as before, or seemed not to.
    #[serde(default)]
    pub mtu_lowered: u64,
    /// Times that packets became larger because the path carries them.
    #[serde(default)]
    pub mtu_raised: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Authentic datagrams received.
    pub datagrams_received: u64,
    /// Datagrams sent that count as lost.
    pub datagrams_lost: u64,
    /// Bytes of datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of authentic datagrams received.
    pub bytes_received: u64,
    /// Parts of messages sent again.
    pub blocks_retransmitted: u64,
    /// Times that a message waited because the send buffer was full.
    pub messages_waited: u64,
    /// Received datagrams refused without effect, by reason: `forged`, `replayed`, `truncated`,
    /// `oversized`, `version`, `phase`, `connection`, `dead`. Reasons without datagrams are left
    /// out.
    pub refused: BTreeMap<String, u64>,
}

/// All links since the start, also ended ones, and handshakes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = LinkTotals)]
pub struct LinkTotalsResource {
    /// Links now.
    pub links: u64,
    /// Links that began.
    pub started: u64,
    /// Links that ended because the other node was silent.
    pub dead: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Authentic datagrams received.
    pub datagrams_received: u64,
    /// Datagrams sent that count as lost.
    pub datagrams_lost: u64,
    /// Received datagrams refused without effect, by reason: those of a link, and `unknown_peer`
    /// (of no link).
    pub refused: BTreeMap<String, u64>,
    /// Messages of other nodes refused: malformed, not the sender's to send, or about flows of a
    /// dispatcher's former process.
    pub messages_refused: u64,
    /// Messages and packets passed on between units that cannot reach each other.
    pub messages_relayed: u64,
    /// Handshakes with other nodes, by result: `connected` and `failed` of those that this node
    /// began, `accepted`, `refused` and `too_many` of the others.
    pub handshakes: BTreeMap<String, u64>,
    /// End of this node's certificate, or of its authority if that is earlier, in seconds since
    /// 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expiry_seconds: Option<u64>,
}

impl From<LinkInfo> for LinkResource {
    fn from(info: LinkInfo) -> LinkResource {
        let LinkInfo { peer, address, rtt_ns, mtu, counters } = info;
        let refused = counters.refused.by_reason().into_iter().filter(|(_, count)| *count > 0);
        LinkResource {
            node: peer,
            address: address.to_string(),
            rtt_seconds: rtt_ns as f64 / 1e9,
            mtu: mtu as u64,
            mtu_lowered: counters.mtu_lowered,
            mtu_raised: counters.mtu_raised,
            datagrams_sent: counters.datagrams_sent,
            datagrams_received: counters.datagrams_received,
            datagrams_lost: counters.datagrams_lost,
            bytes_sent: counters.datagram_bytes_sent,
            bytes_received: counters.datagram_bytes_received,
            blocks_retransmitted: counters.blocks_retransmitted,
            messages_waited: counters.messages_full,
            refused: refused.map(|(reason, count)| (reason.to_owned(), count)).collect(),
        }
    }
}

impl From<LinksReport> for LinkTotalsResource {
    fn from(report: LinksReport) -> LinkTotalsResource {
        let named = |counts: BTreeMap<&str, u64>| {
            counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
        };
        LinkTotalsResource {
            links: report.links,
            started: report.started,
            dead: report.dead,
            datagrams_sent: report.datagrams_sent,
            datagrams_received: report.datagrams_received,
            datagrams_lost: report.datagrams_lost,
            refused: named(report.refused),
            messages_refused: report.messages_refused,
            messages_relayed: report.messages_relayed,
            handshakes: named(report.handshakes),
            certificate_expiry_seconds: report.certificate_expiry_seconds,
        }
    }
}
