//! Half-open mappings give way: who sends many opening packets, or spoofs them, keeps no port from others.

use nf::pool::Choice;
use nf::{Context, LiveFlows};
use packet::{Addr, Class as Kind, Endpoint, Packet, Side};

use super::config::WhenFull;
use super::mapping::subscriber;
use super::open::{is_local, opens_by};
use super::space::Class;
use super::state::{Slot, State};
use super::{Nat, counter, pool};

/// Mappings that are compared when one is to give way.
const SAMPLE: u32 = 8;

/// Ports between two that are compared: those of clients whose ports are kept, and stand side by side, are not all of them.
const STRIDE: u32 = 8191;

/// A flow with more packets is taken for one of which the answers are not seen, and gives way after others.
const FEW_PACKETS: u64 = 4;

impl Nat {
    /// The flow whose mapping gives way to the one that this packet begins: if all ports that it could have are taken, the
    /// one silent longest of a few whose connections are not open. Ports in blocks are bounded by subscriber instead.
    pub(super) fn half_open(
        &self,
        packet: &Packet,
        flows: &LiveFlows<'_, State>,
        context: &mut Context<'_>,
    ) -> Option<u32> {
        let meta = packet.meta();
        let begins = matches!(meta.class, Kind::Whole | Kind::FirstFragment);
        let may_give_way = self.config.when_full == WhenFull::EvictHalfOpen && self.config.blocks.is_none();
        if !begins || meta.version != 4 || context.side() != Side::Inside || !may_give_way {
            return None;
        }
        let class = Class::of(meta.protocol);
        let (internal, remote) = meta.key.ends(meta.reversed);
        let full = self.full_range(class, internal, context)?;
        let first = packet.data().get(usize::from(meta.l4)).copied();
        let wants_port = self.is_inside(internal.addr)
            && !is_local(internal, remote)
            && opens_by(meta, first, self.config.tcp_opens_with).is_ok()
            && self.forwards.outwards(class, internal).is_none()
            && !self.is_limited(internal.addr, context)
            && !self.is_mapped(class, internal, remote, context);
        if !wants_port {
            return None;
        }
        let start = (context.random() % u64::from(full.count.max(1))) as u32;
        let sample = (0..SAMPLE.min(full.count)).map(|i| full.first + (start + i * STRIDE) % full.count);
        let ports = context.pool(pool::PORTS);
        let victim = sample
            .filter_map(|item| {
                let record = u32::try_from(ports.note(item)).ok()?;
                let flow = flows.get(record)?;
                let holds = flow.state.has(State::HELD) && flow.state.item == Slot::of(item);
                let gives_way = holds && flow.connection.gives_way() && ports.users(item) == 1;
                gives_way.then_some((flow.packets > FEW_PACKETS, flow.last_seen_ns, record))
            })
            .min();
        let (.., record) = victim?;
        context.count(counter::MAPPINGS_GAVE_WAY, 1);
        Some(record)
    }

    /// A range that the flow's port could come from, if there are any and all their ports are taken.
    fn full_range(&self, class: Class, internal: Endpoint, context: &mut Context<'_>) -> Option<Choice> {
        if class == Class::Other || context.pool(pool::PORTS).in_use() < self.full_from {
            return None;
        }
        let within = self.range_for(class, internal.port);
        let mut full = None;
        for address in self.addresses_for(internal.addr, context) {
            let mut choices = self.space.choices(class, address, within, within.first, 1);
            let ports = context.pool(pool::PORTS);
            if choices.any(|choice| {
                full = full.or(Some(choice));
                ports.has_free(choice)
            }) {
                return None;
            }
        }
        full
    }

    /// Whether the subscriber has all that it may have.
    fn is_limited(&self, internal: Addr, context: &mut Context<'_>) -> bool {
        let limits = self.config.subscriber;
        if limits.sessions.is_none() && limits.ports.is_none() {
            return false;
        }
        let name = subscriber(internal, &context.flow());
        let subscribers = context.pool(pool::SUBSCRIBERS);
        let Some(item) = subscribers.item_of(&name) else { return limits.sessions == Some(0) };
        limits.sessions.is_some_and(|max| subscribers.users(item) >= max)
            || limits.ports.is_some_and(|max| subscribers.note(item) >= u64::from(max))
    }

    /// Whether the inside endpoint has a mapping already.
    fn is_mapped(
        &self,
        class: Class,
        internal: Endpoint,
        remote: Endpoint,
        context: &mut Context<'_>,
    ) -> bool {
        let name = self.mapping_name(internal, remote, &context.flow());
        class != Class::Other && context.pool(pool::PORTS).item_of(&name).is_some()
    }
}

/// Notes whose record a port's flow is, for [`Nat::half_open`] to find it.
pub(super) fn note_holder(item: u32, context: &mut Context<'_>) {
    let record = context.record();
    context.pool(pool::PORTS).set_note(item, u64::from(record));
}
