//! Mappings: allocation of external endpoints from the pools, and their release.

use nf::pool::{KeyLookup, PoolKey, PoolRange, SharedPool};
use nf::{Context, FlowInfo};
use packet::{Addr, DropReason, Endpoint, split_mix};
use zerocopy::IntoBytes;

use super::config::{FilteringBehaviour, LogScope, MappingBehaviour, PoolingBehaviour, PortSelection};
use super::events::NatEvent;
use super::log::NatLogEvent;
use super::net::{PortRange, from_v4, v4};
use super::space::{ExternalPort, PortClass};
use super::state::{PoolItem, State};
use super::{COUNTERS, Nat, pool};

/// The external endpoint of an inside one, and its pool item; none for a static rule.
pub(super) struct Mapped {
    pub external: Endpoint,
    pub item: PoolItem,
}

/// The reason for the release of a flow's items.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemUse {
    /// It ends.
    Ends,
    /// It was refused, and no packet of it has left.
    Refused,
    /// The flow moves to another node.
    Moves,
}

/// A port that is wanted for a mapping.
pub(super) struct PortRequest<'a> {
    pub name: KeyLookup<'a>,
    pub class: PortClass,
    pub internal: Endpoint,
}

/// A way to take an item of a range.
pub(super) type Take = fn(&mut SharedPool, KeyLookup<'_>, PoolRange) -> Option<u32>;

/// Order of allocation: items held down for others are last.
pub(super) const IN_ORDER: [Take; 2] = [SharedPool::take, SharedPool::take_any];

/// First byte of a pool key. It keeps keys of different kinds apart, and none is all zeros.
#[derive(Clone, Copy)]
#[repr(u8)]
enum PoolKeyKind {
    Mapping = 1,
    Other = 2,
    Subscriber = 3,
    Block = 4,
    Permission = 5,
}

/// Builds a key from an inside endpoint and protocol, the remote endpoint where it matters, tenant
/// and scope. A permission is of an external endpoint, which all tenants share.
fn key(kind: PoolKeyKind, protocol: u8, near: Endpoint, far: Endpoint, flow: &FlowInfo) -> PoolKey {
    let word = |top: u8, next: u8, end: Endpoint| {
        let [a, b, c, d] = end.addr.v4_bytes();
        let [high, low] = end.port.to_be_bytes();
        u64::from_be_bytes([top, next, a, b, c, d, high, low])
    };
    let mut scope = [0; 8];
    scope.copy_from_slice(flow.key.scope.as_bytes());
    let is_shared = matches!(kind, PoolKeyKind::Permission);
    let tenant = if is_shared { 0 } else { u64::from(flow.key.tenant()) };
    [word(kind as u8, protocol, near), word(0, 0, far), tenant, u64::from_ne_bytes(scope), 0, 0]
}

/// Returns the inside endpoint of a mapping's key, if it has this protocol and the flow's tenant
/// and scope. Flows of no tenant are from the shared side and reach the mappings of all tenants.
fn owner(found: &PoolKey, protocol: u8, flow: &FlowInfo) -> Option<Endpoint> {
    let [kind, of, a, b, c, d, high, low] = found[0].to_be_bytes();
    let end = Endpoint::new(Addr::from_v4_bytes([a, b, c, d]), u16::from_be_bytes([high, low]));
    let same = key(PoolKeyKind::Mapping, protocol, end, NOBODY, flow);
    let is_of_tenant = flow.key.tenant() == 0 || found[2] == same[2];
    let is_same = is_of_tenant && found[3..] == same[3..];
    (kind == PoolKeyKind::Mapping as u8 && of == protocol && is_same).then_some(end)
}

const NOBODY: Endpoint = Endpoint::new(Addr::NONE, 0);

impl Nat {
    /// Returns the external endpoint of `internal` towards `remote`: from a static rule, from an
    /// existing mapping, or newly allocated.
    pub(super) fn map(
        &self,
        class: PortClass,
        internal: Endpoint,
        remote: Endpoint,
        context: &mut Context<'_>,
    ) -> Result<Mapped, DropReason> {
        if let Some(external) = self.forwards.outwards(class, internal) {
            return Ok(Mapped { external, item: PoolItem::NONE });
        }
        if class == PortClass::Other {
            return self.map_other(internal, remote, context);
        }
        let name = self.mapping_name(internal, remote, &context.flow());
        let (now_ns, record) = (context.now_ns(), context.record());
        let ports = context.pool(pool::PORTS);
        ports.end_holds(now_ns);
        let found = ports.look_up(&name).with_note(u64::from(record));
        let item = match ports.join(found) {
            Some(item) => {
                ports.set_note(item, u64::from(record));
                item
            }
            None => self.take_port(PortRequest { name: found, class, internal }, context)?,
        };
        let place = self.space.place_of(item).ok_or(DropReason::Internal)?;
        Ok(Mapped { external: self.endpoint(place), item: PoolItem::of(item) })
    }

    /// Returns the pool key of an inside endpoint's mapping towards `remote`.
    pub(super) fn mapping_name(&self, internal: Endpoint, remote: Endpoint, flow: &FlowInfo) -> PoolKey {
        // RFC 4787 REQ-1, RFC 5382 REQ-1, RFC 5508 REQ-1a
        let towards = match self.config.mapping {
            MappingBehaviour::EndpointIndependent => NOBODY,
            MappingBehaviour::AddressDependent => Endpoint::new(remote.addr, 0),
            MappingBehaviour::AddressAndPortDependent => remote,
        };
        key(PoolKeyKind::Mapping, flow.key.protocol, internal, towards, flow)
    }

    /// Returns the inside endpoint that a port is mapped to, and the port's item.
    pub(super) fn owner_of(
        &self,
        class: PortClass,
        external: Endpoint,
        context: &mut Context<'_>,
    ) -> Option<(Endpoint, PoolItem)> {
        let address = self.space.number_of(v4(external.addr)?)?;
        let item = self.space.item_at(ExternalPort { class, address, port: external.port })?;
        let flow = context.flow();
        let found = context.pool(pool::PORTS).key_of(item)?;
        Some((owner(found, flow.key.protocol, &flow)?, PoolItem::of(item)))
    }

    /// Returns whether the item still belongs to this inside endpoint; true for static rules, which
    /// have no item.
    pub(super) fn still_owns(&self, internal: Endpoint, item: PoolItem, context: &mut Context<'_>) -> bool {
        let Some(item) = item.item() else { return true };
        let flow = context.flow();
        let found = context.pool(pool::PORTS).key_of(item);
        found.and_then(|found| owner(found, flow.key.protocol, &flow)) == Some(internal)
    }

    /// Adds a reference to an existing mapping.
    pub(super) fn join(&self, item: PoolItem, context: &mut Context<'_>) {
        let Some(item) = item.item() else { return };
        if let Some(name) = context.pool(pool::PORTS).key_of(item).copied() {
            let ports = context.pool(pool::PORTS);
            ports.join(ports.look_up(&name));
            note_holder(item, context);
        }
    }

    /// Lets `remote` send to the mapping while the flow lasts (RFC 4787 REQ-8).
    pub(super) fn permit(&self, external: Endpoint, remote: Addr, context: &mut Context<'_>) -> PoolItem {
        if self.config.filtering != FilteringBehaviour::AddressDependent {
            return PoolItem::NONE;
        }
        let flow = context.flow();
        let name = key(PoolKeyKind::Permission, flow.key.protocol, external, Endpoint::new(remote, 0), &flow);
        let random = context.random();
        let permissions = context.pool(pool::PERMISSIONS);
        let found = permissions.look_up(&name);
        let joined = permissions.join(found);
        joined
            .or_else(|| permissions.take(found, anywhere(permissions.size(), random)))
            .map_or(PoolItem::NONE, PoolItem::of)
    }

    /// Returns whether `remote` may open a flow to the mapping (RFC 4787 REQ-8).
    pub(super) fn admits(&self, external: Endpoint, remote: Endpoint, context: &mut Context<'_>) -> bool {
        match self.config.filtering {
            FilteringBehaviour::EndpointIndependent => true,
            // A remote endpoint that the inside endpoint sends to already has a flow, and opens
            // none.
            FilteringBehaviour::AddressAndPortDependent => false,
            FilteringBehaviour::AddressDependent => {
                let flow = context.flow();
                let remote = Endpoint::new(remote.addr, 0);
                let name = key(PoolKeyKind::Permission, flow.key.protocol, external, remote, &flow);
                context.pool(pool::PERMISSIONS).item_of(&name).is_some()
            }
        }
    }

    /// Counts a session of the subscriber. Refuses a flow that the subscriber `opens` beyond its
    /// limit (RFC 6888 REQ-4).
    pub(super) fn enter_session(
        &self,
        internal: Addr,
        opens: bool,
        context: &mut Context<'_>,
    ) -> Result<PoolItem, DropReason> {
        let limits = self.config.subscriber;
        if limits.sessions.is_none() && limits.ports.is_none() {
            return Ok(PoolItem::NONE);
        }
        let name = subscriber(internal, &context.flow());
        let random = context.random();
        let subscribers = context.pool(pool::SUBSCRIBERS);
        let found = subscribers.look_up(&name);
        if let Some(item) = subscribers.item_under(found) {
            let users = subscribers.users(item);
            if let Some(max) = limits.sessions.filter(|&max| opens && users >= max) {
                self.quota_event(internal, max, context);
                return Err(DropReason::NatSubscriberLimit);
            }
            subscribers.join(found);
            return Ok(PoolItem::of(item));
        }
        if opens && limits.sessions == Some(0) {
            self.quota_event(internal, 0, context);
            return Err(DropReason::NatSubscriberLimit);
        }
        let choice = anywhere(subscribers.size(), random);
        subscribers.take(found, choice).map(PoolItem::of).ok_or(DropReason::NatSubscriberLimit)
    }

    /// Releases everything that the flow holds.
    pub(super) fn release(&self, state: &mut State, item_use: ItemUse, context: &mut Context<'_>) {
        self.give_up(state, item_use, context);
        state.flags = 0;
    }

    /// Gives up everything that the flow holds.
    pub(super) fn give_up(&self, state: &mut State, item_use: ItemUse, context: &mut Context<'_>) {
        let held = [
            (&mut state.item, State::HELD, state.internal),
            (&mut state.peer_item, State::PEER_HELD, state.peer_internal),
        ];
        for (slot, flag, internal) in held {
            if let Some(item) = slot.take().filter(|_| state.flags & flag != 0) {
                self.leave(item, internal, item_use, context);
            }
        }
        for (slot, number) in [
            (&mut state.permission, pool::PERMISSIONS),
            (&mut state.peer_permission, pool::PERMISSIONS),
            (&mut state.session, pool::SUBSCRIBERS),
        ] {
            if let Some(item) = slot.take() {
                context.pool(number).leave(item);
            }
        }
    }

    /// Releases one reference to a mapping.
    fn leave(&self, item: u32, internal: Endpoint, item_use: ItemUse, context: &mut Context<'_>) {
        let place = self.space.place_of(item);
        let now_ns = context.now_ns();
        let ports = context.pool(pool::PORTS);
        // RFC 6888 REQ-8; the state of TCP connections is tracked, which is its exception A.
        let is_freed = match place {
            Some(ExternalPort { class: PortClass::Udp, .. }) if item_use == ItemUse::Ends => {
                ports.leave_held(item, now_ns)
            }
            _ => ports.leave(item),
        };
        if !is_freed {
            return;
        }
        if place.is_some() {
            self.count_port(internal.addr, false, context);
        }
        if item_use == ItemUse::Moves {
            if let Some(block) = place.and_then(|place| self.block_of(place)) {
                context.pool(pool::BLOCKS).leave(block);
            }
            return;
        }
        context.count(COUNTERS.mappings_freed, 1);
        let Some(place) = place else { return };
        if self.wanted.mappings {
            self.binding_event(NatEvent::BindingDelete, internal, place, context);
        }
        if self.config.log == LogScope::Mappings {
            self.log_mapping(NatLogEvent::MappingFreed, internal, place, context);
        }
        self.leave_block(internal.addr, place, item_use, context);
    }

    /// Allocates a mapping, with one reference.
    fn take_port(&self, request: PortRequest<'_>, context: &mut Context<'_>) -> Result<u32, DropReason> {
        let internal = request.internal;
        if let Some(max) = self.config.subscriber.ports {
            let whose = subscriber(internal.addr, &context.flow());
            let subscribers = context.pool(pool::SUBSCRIBERS);
            let taken = subscribers.item_of(&whose).map_or(0, |item| subscribers.note(item));
            if taken >= u64::from(max) {
                self.quota_event(internal.addr, max, context);
                return Err(DropReason::NatSubscriberLimit);
            }
        }
        let item = match self.config.blocks {
            Some(_) => self.take_in_blocks(&request, context)?,
            None => self.take_in_share(&request, context)?,
        };
        context.count(COUNTERS.mappings_made, 1);
        self.count_port(internal.addr, true, context);
        if let Some(place) = self.space.place_of(item) {
            if self.wanted.mappings {
                self.binding_event(NatEvent::BindingCreate, internal, place, context);
            }
            if self.config.log == LogScope::Mappings {
                self.log_mapping(NatLogEvent::MappingMade, internal, place, context);
            }
        }
        Ok(item)
    }

    /// Allocates a port of the flow's share: the port held down for the inside endpoint, else a
    /// free one, else one held down for another endpoint.
    fn take_in_share(&self, wanted: &PortRequest<'_>, context: &mut Context<'_>) -> Result<u32, DropReason> {
        let PortRequest { name, class, internal } = *wanted;
        let range = self.shares.share_for(class, internal.port, context.affinity_group());
        let range = range.ok_or(DropReason::NatPortsExhausted)?;
        let addresses = self.addresses_for(internal.addr, context);
        let ports = context.pool(pool::PORTS);
        let own = ports.held_for(name).and_then(|item| Some((item, self.space.place_of(item)?)));
        if let Some((item, place)) = own
            && range.contains(place.port)
            && addresses.clone().any(|address| address == place.address)
        {
            return ports.take_item(name, item).ok_or(DropReason::NatPortsExhausted);
        }
        let found = IN_ORDER.into_iter().find_map(|take| {
            let mut addresses = addresses.clone();
            addresses.find_map(|address| self.take_in(wanted, address, range, take, context))
        });
        found.ok_or(DropReason::NatPortsExhausted)
    }

    /// Allocates a port of the address within the range: the inside port, or one of its parity, or
    /// any.
    pub(super) fn take_in(
        &self,
        wanted: &PortRequest<'_>,
        address: usize,
        range: PortRange,
        take: Take,
        context: &mut Context<'_>,
    ) -> Option<u32> {
        let PortRequest { name, class, internal: Endpoint { port: inside, .. } } = *wanted;
        if self.config.port_selection == PortSelection::Preserve && range.contains(inside) {
            let same = self.space.item_at(ExternalPort { class, address, port: inside });
            let ports = context.pool(pool::PORTS);
            if let Some(item) = same.filter(|&item| !ports.is_unavailable(item)) {
                return ports.take_item(name, item);
            }
        }
        let start = match self.config.port_selection {
            PortSelection::Sequential => 0,
            PortSelection::Preserve | PortSelection::Random => context.random() % u64::from(range.count()),
        };
        let start = range.first + start as u16;
        // RFC 4787 REQ-4
        let keeps_parity = self.config.port_parity && class != PortClass::Icmp;
        let parity = keeps_parity.then(|| (with_parity(start, inside, range), 2));
        let ports = context.pool(pool::PORTS);
        parity.into_iter().chain([(start, 1)]).find_map(|(wanted, step)| {
            let mut choices = self.space.choices(class, address, range, wanted, step);
            choices.find_map(|choice| take(ports, name, choice))
        })
    }

    /// Returns the external address of a subscriber (RFC 4787 REQ-2), or all addresses beginning
    /// there.
    pub(super) fn addresses_for(
        &self,
        internal: Addr,
        context: &Context<'_>,
    ) -> impl Iterator<Item = usize> + Clone + use<'_> {
        let count = self.space.addresses().len();
        let start = if count > 1 {
            let name = subscriber(internal, &context.flow());
            let mut state = name.iter().fold(0, |state, word| split_mix(&mut (state ^ word)));
            (split_mix(&mut state) % count as u64) as usize
        } else {
            0
        };
        let in_use = (0..count).map(move |step| (start + step) % count).filter(|&at| !self.drained[at]);
        in_use.take(if self.config.pooling == PoolingBehaviour::Paired { 1 } else { count })
    }

    /// Maps a protocol without rewritable ports: one inside host per external address, remote
    /// endpoint and inside port.
    fn map_other(
        &self,
        internal: Endpoint,
        remote: Endpoint,
        context: &mut Context<'_>,
    ) -> Result<Mapped, DropReason> {
        for address in self.addresses_for(internal.addr, context) {
            let external = Endpoint::new(from_v4(self.space.addresses()[address]), internal.port);
            if let Some(item) = self.map_other_as(internal, external, remote, context) {
                return Ok(Mapped { external, item });
            }
        }
        Err(DropReason::NatPortsExhausted)
    }

    /// Maps such a protocol to this external endpoint, unless another inside host has that.
    pub(super) fn map_other_as(
        &self,
        internal: Endpoint,
        external: Endpoint,
        remote: Endpoint,
        context: &mut Context<'_>,
    ) -> Option<PoolItem> {
        let flow = context.flow();
        let whose = u64::from(v4(internal.addr)?);
        let random = context.random();
        let name = key(PoolKeyKind::Other, flow.key.protocol, external, remote, &flow);
        let ports = context.pool(pool::PORTS);
        let found = ports.look_up(&name);
        let item = match ports.item_under(found) {
            Some(item) if ports.note(item) == whose => ports.join(found),
            Some(_) => None,
            None => ports.take(found, self.space.other_choice(random)),
        }?;
        ports.set_note(item, whose);
        Some(PoolItem::of(item))
    }

    /// Updates the number of ports of a subscriber.
    pub(super) fn count_port(&self, internal: Addr, more: bool, context: &mut Context<'_>) {
        if self.config.subscriber.ports.is_none() {
            return;
        }
        let name = subscriber(internal, &context.flow());
        let subscribers = context.pool(pool::SUBSCRIBERS);
        if let Some(item) = subscribers.item_of(&name) {
            let ports = subscribers.note(item);
            subscribers.set_note(item, if more { ports + 1 } else { ports.saturating_sub(1) });
        }
    }

    pub(super) fn endpoint(&self, place: ExternalPort) -> Endpoint {
        Endpoint::new(from_v4(self.space.addresses()[place.address]), place.port)
    }
}

