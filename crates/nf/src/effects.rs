//! What comes out of functions beside packets: alerts, flow reports, packets that they made. All
//! bounded.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use packet::{Addr, DropReason, Endpoint, FlowKey, Packet, PacketPool, Side};

use crate::event::Events;

/// Alerts and flow reports that are held until the runner takes them, each; further ones are
/// counted as lost.
pub const EFFECTS_MAX: usize = 65_536;

/// How bad it is, as in Suricata: 1 is the worst.
pub type AlertSeverity = u8;

/// Something that an operator should see. Becomes one EVE JSON line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// When the packet came.
    pub timestamp_ns: u64,
    /// The packet's number.
    pub sequence: u64,
    /// The function's place in the chain; set by the chain.
    pub stage: u16,
    /// What was found, by the function's own number.
    pub signature_id: u32,
    /// What was found, in words.
    pub signature: AlertText,
    /// The kind of finding.
    pub category: AlertText,
    /// How bad it is.
    pub severity: AlertSeverity,
    /// The flow's key.
    pub key: FlowKey,
    /// Whether the packet goes from the key's high end to its low end.
    pub reversed: bool,
    /// Whether a function dropped the packet, be it another one; set by the chain.
    pub blocked: bool,
    /// Whether a packet is the occasion; otherwise it is the end of its flow, and `sequence` is 0.
    pub has_packet: bool,
    /// The port that the packet came in by; 0 without a packet.
    pub ingress: u16,
    /// Where the rule is written that raised it, such as `x.rules:12`, if one did and that is
    /// known.
    pub place: Option<AlertText>,
    /// What functions know that look into payloads.
    pub detail: Option<Box<AlertDetail>>,
}

/// More about an alert: what was looked at, and by which edition of which rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertDetail {
    /// The group that the signature's number belongs to.
    pub group: u32,
    /// The rule's revision.
    pub revision: u32,
    /// The application protocol, as Suricata names it, if it is known.
    pub application: Option<&'static str>,
    /// An excerpt of the bytes that were looked at.
    pub payload: Vec<u8>,
    /// Whether they are bytes of a TCP stream, be they of this packet or not.
    pub stream: bool,
    /// The rule's metadata: keys and values.
    pub metadata: Option<Arc<[(String, String)]>>,
    /// The flow so far, this packet included.
    pub flow: Option<AlertFlow>,
    /// Whether what was looked at goes to the server.
    pub to_server: bool,
    /// The number of the transaction or message that was looked at, in its flow.
    pub transaction: Option<u64>,
    /// What is known of the application's message: the name of the object, such as `http`, and its
    /// fields.
    pub message: Option<AlertMessage>,
    /// What a NAT did to an inside endpoint or host.
    pub translation: Option<Translation>,
}

/// An inside endpoint, or host, and what stands for it outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// `tcp`, `udp` or `icmp`; none: all three.
    pub protocol: Option<&'static str>,
    /// The inside endpoint; the port is 0 if all of the host's are meant.
    pub internal: Endpoint,
    /// The external address.
    pub external: Addr,
    /// The first and the last of the external ports.
    pub ports: (u16, u16),
}

/// The packets and bytes of a flow up to an alert, by direction: to the server, to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertFlow {
    /// When its first packet came, in nanoseconds.
    pub start_ns: u64,
    /// Packets.
    pub packets: [u64; 2],
    /// Bytes of IP packets.
    pub bytes: [u64; 2],
}

/// The message of an application protocol that an alert is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMessage {
    /// The protocol, as EVE names its object.
    pub kind: &'static str,
    /// Its fields, as those of an event.
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

