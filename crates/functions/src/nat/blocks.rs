//! Port blocks: a subscriber's ports come from a few ranges of its own, so one log entry covers
//! many mappings (RFC 6888 REQ-14).

use nf::Context;
use nf::pool::{PoolKey, PoolRange};
use packet::{Addr, DropReason, Endpoint};

use super::config::{BlockConfig, LogScope};
use super::events::NatEvent;
use super::log::NatLogEvent;
use super::mapping::block_name;
use super::net::PortRange;
use super::space::{ExternalPort, PortClass};
use super::{COUNTERS, Nat, pool};

impl Nat {
    /// Allocates a port in one of the subscriber's blocks, or in a new block.
    pub(super) fn take_in_blocks(
        &self,
        name: &PoolKey,
        class: PortClass,
        internal: Endpoint,
        context: &mut Context<'_>,
    ) -> Result<u32, DropReason> {
        let Some(blocks) = self.config.blocks else { return Err(DropReason::Internal) };
        let mut free_number = None;
        for number in 0..blocks.max {
            let whose = block_name(internal.addr, number, &context.flow());
            let Some(block) = context.pool(pool::BLOCKS).item_of(&whose) else {
                free_number = free_number.or(Some(number));
                continue;
            };
            let (address, range) = self.block(block, blocks);
            if let Some(item) = self.take_in(name, class, address, range, internal.port, context) {
                context.pool(pool::BLOCKS).join(&whose);
                return Ok(item);
            }
        }
        let Some(number) = free_number else {
            self.quota_event(internal.addr, u32::from(blocks.max) * u32::from(blocks.size), context);
            return Err(DropReason::NatSubscriberLimit);
        };
        let block = self.take_block(internal.addr, number, context).ok_or(DropReason::NatPortsExhausted)?;
        let (address, range) = self.block(block, blocks);
        match self.take_in(name, class, address, range, internal.port, context) {
            Some(item) => Ok(item),
            None => {
                // Static forwards use all of its ports, or the port index is full.
                self.free_block(internal.addr, block, context);
                Err(DropReason::NatPortsExhausted)
            }
        }
    }

    /// Releases one reference to the block of `place`.
    pub(super) fn leave_block(&self, internal: Addr, place: ExternalPort, context: &mut Context<'_>) {
        let Some(block) = self.block_of(place) else { return };
        self.free_block(internal, block, context);
    }

    /// Returns the block of a port.
    pub(super) fn block_of(&self, place: ExternalPort) -> Option<u32> {
        let size = u32::from(self.config.blocks?.size);
        let within = u32::from(place.port.saturating_sub(self.shares.high().first)) / size;
        Some(place.address as u32 * self.shares.blocks_per_address() + within)
    }

    fn take_block(&self, internal: Addr, number: u16, context: &mut Context<'_>) -> Option<u32> {
        let whose = block_name(internal, number, &context.flow());
        let share = self.shares.blocks_for(context.affinity_group());
        let count = share.end - share.start;
        let random = (context.random() % u64::from(count.max(1))) as u32;
        let block = self.addresses_for(internal, context).find_map(|address| {
            let first = address as u32 * self.shares.blocks_per_address() + share.start;
            let choice = PoolRange { first, count, from: first + random, step: 1 };
            context.pool(pool::BLOCKS).take(&whose, choice)
        })?;
        context.count(COUNTERS.blocks_taken, 1);
        self.log_block(NatLogEvent::BlockTaken, internal, block, context);
        Some(block)
    }

    fn free_block(&self, internal: Addr, block: u32, context: &mut Context<'_>) {
        if context.pool(pool::BLOCKS).leave(block) {
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
