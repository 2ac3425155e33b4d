//! NAT events (RFC 8158): sessions, bindings, port blocks, and what was refused for want of ports
//! or by a subscriber's limit.
//!
//! Each is an event of kind [`KIND`], with [`field::EVENT`] as RFC 8158 numbers it. Exporters make
//! IPFIX records of them. The packets of known flows cause none.

use std::fmt::{self, Write};

use nf::{Context, EventField, EventValue};
use packet::{Addr, Direction, Endpoint, Side};

use super::Nat;
use super::config::NatEventKind;
use super::net::{PortRange, from_v4};
use super::space::ExternalPort;
use super::state::State;

/// The kind of these events.
pub const KIND: &str = "nat";

/// natEvent (IANA's number 230), for NAT44.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NatEvent {
    /// A flow is translated.
    SessionCreate = 4,
    /// It has ended.
    SessionDelete = 5,
    /// An inside endpoint got an external one: an entry of the binding information base.
    BindingCreate = 8,
    /// It gave it back.
    BindingDelete = 9,
    /// No port was free.
    PortsExhausted = 12,
    /// A subscriber's limit was reached.
    QuotaExceeded = 13,
    /// A subscriber got a block of ports.
    BlockAllocate = 16,
    /// It gave it back.
    BlockRelease = 17,
}

impl NatEvent {
    const fn name(self) -> &'static str {
        match self {
            NatEvent::SessionCreate => "NAT44 session create",
            NatEvent::SessionDelete => "NAT44 session delete",
            NatEvent::BindingCreate => "NAT44 BIB create",
            NatEvent::BindingDelete => "NAT44 BIB delete",
            NatEvent::PortsExhausted => "NAT ports exhausted",
            NatEvent::QuotaExceeded => "quota exceeded",
            NatEvent::BlockAllocate => "port block allocation",
            NatEvent::BlockRelease => "port block de-allocation",
        }
    }
}

/// Names of the events' fields.
pub mod field {
    /// natEvent.
    pub const EVENT: &str = "event";
    /// Its name.
    pub const NAME: &str = "name";
    /// natOriginatingAddressRealm: 1 inside, 2 outside.
    pub const REALM: &str = "realm";
    /// Source of the flow's first packet; the inside host.
    pub const SOURCE: &str = "src_ip";
    /// Its port, or ICMP identifier.
    pub const SOURCE_PORT: &str = "src_port";
    /// Destination of the flow's first packet.
    pub const DESTINATION: &str = "dest_ip";
    /// Its port.
    pub const DESTINATION_PORT: &str = "dest_port";
    /// The source after translation.
    pub const POST_SOURCE: &str = "post_src_ip";
    /// Its port.
    pub const POST_SOURCE_PORT: &str = "post_src_port";
    /// The destination after translation.
    pub const POST_DESTINATION: &str = "post_dest_ip";
    /// Its port.
    pub const POST_DESTINATION_PORT: &str = "post_dest_port";
    /// First port of a block.
    pub const FIRST_PORT: &str = "port_first";
    /// Last port of a block.
    pub const LAST_PORT: &str = "port_last";
    /// natQuotaExceededEvent: 3, entries of a user.
    pub const QUOTA: &str = "quota";
    /// maxEntriesPerUser.
    pub const LIMIT: &str = "limit";
}

const ENTRIES_PER_USER_MAX: u64 = 3;

/// An event about a limit comes once in this time for each external address or subscriber.
pub const LIMIT_INTERVAL_NS: u64 = 10_000_000_000;

/// External addresses and subscribers whose last event about a limit is remembered; beyond that the
/// oldest is forgotten.
pub const LIMITS_REMEMBERED_MAX: u32 = 1024;

/// The number of the set of [`LIMITS_REMEMBERED_MAX`] in the descriptor.
const LIMITS: usize = 0;

/// Which events are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventFilter {
    pub sessions: bool,
    pub mappings: bool,
    pub blocks: bool,
    pub limits: bool,
}

impl EventFilter {
    pub fn new(kinds: &[NatEventKind]) -> EventFilter {
        let has = |kind| kinds.contains(&kind);
        EventFilter {
            sessions: has(NatEventKind::Sessions),
            mappings: has(NatEventKind::Mappings),
            blocks: has(NatEventKind::Blocks),
            limits: has(NatEventKind::Limits),
        }
    }
}

/// An address as a text, of at most as many bytes as an IPv6 address takes.
struct AddressText {
    bytes: [u8; 40],
    len: usize,
}

impl AddressText {
    fn new(address: Addr) -> AddressText {
        let mut text = AddressText { bytes: [0; 40], len: 0 };
        // There is room for every address.
        let _ = write!(text, "{address}");
        text
    }

    fn value(&self) -> EventValue<'_> {
        EventValue::Text(&self.bytes[..self.len])
    }
}

impl Write for AddressText {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.len + part.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(part.as_bytes());
        self.len = end;
        Ok(())
    }
}

fn number(value: impl Into<u64>) -> EventValue<'static> {
    EventValue::Number(value.into())
}