/// A text of the program, or one that came with a configuration: shared, so that an alert does not
/// allocate.
#[derive(Clone)]
pub enum AlertText {
    /// A text of the program.
    Fixed(&'static str),
    /// A text of a configuration.
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

/// What a monitor says of a flow: an IPFIX biflow record (RFC 7011, RFC 5103).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowReport {
    /// Source address of the flow's first packet.
    pub source: Addr,
    /// Its destination address.
    pub destination: Addr,
    /// Its source port, in host order.
    pub source_port: u16,
    /// Its destination port.
    pub destination_port: u16,
    /// Its protocol.
    pub protocol: u8,
    /// IP version, 4 or 6.
    pub version: u8,
    /// All TCP flags seen since the last report, original and reply direction; 0 if it is not TCP.
    pub tcp_flags: [u8; 2],
    /// ICMP type (high byte) and code of the first packet counted here, by direction; 0 if it is
    /// not ICMP.
    pub icmp: [u16; 2],
    /// Outermost VLAN identifier, 0 if none.
    pub vlan: u16,
    /// When the first packet counted here came, in nanoseconds, by direction; 0 if none did.
    pub first_ns: [u64; 2],
    /// When the last one came.
    pub last_ns: [u64; 2],
    /// Packets since the last report, by direction.
    pub packets: [u64; 2],
    /// Bytes of IP packets since the last report, by direction.
    pub bytes: [u64; 2],
    /// Type of service byte of the first packet that came, by direction; 0 if none did.
    pub tos: [u8; 2],
    /// Source and destination that packets of the original direction have once all functions
    /// rewrote them, if that differs from `source` and `destination`.
    pub translated: Option<(Endpoint, Endpoint)>,
    /// IPFIX flowEndReason: 1 idle timeout, 2 active timeout, 3 end of flow, 4 forced end, 5 lack
    /// of resources.
    pub end_reason: u8,
    /// One of this many flows is reported; 0 and 1: all are.
    pub sampling: u32,
}

/// A packet that a function made.
pub struct GeneratedPacket {
    /// The packet, from the link layer on.
    pub packet: Packet,
    /// The function's place in the chain.
    pub stage: u16,
    /// The side that it leaves by.
    pub towards: Side,
}

/// What functions put out while packets pass.
pub struct Effects {
    /// Alerts, oldest first.
    pub alerts: Vec<Alert>,
    /// Events for those who listen, oldest first.
    pub events: Events,
    /// Flow reports, oldest first.
    pub reports: Vec<FlowReport>,
    /// Packets made, not sent yet.
    pub generated: Vec<GeneratedPacket>,
    /// Alerts that found no room.
    pub alerts_lost: u64,
    /// Flow reports that found no room.
    pub reports_lost: u64,
    /// Packets that could not be made for want of a buffer.
    pub not_generated: u64,
    /// The numbers of the packets that brought flow reports, while a group is under way.
    order: Vec<u64>,
    is_ordering: bool,
}

impl Default for Effects {
    fn default() -> Effects {
        Effects {
            alerts: Vec::with_capacity(64),
            events: Events::default(),
            reports: Vec::with_capacity(1024),
            generated: Vec::with_capacity(64),
            alerts_lost: 0,
            reports_lost: 0,
            not_generated: 0,
            order: Vec::new(),
            is_ordering: false,
        }
    }
}

impl Effects {
    /// Takes what came out, to be looked at elsewhere. What was lost stays counted here.
    pub fn take(&mut self) -> Effects {
        Effects {
            alerts: std::mem::take(&mut self.alerts),
            events: self.events.take(),
            reports: std::mem::take(&mut self.reports),
            generated: Vec::new(),
            alerts_lost: 0,
            reports_lost: 0,
            not_generated: 0,
            order: Vec::new(),
            is_ordering: false,
        }
    }

    /// Whether less than half of what can be held is left, of alerts, events or reports.
    pub fn is_half_full(&self) -> bool {
        self.alerts.len().max(self.reports.len()) > EFFECTS_MAX / 2 || self.events.is_half_full()
    }

    /// A group of packets is under way from now on, or is so no more: flow reports are noted with
    /// their packets, so that [`Effects::put_reports_in_order`] can.
    #[inline]
    pub fn order_reports(&mut self, is_ordering: bool) {
        self.is_ordering = is_ordering;
    }

    /// Puts flow reports that packets of one group gave rise to in the order of packets: those of
    /// one packet stay as they came.
    pub fn put_reports_in_order(&mut self) {
        if !self.order.is_sorted() {
            let first = self.reports.len().saturating_sub(self.order.len());
            let reports = self.reports.get_mut(first..).unwrap_or_default();
            // By insertion, which takes no memory: a group brings few, and each function's are in
            // order.
            for end in 1..reports.len().min(self.order.len()) {
                let mut at = end;
                while at > 0 && self.order[at - 1] > self.order[at] {
                    self.order.swap(at - 1, at);
                    reports.swap(at - 1, at);
                    at -= 1;
                }
            }
        }
        self.order.clear();
    }

    /// Puts alerts and events from these numbers on, which packets of one group gave rise to, in
    /// the order of packets and functions: so they come out the same however packets are batched.
    /// An alert stands before events of its packet and function.
    pub fn put_in_order(&mut self, first_alert: usize, first_event: usize) {
        if let Some(alerts) = self.alerts.get_mut(first_alert..) {
            alerts.sort_by_key(|alert| (alert.sequence, alert.stage));
        }
        self.events.put_in_order(first_event, &self.alerts, first_alert);
    }

    /// Adds what came out elsewhere, as if it had come out here, and leaves nothing there. Packets
    /// that functions made stay.
    pub fn append(&mut self, others: &mut Effects) {
        others.alerts.drain(..).for_each(|alert| self.alert(alert));
        let numbers = others.order.drain(..).chain(std::iter::repeat(0));
        others.reports.drain(..).zip(numbers).for_each(|(report, sequence)| self.report(report, sequence));
        self.events.append(&mut others.events);
        self.alerts_lost += std::mem::take(&mut others.alerts_lost);
        self.reports_lost += std::mem::take(&mut others.reports_lost);
    }

    /// Takes an alert.
    pub fn alert(&mut self, alert: Alert) {
        if self.alerts.len() < EFFECTS_MAX {
            self.alerts.push(alert);
        } else {
            self.alerts_lost += 1;
        }
    }

    /// Takes a report that the packet with this number gave rise to.
    pub(crate) fn report(&mut self, report: FlowReport, sequence: u64) {
        if self.reports.len() < EFFECTS_MAX {
            self.reports.push(report);
            if self.is_ordering {
                self.order.push(sequence);
            }
        } else {
            self.reports_lost += 1;
        }
    }

    /// Makes a packet that answers `to`: its link-layer header with the addresses swapped, then
    /// `network`.
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
