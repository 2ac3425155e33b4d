//! Output of NFs beside packets: alerts, events, flow reports, generated packets. All bounded.

mod attribution;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use packet::{Addr, DropReason, Endpoint, FlowKey, Packet, PacketPool, Side};

use crate::event::Events;

pub use attribution::{EffectCause, EffectsMark};

/// Limit on the alerts, and on the flow reports, held until the runner takes them. Further ones are
/// counted as lost.
pub const EFFECTS_MAX: usize = 65_536;

/// Severity as in Suricata: 1 is the highest.
pub type AlertSeverity = u8;

/// A finding for the operator, written as one EVE JSON line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Arrival time of the packet.
    pub timestamp_ns: u64,
    /// The packet's number in order of arrival.
    pub sequence: u64,
    /// Index of the NF; set by the graph.
    pub stage: u16,
    /// The NF's number for the finding.
    pub signature_id: u32,
    /// Description of the finding.
    pub signature: AlertText,
    /// Class of the finding.
    pub category: AlertText,
    /// Severity, 1 the highest.
    pub severity: AlertSeverity,
    /// The flow's key.
    pub key: FlowKey,
    /// Set if the packet goes from the key's second end to its first.
    pub reversed: bool,
    /// Set by the graph if any NF dropped the packet.
    pub blocked: bool,
    /// Unset if the flow's end raised the alert; `sequence` is then 0.
    pub has_packet: bool,
    /// The port that the packet arrived at; 0 without a packet.
    pub ingress: u16,
    /// Source position of the rule that raised it, such as `x.rules:12`, if known.
    pub place: Option<AlertText>,
    /// Details from NFs that inspect payloads.
    pub detail: Option<Box<AlertDetail>>,
}

/// Details of an alert: the inspected data and the rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertDetail {
    /// The group of the signature's number.
    pub group: u32,
    /// The rule's revision.
    pub revision: u32,
    /// The application protocol by its Suricata name, if known.
    pub application: Option<&'static str>,
    /// Excerpt of the inspected bytes.
    pub payload: Vec<u8>,
    /// Set if they are bytes of a TCP stream, of this packet or earlier ones.
    pub stream: bool,
    /// The rule's metadata: keys and values.
    pub metadata: Option<Arc<[(String, String)]>>,
    /// Totals of the flow, this packet included.
    pub flow: Option<AlertFlow>,
    /// Set if the inspected data goes to the server.
    pub to_server: bool,
    /// Number of the inspected transaction or message in its flow.
    pub transaction: Option<u64>,
    /// The application message: name of the EVE object, such as `http`, and its fields.
    pub message: Option<AlertMessage>,
    /// A NAT's translation of an inside endpoint or host.
    pub translation: Option<Translation>,
}

/// The translation of an inside endpoint or host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// `tcp`, `udp` or `icmp`; `None` for all three.
    pub protocol: Option<&'static str>,
    /// The inside endpoint; port 0 for the whole host.
    pub internal: Endpoint,
    /// The external address.
    pub external: Addr,
    /// First and last external port.
    pub ports: (u16, u16),
}

/// Totals of a flow up to an alert, by direction: to the server, to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertFlow {
    /// Arrival time of its first packet, in nanoseconds.
    pub start_ns: u64,
    /// Packets.
    pub packets: [u64; 2],
    /// Bytes of IP packets.
    pub bytes: [u64; 2],
}

/// An application message that an alert refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMessage {
    /// Name of the EVE object.
    pub kind: &'static str,
    /// Fields, as in an event.
    pub fields: Vec<(&'static str, AlertValue)>,
}

/// The value of a field of [`AlertMessage`]; see [`crate::EventValue`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the event value of its name")]
pub enum AlertValue {
    Number(u64),
    Text(Vec<u8>),
    Flag(bool),
    Json(Vec<u8>),
}

/// Text of the program or of a configuration, shared so that alerts do not allocate.
#[derive(Clone)]
pub enum AlertText {
    /// Text of the program.
    Fixed(&'static str),
    /// Text of a configuration.
    Shared(Arc<str>),
}

impl From<&'static str> for AlertText {
    fn from(text: &'static str) -> AlertText {
        AlertText::Fixed(text)
    }
}