impl Nat {
    /// Reports that a flow's translation begins or ends. Prefixes are translated without sessions.
    #[cold]
    pub(super) fn session_event(&self, event: NatEvent, state: &State, context: &mut Context<'_>) {
        let flow = context.flow();
        let translates = state.has(State::PLAIN | State::BORROWED | State::HAIRPIN);
        if flow.key.version != 4 || !translates {
            return;
        }
        let (source, destination) = flow.key.ends(flow.reversed);
        let (internal, external) = (state.internal, state.external);
        let (before, after) = if state.has(State::HAIRPIN) {
            ((internal, state.peer_external), (external, state.peer_internal))
        } else if flow.origin == Side::Inside {
            ((internal, destination), (external, destination))
        } else {
            ((source, external), (source, internal))
        };
        let texts = [before.0, before.1, after.0, after.1].map(|end| AddressText::new(end.addr));
        let fields = [
            (field::REALM, realm(flow.origin)),
            (field::SOURCE, texts[0].value()),
            (field::SOURCE_PORT, number(before.0.port)),
            (field::DESTINATION, texts[1].value()),
            (field::DESTINATION_PORT, number(before.1.port)),
            (field::POST_SOURCE, texts[2].value()),
            (field::POST_SOURCE_PORT, number(after.0.port)),
            (field::POST_DESTINATION, texts[3].value()),
            (field::POST_DESTINATION_PORT, number(after.1.port)),
        ];
        report(event, &fields, context);
    }

    /// Reports that an inside endpoint got or gave back an external one.
    #[cold]
    pub(super) fn binding_event(
        &self,
        event: NatEvent,
        internal: Endpoint,
        place: ExternalPort,
        context: &mut Context<'_>,
    ) {
        let external = AddressText::new(self.external_address(place.address));
        let inside = AddressText::new(internal.addr);
        let fields = [
            (field::REALM, realm(Side::Inside)),
            (field::SOURCE, inside.value()),
            (field::SOURCE_PORT, number(internal.port)),
            (field::POST_SOURCE, external.value()),
            (field::POST_SOURCE_PORT, number(place.port)),
        ];
        report(event, &fields, context);
    }

    /// Reports that a subscriber got or gave back a block of an external address's ports.
    #[cold]
    pub(super) fn block_event(
        &self,
        event: NatEvent,
        internal: Addr,
        (address, ports): (usize, PortRange),
        context: &mut Context<'_>,
    ) {
        let external = AddressText::new(self.external_address(address));
        let inside = AddressText::new(internal);
        let fields = [
            (field::SOURCE, inside.value()),
            (field::POST_SOURCE, external.value()),
            (field::FIRST_PORT, number(ports.first)),
            (field::LAST_PORT, number(ports.last)),
        ];
        report(event, &fields, context);
    }

    /// Reports that no port of an external address was free.
    #[cold]
    pub(super) fn exhausted_event(&self, internal: Addr, context: &mut Context<'_>) {
        if !self.wanted.limits {
            return;
        }
        let Some(address) = self.addresses_for(internal, context).next() else { return };
        let address = self.external_address(address);
        if is_time(NatEvent::PortsExhausted, address, context) {
            let external = AddressText::new(address);
            report(NatEvent::PortsExhausted, &[(field::POST_SOURCE, external.value())], context);
        }
    }

    /// Reports that a subscriber has reached one of its limits.
    #[cold]
    pub(super) fn quota_event(&self, internal: Addr, limit: u32, context: &mut Context<'_>) {
        if self.wanted.limits && is_time(NatEvent::QuotaExceeded, internal, context) {
            let inside = AddressText::new(internal);
            let fields = [
                (field::SOURCE, inside.value()),
                (field::QUOTA, number(ENTRIES_PER_USER_MAX)),
                (field::LIMIT, number(limit)),
            ];
            report(NatEvent::QuotaExceeded, &fields, context);
        }
    }

    fn external_address(&self, number: usize) -> Addr {
        from_v4(self.space.addresses().get(number).copied().unwrap_or(0))
    }
}

fn realm(origin: Side) -> EventValue<'static> {
    number(match origin {
        Side::Inside => 1_u8,
        Side::Outside => 2,
    })
}

/// Returns whether no event about this limit of this address came for [`LIMIT_INTERVAL_NS`], and
/// notes that one comes now.
fn is_time(event: NatEvent, address: Addr, context: &mut Context<'_>) -> bool {
    let flow = context.flow();
    let limit = u64::from(event as u8) << 40 | u64::from(flow.key.protocol) << 32;
    // The event of a port is one of its protocol; a subscriber's limit holds for all.
    let limit = if event == NatEvent::QuotaExceeded { u64::from(event as u8) << 40 } else { limit };
    let member = limit | u64::from(u32::from_be_bytes(address.v4_bytes()));
    let remembered = context.set(LIMITS);
    let recent = remembered
        .added_ns(member)
        .is_some_and(|last_ns| flow.now_ns.saturating_sub(last_ns) < LIMIT_INTERVAL_NS);
    if !recent {
        remembered.add(member, flow.now_ns);
    }
    !recent
}

fn report(event: NatEvent, fields: &[EventField<'_>], context: &mut Context<'_>) {
    const FIELDS_MAX: usize = 12;
    let mut all = [(field::EVENT, number(event as u8)); FIELDS_MAX];
    all[1] = (field::NAME, EventValue::Text(event.name().as_bytes()));
    let len = (fields.len() + 2).min(FIELDS_MAX);
    all[2..len].copy_from_slice(&fields[..len - 2]);
    context.event(KIND, Direction::Original, &all[..len]);
}
