//! Alerts: findings for the operator, with details of the inspected data.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use packet::{Addr, Endpoint, FlowKey};

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
    /// Type and code, if an ICMP message was inspected.
    pub icmp: Option<[u8; 2]>,
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