impl From<&Arc<str>> for AlertText {
    fn from(text: &Arc<str>) -> AlertText {
        AlertText::Shared(Arc::clone(text))
    }
}

impl Deref for AlertText {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            AlertText::Fixed(text) => text,
            AlertText::Shared(text) => text,
        }
    }
}

impl AsRef<str> for AlertText {
    fn as_ref(&self) -> &str {
        self
    }
}

impl PartialEq for AlertText {
    fn eq(&self, other: &AlertText) -> bool {
        **self == **other
    }
}

impl Eq for AlertText {}

impl PartialEq<&str> for AlertText {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl fmt::Display for AlertText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for AlertText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A flow's counters for collectors: an IPFIX biflow record (RFC 7011, RFC 5103).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowReport {
    /// Source address of the flow's first packet.
    pub source: Addr,
    /// Destination address of the first packet.
    pub destination: Addr,
    /// Source port, in host order.
    pub source_port: u16,
    /// Destination port, in host order.
    pub destination_port: u16,
    /// Protocol number.
    pub protocol: u8,
    /// IP version, 4 or 6.
    pub version: u8,
    /// Union of TCP flags since the last report, by direction; 0 if not TCP.
    pub tcp_flags: [u8; 2],
    /// ICMP type (high byte) and code of the first packet since the last report, by direction; 0 if
    /// not ICMP.
    pub icmp: [u16; 2],
    /// Outermost VLAN identifier, 0 if none.
    pub vlan: u16,
    /// Time of the first packet since the last report, in nanoseconds, by direction; 0 if none.
    pub first_ns: [u64; 2],
    /// Time of the last packet, likewise.
    pub last_ns: [u64; 2],
    /// Packets since the last report, by direction.
    pub packets: [u64; 2],
    /// Bytes of IP packets since the last report, by direction.
    pub bytes: [u64; 2],
    /// Type-of-service byte of the first packet, by direction; 0 if none.
    pub tos: [u8; 2],
    /// Source and destination of original-direction packets after all rewrites, if these differ
    /// from `source` and `destination`.
    pub translated: Option<(Endpoint, Endpoint)>,
    /// IPFIX flowEndReason: 1 idle timeout, 2 active timeout, 3 end of flow, 4 forced end, 5 lack
    /// of resources.
    pub end_reason: u8,
    /// One in this many flows is reported; 0 and 1 mean all.
    pub sampling: u32,
}

/// A packet generated by an NF.
pub struct GeneratedPacket {
    /// The packet, from the link layer on.
    pub packet: Packet,
    /// Index of the NF.
    pub stage: u16,
    /// The side that it leaves by.
    pub towards: Side,
}

/// Everything that NFs emit beside packets.
#[derive(Default)]
pub struct Effects {
    /// Alerts, oldest first.
    pub alerts: Vec<Alert>,
    /// Events, oldest first.
    pub events: Events,
    /// Flow reports, oldest first.
    pub reports: Vec<FlowReport>,
    /// Generated packets, not sent yet.
    pub generated: Vec<GeneratedPacket>,
    /// Alerts discarded because the buffer was full.
    pub alerts_lost: u64,
    /// Flow reports discarded because the buffer was full.
    pub reports_lost: u64,
    /// Packets not generated for lack of a buffer.
    pub not_generated: u64,
    /// Numbers of the packets behind the flow reports; 0 at a flow's end.
    causes: Vec<u64>,
}

impl Effects {
    /// Takes the output. The counters of lost items stay here.
    pub fn take(&mut self) -> Effects {
        Effects {
            alerts: std::mem::take(&mut self.alerts),
            events: self.events.take(),
            reports: std::mem::take(&mut self.reports),
            causes: std::mem::take(&mut self.causes),
            ..Effects::default()
        }
    }

