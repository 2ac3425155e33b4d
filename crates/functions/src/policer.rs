//! The policer (S27): token buckets measure each packet against its rate, and the packet is passed,
//! marked, remarked or dropped accordingly.
//!
//! [`marker`] contains the buckets. This module finds those of a packet: in its flow's state, or
//! among the meters that flows share. See the README.

mod config;
pub mod dscp;
pub mod marker;
#[cfg(test)]
mod tests;

use std::num::NonZeroU8;

use nf::{
    Access, Affinity, AffinityGroup, AffinityGroups, AffinityKey, Attribute, Context, ControlError, Counter,
    Descriptor, Field, Maturity, MeterKey, NetworkFunction, NodeSharing, PacketView, Scaling, Setup, Shared,
    Verdict,
};
use packet::{Addr, DropReason, FlowKey, Packet, PacketClass, Side};
use values::{ConfigError, Quantity};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::masks::AddressMasks;

pub use config::{
    ColourAction, ColourMode, Config, LengthBase, METERS_MAX, MeterExhaustion, MeterScope, OVERHEAD_MAX,
    PolicedDirection, PolicerRates, Remark,
};
use dscp::Dscp;
use marker::{BucketLevels, PacketColour};

/// A policer.
pub struct Policer {
    rates: PolicerRates,
    /// Fast path for the usual policer: per connection and direction, colour-blind, by IP length.
    plain: bool,
    /// Bucket pair of packets from each side; none: not policed.
    lanes: [Option<BucketPair>; 2],
    aware: bool,
    /// Action for each colour.
    actions: [ColourAction; 3],
    /// True for each colour with the action `pass`.
    passes: [bool; 3],
    length: LengthBase,
    /// Address bits that distinguish meters.
    masks: AddressMasks,
    per: MeterScope,
    when_full: MeterExhaustion,
    /// Idle time after which a meter is full again.
    as_new_ns: u64,
    /// Flows may be at several nodes: each carries its subscriber's buckets.
    is_grouped: bool,
    config: Config,
}

/// Number of a pair of buckets, 1 or 2.
type BucketPair = NonZeroU8;

/// Per-flow state: the buckets of a connection, as one pair or one per side. On a cluster: the
/// subscriber's buckets after the flow's last packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    levels: [BucketLevels; 2],
}

/// Attribute: 1 green, 2 yellow, 3 red.
const COLOUR: usize = 0;
/// Attribute: a packet of the flow was not green.
const EXCEEDED: usize = 1;

nf::counters! {
    /// Green packets.
    packets_green: packets,
    /// Yellow packets.
    packets_yellow: packets,
    /// Red packets.
    packets_red: packets,
    /// Bytes of green packets, as `length` says, without `overhead`.
    bytes_green: bytes,
    /// Bytes of yellow packets, as `length` says, without `overhead`.
    bytes_yellow: bytes,
    /// Bytes of red packets, as `length` says, without `overhead`.
    bytes_red: bytes,
    /// Packets of a side that is not policed.
    packets_unpoliced: packets,
    /// Packets without a free meter.
    packets_unmetered: packets,
}

/// Counters of packets by colour.
const PACKETS: [Counter; 3] = [COUNTERS.packets_green, COUNTERS.packets_yellow, COUNTERS.packets_red];
/// Counters of bytes by colour.
const BYTES: [Counter; 3] = [COUNTERS.bytes_green, COUNTERS.bytes_yellow, COUNTERS.bytes_red];

/// Maximum length of a frame, so that its cost does not overflow: captures may claim any length.
const BYTES_MAX: u64 = 1 << 30;

