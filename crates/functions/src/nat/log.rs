//! What the NAT logs, as alerts: who had which external endpoint or block when (RFC 6888 REQ-12).
//!
//! One signature per kind of event. An alert carries the flow that caused it and, as
//! [`Translation`], the inside host with its port and the external address with its port, or those
//! of the block.

use nf::{AlertDetail, AlertSeverity, Context, Translation};
use packet::{Addr, Endpoint};

use super::Nat;
use super::net::{PortRange, from_v4};
use super::space::{ExternalPort, PortClass};

/// What happened; as a number, the alert's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogEvent {
    /// A subscriber got a block of ports.
    BlockTaken = 1,
    /// It gave it back.
    BlockFreed = 2,
    /// An inside endpoint got an external one.
    MappingMade = 3,
    /// It gave it back.
    MappingFreed = 4,
}

/// The category of these alerts.
pub const CATEGORY: &str = "address translation";
const NOTICE: AlertSeverity = 3;

impl LogEvent {
    const fn text(self) -> &'static str {
        match self {
            LogEvent::BlockTaken => "NAT port block taken",
            LogEvent::BlockFreed => "NAT port block given back",
            LogEvent::MappingMade => "NAT mapping made",
            LogEvent::MappingFreed => "NAT mapping given back",
        }
    }
}

impl Nat {
    /// Logs what happened to an inside endpoint's mapping.
    pub(super) fn log_mapping(
        &self,
        what: LogEvent,
        internal: Endpoint,
        place: ExternalPort,
        context: &mut Context<'_>,
    ) {
        let ports = PortRange { first: place.port, last: place.port };
        let class = Some(place.class);
        self.log(what, class, internal, (place.address, ports), context);
    }

    /// Logs what happened to a subscriber's block, whose ports are those of TCP, UDP and ICMP.
    pub(super) fn log_ports(
        &self,
        what: LogEvent,
        internal: Addr,
        block: (usize, PortRange),
        context: &mut Context<'_>,
    ) {
        self.log(what, None, Endpoint::new(internal, 0), block, context);
    }

    #[cold]
    fn log(
        &self,
        what: LogEvent,
        class: Option<PortClass>,
        internal: Endpoint,
        (address, ports): (usize, PortRange),
        context: &mut Context<'_>,
    ) {
        let external = self.space.addresses().get(address).copied().unwrap_or(0);
        let translation = Translation {
            protocol: class.map(|class| match class {
                PortClass::Tcp => "tcp",
                PortClass::Udp => "udp",
                PortClass::Icmp => "icmp",
                PortClass::Other => "other",
            }),
            internal,
            external: from_v4(external),
            ports: (ports.first, ports.last),
        };
        let detail =
            AlertDetail { group: 1, revision: 1, translation: Some(translation), ..AlertDetail::default() };
        context.alert_in_detail(what as u32, what.text(), CATEGORY, NOTICE, detail);
    }
}
