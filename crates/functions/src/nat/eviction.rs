//! Eviction of half-open mappings. A host that sends many opening packets, spoofed or not, cannot
//! keep ports from others.

use std::cmp::Reverse;

use nf::pool::{PoolRange, SharedPool};
use nf::{Context, LiveFlows, VICTIMS_MAX, compared_silence_ns};
use packet::{Addr, Endpoint, Packet, PacketClass, Side};

use super::config::{BlockConfig, ExhaustionPolicy};
use super::mapping::{block_name, subscriber};
use super::open::{is_local, opens_by};
use super::space::PortClass;
use super::state::{PoolItem, State};
use super::{COUNTERS, Nat, pool};

/// Number of mappings to compare per eviction.
const SAMPLE: u32 = 8;

/// Distance between two ports to compare. It is large because clients with preserved ports are
/// often adjacent.
const STRIDE: u32 = 8191;

impl Nat {
    /// Selects the flows to evict for the flow that this packet opens, if every port available to
    /// it is taken. Without blocks, selects the longest-idle of a few flows without an open
    /// connection. With blocks, selects the flows of a block without any open connection.
    pub(super) fn evict_half_open(
        &self,
        packet: &Packet,
        flows: &LiveFlows<'_, State>,
        context: &mut Context<'_>,
        victims: &mut Vec<u32>,
    ) {
        let meta = packet.meta();
        let begins = matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment);
        let may_give_way = self.config.when_full == ExhaustionPolicy::EvictHalfOpen;
        if !begins || meta.version != 4 || context.side() != Side::Inside || !may_give_way {
            return;
        }
        let class = PortClass::of(meta.protocol);
        let (internal, remote) = meta.key.ends(meta.reversed);
        let full = match self.config.blocks {
            Some(blocks) => self.full_blocks(class, internal, blocks, context),
            None => self.full_range(class, internal, context),
        };
        let Some(full) = full else { return };
        let first = packet.data().get(usize::from(meta.l4)).copied();
        let wants_port = self.is_inside(internal.addr)
            && !is_local(internal, remote)
            && opens_by(meta, first, self.config.tcp_opens_with).is_ok()
            && self.forwards.outwards(class, internal).is_none()
            && !self.is_limited(internal.addr, context)
            && !self.is_mapped(class, internal, remote, context);
        if !wants_port {
            return;
        }
        let now_ns = context.now_ns();
        let start = (context.random() % u64::from(full.count.max(1))) as u32;
        let sample = (0..SAMPLE.min(full.count)).map(|i| full.first + (start + i * STRIDE) % full.count);
        match self.config.blocks {
            Some(blocks) => self.half_open_block(sample, blocks, flows, context, victims),
            None => {
                let ports = context.pool(pool::PORTS);
                let victim = sample.filter_map(|item| half_open(item, ports, flows, now_ns)).max();
                victims.extend(victim.map(|HalfOpen { record, .. }| record.0));
            }
        }
        context.count(COUNTERS.mappings_evicted, victims.len() as u64);
    }

    /// Selects the flows of a sampled block without any open connection; of several such blocks,
    /// the longest-idle.
    fn half_open_block(
        &self,
        sample: impl Iterator<Item = u32>,
        blocks: BlockConfig,
        flows: &LiveFlows<'_, State>,
        context: &mut Context<'_>,
        victims: &mut Vec<u32>,
    ) {
        let now_ns = context.now_ns();
        let (mut best, mut candidate) = (None, Vec::new());
        for block in sample {
            let users = context.pool(pool::BLOCKS).users(block) as usize;
            if users > VICTIMS_MAX {
                continue;
            }
            let (address, range) = self.block(block, blocks);
            candidate.clear();
            let ports = context.pool(pool::PORTS);
            let choices = PortClass::WITH_PORTS
                .into_iter()
                .flat_map(|class| self.space.choices(class, address, range, range.first, 1));
            let items = choices.flat_map(|choice| ports.taken_in(choice.first, choice.count));
            // One more than a block can have: then not all of them belong to the block.
            candidate.extend(items.map_while(|item| half_open(item, ports, flows, now_ns)).take(users + 1));
            let silence_ns = candidate.iter().min().map(|latest| latest.silence_ns);
            if candidate.len() == users && best.is_none_or(|best| silence_ns > best) {
                best = Some(silence_ns);
                victims.clear();
                victims.extend(candidate.iter().map(|flow| flow.record.0));
            }
        }
    }

    /// Returns the blocks available to the flow, if it needs a new block and all of them are taken.
    fn full_blocks(
        &self,
        class: PortClass,
        internal: Endpoint,
        blocks: BlockConfig,
        context: &mut Context<'_>,
    ) -> Option<PoolRange> {
        let share = self.shares.blocks_for(context.affinity_group());
        let count = share.end - share.start;
        if class == PortClass::Other || context.pool(pool::BLOCKS).in_use() < count {
            return None;
        }
        let mut may_have_more = false;
        for number in 0..blocks.max {
            let whose = block_name(internal.addr, number, &context.flow());
            let Some(block) = context.pool(pool::BLOCKS).item_of(&whose) else {
                may_have_more = true;
                continue;
            };
            let (address, range) = self.block(block, blocks);
            let mut choices = self.space.choices(class, address, range, range.first, 1);
            let ports = context.pool(pool::PORTS);
            if choices.any(|choice| ports.has_free(choice)) {
                return None;
            }
        }
        let of = |address: usize| {
            let first = address as u32 * self.shares.blocks_per_address() + share.start;
            PoolRange { first, count, from: first, step: 1 }
        };
        let addresses: Vec<usize> = self.addresses_for(internal.addr, context).collect();
        let is_free = |&address: &usize| context.pool(pool::BLOCKS).has_free(of(address));
        if !may_have_more || addresses.is_empty() || addresses.iter().any(is_free) {
            return None;
        }
        let chosen = (context.random() % addresses.len() as u64) as usize;
        addresses.get(chosen).map(|&address| of(address))
    }

    /// Returns a port range available to the flow, if there is one and every range is full.
    fn full_range(
        &self,
        class: PortClass,
        internal: Endpoint,
        context: &mut Context<'_>,
    ) -> Option<PoolRange> {
        if class == PortClass::Other {
            return None;
        }
        let within = self.shares.share_for(class, internal.port, context.affinity_group())?;
        if self.has_all_ports && context.pool(pool::PORTS).in_use() < within.count() {
            return None;
        }
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

    /// Returns whether the subscriber has reached a limit.
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

    /// Returns whether the inside endpoint has a mapping.
    fn is_mapped(
        &self,
        class: PortClass,
        internal: Endpoint,
        remote: Endpoint,
        context: &mut Context<'_>,
    ) -> bool {
        let name = self.mapping_name(internal, remote, &context.flow());
        class != PortClass::Other && context.pool(pool::PORTS).item_of(&name).is_some()
    }
}

/// A flow to evict. The greatest in order is evicted first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HalfOpen {
    /// See [`compared_silence_ns`]. Flows with more than a few packets probably have answers that
    /// take another path.
    silence_ns: u64,
    record: Reverse<u32>,
}

/// Returns the flow that holds this port, if it is the only one and its connection is not open.
fn half_open(item: u32, ports: &SharedPool, flows: &LiveFlows<'_, State>, now_ns: u64) -> Option<HalfOpen> {
    let record = u32::try_from(ports.note(item)).ok()?;
    let flow = flows.get(record)?;
    let holds = flow.state.has(State::HELD) && flow.state.item == PoolItem::of(item);
    let gives_way = holds && flow.connection.gives_way() && ports.users(item) == 1;
    let silence_ns = compared_silence_ns(now_ns.saturating_sub(flow.last_seen_ns), flow.packets);
    gives_way.then_some(HalfOpen { silence_ns, record: Reverse(record) })
}
