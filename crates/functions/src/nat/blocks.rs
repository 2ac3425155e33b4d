//! Port blocks: a subscriber gets its ports in a few ranges of its own, so one log entry covers
//! many mappings (RFC 6888 REQ-14).

use nf::Context;
use nf::pool::{PoolRange, SharedPool};
use packet::{Addr, DropReason};

use super::config::{BlockConfig, LogScope};
use super::events::NatEvent;
use super::log::NatLogEvent;
use super::mapping::{IN_ORDER, ItemUse, PortRequest, block_name};
use super::net::PortRange;
use super::space::ExternalPort;
use super::{COUNTERS, Nat, pool};

impl Nat {
    /// Allocates a port in one of the subscriber's blocks, or in a new block.
    pub(super) fn take_in_blocks(
        &self,
        wanted: &PortRequest<'_>,
        context: &mut Context<'_>,
    ) -> Result<u32, DropReason> {
        let internal = wanted.internal;
        let Some(blocks) = self.config.blocks else { return Err(DropReason::Internal) };
        let mut free_number = None;
        for number in 0..blocks.max {
            let whose = block_name(internal.addr, number, &context.flow());
            let Some(block) = context.pool(pool::BLOCKS).item_of(&whose) else {
                free_number = free_number.or(Some(number));
                continue;
            };
            let (address, range) = self.block(block, blocks);
            if let Some(item) = self.take_in(wanted, address, range, SharedPool::take, context) {
                let blocks = context.pool(pool::BLOCKS);
                blocks.join(blocks.look_up(&whose));
                return Ok(item);
            }
        }
        let Some(number) = free_number else {
            self.quota_event(internal.addr, u32::from(blocks.max) * u32::from(blocks.size), context);
            return Err(DropReason::NatSubscriberLimit);
        };
        let block = self.take_block(internal.addr, number, context).ok_or(DropReason::NatPortsExhausted)?;
        let (address, range) = self.block(block, blocks);
        match self.take_in(wanted, address, range, SharedPool::take, context) {
            Some(item) => Ok(item),
            None => {
                // Static forwards use all of its ports, or the port index is full.
                self.free_block(internal.addr, block, ItemUse::Refused, context);
                Err(DropReason::NatPortsExhausted)
            }
        }
    }

    /// Releases one reference to the block of `place`.
    pub(super) fn leave_block(
        &self,
        internal: Addr,
        place: ExternalPort,
        item_use: ItemUse,
        context: &mut Context<'_>,
    ) {
        let Some(block) = self.block_of(place) else { return };
        self.free_block(internal, block, item_use, context);
    }

    /// Returns the block of a port.
    pub(super) fn block_of(&self, place: ExternalPort) -> Option<u32> {
        let size = u32::from(self.config.blocks?.size);
        let within = u32::from(place.port.saturating_sub(self.shares.high().first)) / size;
        Some(place.address as u32 * self.shares.blocks_per_address() + within)
    }

    /// Takes the block held down for the subscriber, else a free block, else a block held down for
    /// another subscriber.
    fn take_block(&self, internal: Addr, number: u16, context: &mut Context<'_>) -> Option<u32> {
        let whose = block_name(internal, number, &context.flow());
        let share = self.shares.blocks_for(context.affinity_group());
        let per_address = self.shares.blocks_per_address();
        let count = share.end - share.start;
        let random = (context.random() % u64::from(count.max(1))) as u32;
        let addresses = self.addresses_for(internal, context);
        let choices = addresses.map(|address| {
            let first = address as u32 * per_address + share.start;
            PoolRange { first, count, from: first + random, step: 1 }
        });
        let now_ns = context.now_ns();
        let blocks = context.pool(pool::BLOCKS);
        blocks.end_holds(now_ns);
        let whose = blocks.look_up(&whose);
        let own = blocks.held_for(whose);
        let own = own.filter(|own| {
            choices.clone().any(|choice| (choice.first..choice.first + choice.count).contains(own))
        });
        let block = match own {
            Some(own) => blocks.take_item(whose, own),
            None => IN_ORDER
                .into_iter()
                .find_map(|take| choices.clone().find_map(|choice| take(blocks, whose, choice))),
        }?;
        context.count(COUNTERS.blocks_taken, 1);
        self.log_block(NatLogEvent::BlockTaken, internal, block, context);
        Some(block)
    }

    fn free_block(&self, internal: Addr, block: u32, item_use: ItemUse, context: &mut Context<'_>) {
        let now_ns = context.now_ns();
        let blocks = context.pool(pool::BLOCKS);
        let is_freed = match item_use {
            ItemUse::Ends => blocks.leave_held(block, now_ns), // RFC 6888 REQ-8
            ItemUse::Refused | ItemUse::Moves => blocks.leave(block),
        };
        if is_freed {
            context.count(COUNTERS.blocks_freed, 1);
            self.log_block(NatLogEvent::BlockFreed, internal, block, context);
        }
    }

    fn log_block(&self, what: NatLogEvent, internal: Addr, block: u32, context: &mut Context<'_>) {
        if let (Some(blocks), true) = (self.config.blocks, self.wanted.blocks) {
            let event = match what {
                NatLogEvent::BlockFreed => NatEvent::BlockRelease,
                _ => NatEvent::BlockAllocate,
            };
            self.block_event(event, internal, self.block(block, blocks), context);
        }
        if let (Some(blocks), true) = (self.config.blocks, self.config.log != LogScope::Nothing) {
            self.log_ports(what, internal, self.block(block, blocks), context);
        }
    }

    /// Returns the number of the block's address, and the block's ports.
    pub(super) fn block(&self, block: u32, blocks: BlockConfig) -> (usize, PortRange) {
        let per_address = self.shares.blocks_per_address().max(1);
        let (address, within) = (block / per_address, block % per_address);
        // A block lies within the high ports (`new`), so neither end exceeds 65535.
        let first = self.shares.high().first + (within * u32::from(blocks.size)) as u16;
        (address as usize, PortRange { first, last: first + (blocks.size - 1) })
    }
}