/// Index of the meter table in the descriptor.
const METERS: usize = 0;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "policer",
    aliases: &["police", "rate-limit", "RateLimit"],
    summary: "Limits the rate of connections, subscribers or tenants: token buckets, one or two rates, three colours",
    maturity: Maturity::Preview,
    state_version: 1,
    attributes: &[
        Attribute {
            name: "colour",
            bits: 2,
            values: &[],
            meaning: "1 green, 2 yellow, 3 red; 0: not marked",
        },
        Attribute {
            name: "exceeded",
            bits: 1,
            values: &[],
            meaning: "a packet of the flow was marked yellow or red",
        },
    ],
    reads: &[Field::SourceAddress, Field::DestinationAddress, Field::Dscp, Field::Vlan],
    writes: &[Field::Dscp],
    payload: Access::Ignore,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    shared: &[Shared::Meters("meters")],
    across_nodes: NodeSharing::PerGroup,
    cycles_per_packet: 30,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Policer {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Policer, ConfigError> {
        check(&config)?;
        match config.per {
            MeterScope::Connection => {}
            MeterScope::Inside => {
                let (prefix4, prefix6) = (config.prefix4, Some(config.prefix6));
                setup.groups_by(AffinityKey::Subscriber { prefix4, prefix6 });
            }
            _ => {
                setup.one_machine("only buckets `per` host `inside` or `connection` can be at several nodes")
            }
        }
        let rates = config.rates()?;
        setup.meters(if config.per == MeterScope::Connection { 0 } else { config.meters });
        let lane = |number: Option<u8>| number.and_then(BucketPair::new);
        Ok(Policer {
            rates,
            plain: is_plain(&config),
            lanes: match config.direction {
                PolicedDirection::Each => [lane(Some(1)), lane(Some(2))],
                PolicedDirection::Both => [lane(Some(1)), lane(Some(1))],
                PolicedDirection::FromInside => [lane(Some(1)), None],
                PolicedDirection::FromOutside => [None, lane(Some(1))],
            },
            aware: config.aware == ColourMode::Dscp,
            actions: [config.green, config.yellow, config.red],
            passes: [config.green, config.yellow, config.red].map(|action| action == ColourAction::Pass),
            length: config.length,
            masks: AddressMasks::new(config.prefix4, config.prefix6)?,
            per: config.per,
            when_full: config.when_full,
            as_new_ns: rates.marker.full_after_ns(),
            is_grouped: setup.affinity_groups.is_some() && config.per == MeterScope::Inside,
            config,
        })
    }

    // S27
    #[inline(always)]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let measured = if self.plain {
            let (levels, bytes) = (&mut state.levels[context.side() as usize], packet.ip_len() as u64);
            Ok((self.colour(levels, bytes, context.now_ns(), PacketColour::Green), bytes))
        } else {
            self.measure(packet, state, context)
        };
        let (colour, bytes) = match measured {
            Ok(measured) => measured,
            Err(verdict) => return verdict,
        };
        context.count(PACKETS[colour as usize], 1);
        context.count(BYTES[colour as usize], bytes);
        if self.passes[colour as usize] { Verdict::Forward } else { self.act(colour, packet, context) }
    }

    fn group_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup> {
        let meta = packet.meta();
        let has_ends = meta.class != PacketClass::LaterFragment && meta.class != PacketClass::NotIp;
        if self.per != MeterScope::Inside || !has_ends {
            return None;
        }
        let (source, destination) = meta.key.ends(meta.reversed);
        let inside = if meta.transit.side == Side::Inside { source } else { destination };
        let masked = Addr::from_bytes(self.masks.apply(inside.addr).to_be_bytes());
        Some(groups.of_subscriber(masked, &meta.key))
    }

    fn flow_arrives(&self, state: &mut State, context: &mut Context<'_>) -> bool {
        if self.is_grouped {
            self.bring_buckets(state, context);
        }
        true
    }

    /// Executes `KEY AMOUNT` for `rate`, `burst`, `excess_burst`, `peak_rate` and `peak_burst`.
    /// Spent tokens stay spent, up to the new burst.
    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        let config = self.changed_config(command)?;
        self.rates = config.rates().map_err(|error| ControlError(error.to_string()))?;
        self.as_new_ns = self.rates.marker.full_after_ns();
        self.config = config;
        Ok(())
    }

    /// Checks a command on its own. Earlier commands determine whether rate and peak rate are
    /// compatible, so that is checked on execution.
    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        let mut alone = self.changed_config(command)?;
        if command.trim_start().starts_with("peak_") {
            alone.rate.value = 1;
            alone.burst = None;
        } else {
            (alone.peak_rate, alone.peak_burst) = (None, None);
        }
        alone.rates().map(drop).map_err(|error| ControlError(error.to_string()))
    }
}

