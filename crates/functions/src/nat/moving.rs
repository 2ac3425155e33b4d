//! Flows that move between nodes: their pool items move with them.
//!
//! A port is the same number at all nodes, and only its affinity group's node allocates it. All
//! other items have a meaning only at their node: the flow gets new ones where it arrives.

use nf::Context;
use packet::{Addr, Endpoint};

use super::mapping::{ItemUse, anywhere, block_name, note_holder, subscriber};
use super::space::{ExternalPort, PortClass};
use super::state::{PoolItem, State};
use super::{Nat, pool};

impl Nat {
    /// Releases the items of a flow that continues elsewhere: no counter, event or log.
    pub(super) fn leave_node(&self, state: &mut State, context: &mut Context<'_>) {
        self.give_up(state, ItemUse::Moves, context);
    }

    /// Takes the items that a flow held at another node. Returns false on failure; the state then
    /// names the items taken so far.
    pub(super) fn arrive(&self, state: &mut State, context: &mut Context<'_>) -> bool {
        let items = [state.session, state.item, state.permission, state.peer_item, state.peer_permission];
        state.session = PoolItem::NONE;
        (state.permission, state.peer_permission) = (PoolItem::NONE, PoolItem::NONE);
        let held = state.flags & (State::HELD | State::PEER_HELD);
        state.flags &= !held;
        let [session, _, permission, _, peer_permission] = items;
        let flow = context.flow();
        let (first, second) = flow.key.ends(flow.reversed);
        // The far end of the first host's packets.
        let remote = if flow.origin == packet::Side::Inside { second } else { first };
        if session != PoolItem::NONE {
            let name = subscriber(state.internal.addr, &flow);
            state.session = self.take_named(pool::SUBSCRIBERS, &name, context);
            if state.session == PoolItem::NONE {
                return false;
            }
        }
        if held & State::HELD != 0 && state.item != PoolItem::NONE {
            let Some(item) = self.arrive_mapping(state, remote, context) else { return false };
            state.item = item;
            state.flags |= State::HELD;
        }
        if held & State::HELD != 0 && state.item == PoolItem::NONE {
            state.flags |= State::HELD; // Of a static rule.
        }
        if held & State::PEER_HELD != 0 {
            if !self.arrive_port(state.peer_internal, state.peer_item, context) {
                return false;
            }
            state.flags |= State::PEER_HELD;
        }
        for (had, external, remote, is_peer) in [
            (permission, state.external, remote.addr, false),
            (peer_permission, state.peer_external, state.external.addr, true),
        ] {
            if had == PoolItem::NONE {
                continue;
            }
            let taken = self.permit(external, remote, context);
            *(if is_peer { &mut state.peer_permission } else { &mut state.permission }) = taken;
            if taken == PoolItem::NONE {
                return false;
            }
        }
        true
    }

    /// Takes the flow's mapping under the name that it had. Returns its item here.
    fn arrive_mapping(&self, state: &State, remote: Endpoint, context: &mut Context<'_>) -> Option<PoolItem> {
        if state.class == PortClass::Other as u8 {
            return self.map_other_as(state.internal, state.external, remote, context);
        }
        self.arrive_port(state.internal, state.item, context).then_some(state.item)
    }

    /// Takes the very port that an inside endpoint had.
    fn arrive_port(&self, internal: Endpoint, item: PoolItem, context: &mut Context<'_>) -> bool {
        let (Some(number), flow) = (item.item(), context.flow()) else { return true };
        let Some(place) = self.space.place_of(number) else { return false };
        // The mapping does not depend on the remote host: see `PortShares::new`.
        let name = self.mapping_name(internal, internal, &flow);
        let ports = context.pool(pool::PORTS);
        match ports.item_of(&name) {
            Some(here) if here != number => return false,
            Some(_) => _ = ports.join(ports.look_up(&name)),
            None => {
                if ports.take_item(ports.look_up(&name), number).is_none() {
                    return false;
                }
                self.count_port(internal.addr, true, context);
                if !self.arrive_block(internal.addr, place, context) {
                    context.pool(pool::PORTS).leave(number);
                    self.count_port(internal.addr, false, context);
                    return false;
                }
            }
        }
        note_holder(number, context);
        true
    }

    /// Takes the block of a port, under any free number of the subscriber.
    fn arrive_block(&self, internal: Addr, place: ExternalPort, context: &mut Context<'_>) -> bool {
        let (Some(blocks), Some(block)) = (self.config.blocks, self.block_of(place)) else { return true };
        let flow = context.flow();
        let held = context.pool(pool::BLOCKS);
        if let Some(name) = held.key_of(block).copied() {
            return held.join(held.look_up(&name)).is_some();
        }
        let mut names = (0..blocks.max).map(|number| block_name(internal, number, &flow));
        let name = names.find(|name| held.item_of(name).is_none());
        name.is_some_and(|name| held.take_item(held.look_up(&name), block).is_some())
    }

    /// Takes or joins an item that is only a name.
    fn take_named(&self, number: usize, name: &nf::pool::PoolKey, context: &mut Context<'_>) -> PoolItem {
        let random = context.random();
        let items = context.pool(number);
        let found = items.look_up(name);
        let taken = items.join(found).or_else(|| items.take(found, anywhere(items.size(), random)));
        taken.map_or(PoolItem::NONE, PoolItem::of)
    }
}
