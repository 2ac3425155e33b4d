//! How fast sources may begin flows: a bucket for each, shared by its flows.

use nf::{Context, MeterKey, PacketView};
use packet::DropReason;

use super::{SOURCES, counter};
use crate::masks::AddressMasks;
use crate::policer::MeterExhaustion;
use crate::policer::marker::{BucketLevels, Marker, PACKET, PacketColour};

/// How fast sources may begin flows.
pub struct Sources {
    pub rate: Marker,
    masks: AddressMasks,
    when_full: MeterExhaustion,
    /// After this time without use a meter is as good as new.
    as_new_ns: u64,
}

impl Sources {
    pub fn new(rate: Marker, masks: AddressMasks, when_full: MeterExhaustion) -> Sources {
        Sources { rate, masks, when_full, as_new_ns: rate.full_after_ns() }
    }

    /// Whether the packet's source is free to begin a flow with it; why it is to be dropped, if
    /// not.
    #[inline(never)]
    pub fn begin(&self, packet: &PacketView<'_>, context: &mut Context<'_>) -> Result<(), DropReason> {
        let (key, now_ns) = (self.key(packet, context), context.now_ns());
        let Some(value) = context.meters(SOURCES).of(&key, now_ns, self.as_new_ns) else {
            context.count(counter::UNMETERED, 1);
            return match self.when_full {
                MeterExhaustion::Pass => Ok(()),
                MeterExhaustion::Drop => Err(DropReason::DosNoMeter),
            };
        };
        let levels: &mut BucketLevels = zerocopy::transmute_mut!(value);
        if self.rate.colour(levels, PACKET, now_ns, PacketColour::Green) == PacketColour::Green {
            return Ok(());
        }
        context.count(counter::REFUSED, 1);
        Err(DropReason::DosSource)
    }

    /// In whose name a flow begins. Equal addresses of tenants, VLANs or virtual networks are
    /// different ones.
    fn key(&self, packet: &PacketView<'_>, context: &Context<'_>) -> MeterKey {
        let key = context.flow().key;
        let addr = self.masks.apply(packet.ends().0.addr);
        [(addr >> 64) as u64, addr as u64, zerocopy::transmute!(key.scope), u64::from(key.tenant)]
    }
}