    /// Checks if any buffer (alerts, events, reports) is more than half full.
    pub fn is_half_full(&self) -> bool {
        self.alerts.len().max(self.reports.len()) > EFFECTS_MAX / 2 || self.events.is_half_full()
    }

    /// Sorts the flow reports of a group, from number `first` on, by packet. Reports of one packet
    /// keep their order.
    pub fn put_reports_in_order(&mut self, first: usize) {
        let (Some(reports), Some(causes)) = (self.reports.get_mut(first..), self.causes.get_mut(first..))
        else {
            return;
        };
        // Insertion sort, in place: a group has few reports, and each NF's are in order.
        for end in 1..reports.len().min(causes.len()) {
            let mut at = end;
            while at > 0 && causes[at - 1] > causes[at] {
                causes.swap(at - 1, at);
                reports.swap(at - 1, at);
                at -= 1;
            }
        }
    }

    /// Sorts a group's alerts and events, from these numbers on, by packet and NF, so that the
    /// output does not depend on batching. An alert precedes events of its packet and NF.
    pub fn put_in_order(&mut self, first_alert: usize, first_event: usize) {
        if let Some(alerts) = self.alerts.get_mut(first_alert..) {
            alerts.sort_by_key(|alert| (alert.sequence, alert.stage));
        }
        self.events.put_in_order(first_event, &self.alerts, first_alert);
    }

    /// Moves the output of `others` here, except generated packets.
    pub fn append(&mut self, others: &mut Effects) {
        self.events.append(&mut others.events, self.alerts.len());
        others.alerts.drain(..).for_each(|alert| self.alert(alert));
        let causes = others.causes.drain(..).chain(std::iter::repeat(0));
        others.reports.drain(..).zip(causes).for_each(|(report, sequence)| self.report(report, sequence));
        self.alerts_lost += std::mem::take(&mut others.alerts_lost);
        self.reports_lost += std::mem::take(&mut others.reports_lost);
    }

    /// Adds an alert, or counts it as lost.
    pub fn alert(&mut self, alert: Alert) {
        if self.alerts.len() < EFFECTS_MAX {
            self.alerts.push(alert);
        } else {
            self.alerts_lost += 1;
        }
    }

    /// Adds a report caused by packet `sequence`, or counts it as lost.
    pub(crate) fn report(&mut self, report: FlowReport, sequence: u64) {
        if self.reports.len() < EFFECTS_MAX {
            self.causes.resize(self.reports.len(), 0); // The reports may have been taken.
            self.reports.push(report);
            self.causes.push(sequence);
        } else {
            self.reports_lost += 1;
        }
    }

    /// Generates an answer to `to`: its link-layer header with addresses swapped, then `network`.
    pub(crate) fn answer(
        &mut self,
        pool: &mut PacketPool,
        to: &Packet,
        network: &[u8],
        stage: u16,
    ) -> Result<(), DropReason> {
        let meta = to.meta();
        let link = to.data().get(..meta.outer_l3 as usize).unwrap_or_default();
        let Some(mut packet) = pool.take(link) else {
            self.not_generated += 1;
            return Err(DropReason::NoBuffer);
        };
        if packet.extend(network).is_err() {
            self.not_generated += 1;
            pool.give(packet);
            return Err(DropReason::TooBig);
        }
        if meta.link == packet::LinkType::Ethernet
            && let Some((addresses, _)) = packet.data_mut().split_at_mut_checked(12)
        {
            let (destination, source) = addresses.split_at_mut(6);
            destination.swap_with_slice(source);
        }
        let longer = network.len() as i32 - to.ip_len() as i32;
        packet::grow_link(packet.data_mut(), meta.link, longer);
        let len = packet.len() as u32;
        let made = packet.meta_mut();
        made.link = meta.link;
        made.wire_len = len;
        made.transit.timestamp_ns = meta.transit.timestamp_ns;
        made.transit.sequence = meta.transit.sequence;
        made.transit.ingress = meta.transit.ingress;
        made.transit.side = meta.transit.side.other();
        self.generated.push(GeneratedPacket { packet, stage, towards: meta.transit.side });
        Ok(())
    }
}