/// Returns the pool key of a subscriber, which is an inside address.
pub(super) fn subscriber(internal: Addr, flow: &FlowInfo) -> PoolKey {
    key(PoolKeyKind::Subscriber, 0, Endpoint::new(internal, 0), NOBODY, flow)
}

/// Returns the pool key of a subscriber's `number`th block.
pub(super) fn block_name(internal: Addr, number: u16, flow: &FlowInfo) -> PoolKey {
    key(PoolKeyKind::Block, 0, Endpoint::new(internal, number), NOBODY, flow)
}

/// Stores the record of a port's flow in the pool, so that an eviction finds the flow.
pub(super) fn note_holder(item: u32, context: &mut Context<'_>) {
    let record = context.record();
    context.pool(pool::PORTS).set_note(item, u64::from(record));
}

/// Returns the choice of any item in a pool of `size` items.
pub(super) fn anywhere(size: u32, random: u64) -> PoolRange {
    PoolRange { first: 0, count: size, from: (random % u64::from(size.max(1))) as u32, step: 1 }
}

/// Returns `port`, or its neighbour in the range with the parity of `inside`.
fn with_parity(port: u16, inside: u16, range: PortRange) -> u16 {
    match (port ^ inside) & 1 {
        0 => port,
        _ if port < range.last => port + 1,
        _ => range.first.max(port.saturating_sub(1)),
    }
}
