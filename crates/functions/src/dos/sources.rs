//! Rate limits of sources: one bucket per source, shared by its flows.

use nf::{Context, MeterKey, PacketView};
use packet::DropReason;

use super::{COUNTERS, SOURCES};
use crate::masks::AddressMasks;
use crate::policer::MeterExhaustion;
use crate::policer::marker::{BucketLevels, Marker, PACKET, PacketColour};

/// The rate limits of sources.
pub struct SourceLimiter {
    pub rate: Marker,
    masks: AddressMasks,
    when_full: MeterExhaustion,
    /// After this time without use a meter is full again.
    as_new_ns: u64,
}

impl SourceLimiter {
    pub fn new(rate: Marker, masks: AddressMasks, when_full: MeterExhaustion) -> SourceLimiter {
        SourceLimiter { rate, masks, when_full, as_new_ns: rate.full_after_ns() }
    }

    /// Returns whether the packet's source may begin a flow with it, or the drop reason.
    #[inline(never)]
    pub fn begin(&self, packet: &PacketView<'_>, context: &mut Context<'_>) -> Result<(), DropReason> {
        let (key, now_ns) = (self.key(packet, context), context.now_ns());
        let Some(value) = context.meters(SOURCES).of(&key, now_ns, self.as_new_ns) else {
            context.count(COUNTERS.unmetered, 1);
            return match self.when_full {
                MeterExhaustion::Pass => Ok(()),
                MeterExhaustion::Drop => Err(DropReason::DosNoMeter),
            };
        };
        let levels: &mut BucketLevels = zerocopy::transmute_mut!(value);
        if self.rate.colour(levels, PACKET, now_ns, PacketColour::Green) == PacketColour::Green {
            return Ok(());
        }
        context.count(COUNTERS.refused, 1);
        Err(DropReason::DosSource)
    }

    /// Returns the key of the source. Equal addresses of different tenants, VLANs or virtual
    /// networks are different sources.
    fn key(&self, packet: &PacketView<'_>, context: &Context<'_>) -> MeterKey {
        let key = context.flow().key;
        let addr = self.masks.apply(packet.ends().0.addr);
        [(addr >> 64) as u64, addr as u64, zerocopy::transmute!(key.scope), u64::from(key.tenant())]
    }
}
