//! NAT events (RFC 8158): sessions, bindings, port blocks, exhausted ports and subscriber limits.
//!
//! Each is an event of kind [`KIND`]; its [`field::EVENT`] is the number of RFC 8158. Exporters
//! turn them into IPFIX records. Packets of known flows cause none.

use std::fmt::{self, Write};

use nf::{Context, EventField, EventValue};
use packet::{Addr, Direction, Endpoint, Side};

use super::Nat;
use super::config::NatEventKind;
use super::net::{PortRange, from_v4};
use super::space::ExternalPort;
use super::state::State;

/// Kind of these events.
pub const KIND: &str = "nat";

/// natEvent (IANA number 230), for NAT44.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NatEvent {
    /// The translation of a flow begins.
    SessionCreate = 4,
    /// The translation of a flow ends.
    SessionDelete = 5,
    /// An inside endpoint got an external one: an entry of the binding information base.
    BindingCreate = 8,
    /// A binding was released.
    BindingDelete = 9,
    /// No port was free.
    PortsExhausted = 12,
    /// A subscriber's limit was reached.
    QuotaExceeded = 13,
    /// A subscriber got a port block.
    BlockAllocate = 16,
    /// A port block was released.
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
    /// Name of the event.
    pub const NAME: &str = "name";
    /// natOriginatingAddressRealm: 1 inside, 2 outside.
    pub const REALM: &str = "realm";
    /// Source of the flow's first packet; the inside host.
    pub const SOURCE: &str = "src_ip";
    /// Source port, or ICMP identifier.
    pub const SOURCE_PORT: &str = "src_port";
    /// Destination address of the flow's first packet.
    pub const DESTINATION: &str = "dest_ip";
    /// Destination port.
    pub const DESTINATION_PORT: &str = "dest_port";
    /// Source address after translation.
    pub const POST_SOURCE: &str = "post_src_ip";
    /// Source port after translation.
    pub const POST_SOURCE_PORT: &str = "post_src_port";
    /// Destination address after translation.
    pub const POST_DESTINATION: &str = "post_dest_ip";
    /// Destination port after translation.
    pub const POST_DESTINATION_PORT: &str = "post_dest_port";
    /// First port of a block.
    pub const FIRST_PORT: &str = "port_first";
    /// Last port of a block.
    pub const LAST_PORT: &str = "port_last";
    /// natQuotaExceededEvent: 3, maximum entries per user.
    pub const QUOTA: &str = "quota";
    /// maxEntriesPerUser.
    pub const LIMIT: &str = "limit";
}

const ENTRIES_PER_USER_MAX: u64 = 3;

/// Minimum interval between two limit events of one external address or subscriber.
pub const LIMIT_INTERVAL_NS: u64 = 10_000_000_000;

/// Maximum number of external addresses and subscribers with a remembered limit event; the oldest
/// is forgotten.
pub const LIMITS_REMEMBERED_MAX: u32 = 1024;

/// Index of the set of [`LIMITS_REMEMBERED_MAX`] entries in the descriptor.
const LIMITS: usize = 0;

/// Events to report.
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

/// Text of an IPv4 or IPv6 address.
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
    /// Reports the start or end of a flow's translation. Prefix translation has no sessions.
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

    /// Reports the creation or release of a binding.
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

    /// Reports the allocation or release of a port block.
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

    /// Reports that no port of an external address is free.
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

    /// Reports that a subscriber has reached a limit.
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

/// Returns whether [`LIMIT_INTERVAL_NS`] has passed since the last event about this limit of this
/// address, and restarts the interval.
fn is_time(event: NatEvent, address: Addr, context: &mut Context<'_>) -> bool {
    let flow = context.flow();
    let limit = u64::from(event as u8) << 40 | u64::from(flow.key.protocol) << 32;
    // A port event is about one protocol; a subscriber's limit covers all protocols.
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
