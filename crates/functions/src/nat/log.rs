//! Alerts about allocations: the subscriber, the external endpoint or block, and the time (RFC 6888
//! REQ-12).
//!
//! Each kind of event has a signature. An alert carries the flow that caused it and a
//! [`Translation`]: the inside endpoint with its external endpoint or block.

use nf::{AlertDetail, AlertSeverity, Context, Translation};
use packet::{Addr, Endpoint};

use super::Nat;
use super::net::{PortRange, from_v4};
use super::space::{ExternalPort, PortClass};

/// An allocation event; its number is the alert's signature id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NatLogEvent {
    /// A subscriber got a port block.
    BlockTaken = 1,
    /// A port block was released.
    BlockFreed = 2,
    /// An inside endpoint got an external endpoint.
    MappingMade = 3,
    /// A mapping was released.
    MappingFreed = 4,
}

/// Category of these alerts.
pub const CATEGORY: &str = "address translation";
const NOTICE: AlertSeverity = 3;

impl NatLogEvent {
    const fn text(self) -> &'static str {
        match self {
            NatLogEvent::BlockTaken => "NAT port block allocated",
            NatLogEvent::BlockFreed => "NAT port block released",
            NatLogEvent::MappingMade => "NAT mapping created",
            NatLogEvent::MappingFreed => "NAT mapping released",
        }
    }
}

impl Nat {
    /// Logs the creation or release of a mapping.
    pub(super) fn log_mapping(
        &self,
        what: NatLogEvent,
        internal: Endpoint,
        place: ExternalPort,
        context: &mut Context<'_>,
    ) {
        let ports = PortRange { first: place.port, last: place.port };
        let class = Some(place.class);
        self.log(what, class, internal, (place.address, ports), context);
    }

    /// Logs the allocation or release of a block of ports for TCP, UDP and ICMP.
    pub(super) fn log_ports(
        &self,
        what: NatLogEvent,
        internal: Addr,
        block: (usize, PortRange),
        context: &mut Context<'_>,
    ) {
        self.log(what, None, Endpoint::new(internal, 0), block, context);
    }

    #[cold]
    fn log(
        &self,
        what: NatLogEvent,
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