impl Policer {
    /// Returns the configuration after a command, without checking that its amounts are compatible.
    fn changed_config(&self, command: &str) -> Result<Config, ControlError> {
        let misunderstood = || {
            ControlError(format!(
                "expected a command such as `rate 20Mbps` or `burst 64KiB`, got `{command}`"
            ))
        };
        let [key, amount] = *command.split_whitespace().collect::<Vec<_>>() else {
            return Err(misunderstood());
        };
        let amount: Quantity =
            amount.parse().map_err(|error| ControlError(format!("`{amount}`: {error}")))?;
        let mut config = self.config.clone();
        match key {
            "rate" if amount.kind != config.rate.kind => {
                let message =
                    format!("the rate cannot become {}: the unit of spent tokens differs", amount.kind);
                return Err(ControlError(message));
            }
            "rate" => config.rate = amount,
            "burst" => config.burst = Some(amount),
            "excess_burst" if config.peak_rate.is_none() => config.excess_burst = Some(amount),
            "peak_rate" if config.peak_rate.is_some() => config.peak_rate = Some(amount),
            "peak_burst" if config.peak_rate.is_some() => config.peak_burst = Some(amount),
            _ => return Err(misunderstood()),
        }
        Ok(config)
    }

    /// Returns the packet's colour and counted bytes, or the verdict on an unmetered packet.
    #[inline(never)]
    fn measure(
        &self,
        packet: &PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Result<(PacketColour, u64), Verdict> {
        let Some(lane) = self.lanes[context.side() as usize] else {
            context.count(COUNTERS.packets_unpoliced, 1);
            return Err(Verdict::Forward);
        };
        let bytes = match self.length {
            LengthBase::Ip => packet.ip_len() as u64,
            LengthBase::Link => u64::from(packet.meta().wire_len).min(BYTES_MAX),
        };
        let before = if self.aware { Dscp::of(packet).colour() } else { PacketColour::Green };
        let colour = match self.per {
            MeterScope::Connection => {
                let levels = &mut state.levels[usize::from(lane.get() == 2)];
                self.colour(levels, bytes, context.now_ns(), before)
            }
            _ => match self.colour_of_key(packet, lane, (bytes, before), state, context) {
                Some(colour) => colour,
                None => return Err(self.unmetered(context)),
            },
        };
        Ok((colour, bytes))
    }

    #[inline(always)]
    fn colour(
        &self,
        levels: &mut BucketLevels,
        bytes: u64,
        now_ns: u64,
        before: PacketColour,
    ) -> PacketColour {
        let PolicerRates { marker, per_byte, per_packet } = &self.rates;
        marker.colour(levels, bytes * per_byte + per_packet, now_ns, before)
    }

    /// Returns the colour by shared buckets; none if there is no room for them.
    #[inline(never)]
    fn colour_of_key(
        &self,
        packet: &PacketView<'_>,
        lane: BucketPair,
        (bytes, before): (u64, PacketColour),
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Option<PacketColour> {
        let key = self.key(packet, lane, context);
        let now_ns = context.now_ns();
        let value = context.meters(METERS).of(&key, now_ns, self.as_new_ns)?;
        let levels: &mut BucketLevels = zerocopy::transmute_mut!(value);
        let colour = self.colour(levels, bytes, now_ns, before);
        if self.is_grouped {
            state.levels[usize::from(lane.get() == 2)] = *levels;
        }
        Some(colour)
    }

    /// Adopts the buckets that a flow brings, if they are newer than the local ones. Only functions
    /// at the outside rewrite addresses: the dispatcher refuses other policies.
    fn bring_buckets(&self, state: &State, context: &mut Context<'_>) {
        let flow = context.flow();
        let ends = match flow.origin {
            Side::Inside => flow.key.ends(flow.reversed),
            Side::Outside => context.ends_at_exit().unwrap_or(flow.key.ends(flow.reversed)),
        };
        let inside = if flow.origin == Side::Inside { ends.0 } else { ends.1 };
        for (lane, brought) in (1..).zip(state.levels) {
            let key = self.key_of(inside.addr, lane, &flow.key);
            if brought != BucketLevels::default()
                && let Some(value) = context.meters(METERS).of(&key, flow.now_ns, self.as_new_ns)
            {
                let levels: &mut BucketLevels = zerocopy::transmute_mut!(value);
                *levels = levels.newer(brought);
            }
        }
    }

    /// Returns the meter's key. Equal addresses in different tenants, VLANs or virtual networks are
    /// different.
    fn key(&self, packet: &PacketView<'_>, lane: BucketPair, context: &Context<'_>) -> MeterKey {
        let key = context.flow().key;
        let last = u64::from(lane.get()) << 16;
        let addr = match (self.per, context.side()) {
            (MeterScope::Connection | MeterScope::All, _) => return [0, 0, 0, last],
            (MeterScope::Tenant, _) => return [0, 0, 0, last | u64::from(key.tenant())],
            (MeterScope::Source, _)
            | (MeterScope::Inside, Side::Inside)
            | (MeterScope::Outside, Side::Outside) => packet.ends().0.addr,
            (MeterScope::Destination | MeterScope::Inside | MeterScope::Outside, _) => packet.ends().1.addr,
        };
        self.key_of(addr, lane.get(), &key)
    }

    /// Returns the key of an address's meter.
    fn key_of(&self, addr: Addr, lane: u8, key: &FlowKey) -> MeterKey {
        let addr = self.masks.apply(addr);
        let scope: u64 = zerocopy::transmute!(key.scope);
        let last = u64::from(lane) << 16;
        [(addr >> 64) as u64, addr as u64, scope, last | u64::from(key.tenant())]
    }

    /// Applies the action of the packet's colour.
    #[inline(never)]
    fn act(&self, colour: PacketColour, packet: &mut PacketView<'_>, context: &mut Context<'_>) -> Verdict {
        match self.actions[colour as usize] {
            ColourAction::Pass => Verdict::Forward,
            ColourAction::Drop => Verdict::Drop(DropReason::PolicerRate),
            ColourAction::Mark => mark(colour, context),
            ColourAction::Remark(to) => remark(to, colour, packet, context),
        }
    }

    #[cold]
    fn unmetered(&self, context: &mut Context<'_>) -> Verdict {
        context.count(COUNTERS.packets_unmetered, 1);
        match self.when_full {
            MeterExhaustion::Pass => Verdict::Forward,
            MeterExhaustion::Drop => Verdict::Drop(DropReason::PolicerNoMeter),
        }
    }
}

fn mark(colour: PacketColour, context: &mut Context<'_>) -> Verdict {
    context.tag_packet(COLOUR, colour as u16 + 1);
    if colour != PacketColour::Green {
        context.tag_flow(EXCEEDED, 1);
    }
    Verdict::Forward
}

fn remark(
    to: Remark,
    colour: PacketColour,
    packet: &mut PacketView<'_>,
    context: &mut Context<'_>,
) -> Verdict {
    let is = Dscp::of(packet);
    let becomes = match to {
        Remark::To(dscp) => dscp,
        Remark::Precedence => is.with_precedence_of(colour),
    };
    if becomes != is {
        packet.set_dscp(becomes.number());
    }
    mark(colour, context)
}

/// Returns whether [`Policer::plain`] applies.
fn is_plain(config: &Config) -> bool {
    config.per == MeterScope::Connection
        && config.direction == PolicedDirection::Each
        && config.aware == ColourMode::Blind
        && config.length == LengthBase::Ip
}

/// Checks limits that do not depend on the amounts.
fn check(config: &Config) -> Result<(), ConfigError> {
    let too_large =
        |key: &str, most: u64| ConfigError::new(format!("`{key}` is too large: the maximum is {most}"));
    if config.overhead > OVERHEAD_MAX {
        return Err(too_large("overhead", OVERHEAD_MAX));
    }
    if config.meters > METERS_MAX {
        return Err(too_large("meters", METERS_MAX.into()));
    }
    if config.meters == 0 {
        return Err(ConfigError::new("`meters` must be above zero"));
    }
    Ok(())
}
