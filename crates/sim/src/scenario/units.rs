//! `[units]`: the units that process packets.

use std::borrow::Cow;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

use values::{ByteCount, Nanos, Picos, PositiveBitRate};

/// The units.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UnitsSettings {
    /// Number of units: 1 to 10.
    pub count: UnitCount,
    /// Capacity of a unit: 1 Gbps (S41).
    pub capacity: PositiveBitRate,
    /// Effect of `capacity` on a unit.
    pub service: ServiceKind,
    /// Period of a quota: 100 ms, as for containers on Linux.
    pub quota_period: Nanos,
    /// Time per packet; it or `byte_cost` replaces `capacity`.
    pub packet_cost: Option<Picos>,
    /// Additional time per byte.
    pub byte_cost: Option<Picos>,
    /// Time per message, at its receiver and at a unit that sends it to another unit: 0 by default.
    pub message_cost: Picos,
    /// Limit on a unit's queue, in packets; more are dropped.
    pub queue: usize,
    /// The place where they are dropped: the unit, by default.
    pub drops_at: DropPlace,
    /// Time from the order of a unit until it is ready (S106).
    pub start: Nanos,
    /// Warm units in addition to the active ones: none (S106).
    pub warm: u16,
    /// Time from the order of a warm unit until it is ready.
    pub warm_start: Nanos,
    /// Bytes of a flow's state.
    pub state: ByteCount,
    /// Bytes of the state that each packet changes, at least 8; by default, all.
    pub changes: Option<ByteCount>,
    /// Send deltas against the version that the target is known to have.
    pub deltas: bool,
    /// Silence of a flow after which its state is replicated; by default T/2 (S51).
    pub replicate_after: Option<Nanos>,
    /// Time that a packet waits for earlier ones.
    pub reorder_timeout: Nanos,
    /// Time after which a pull without answer, or a state without acknowledgement, is
    /// retransmitted.
    pub retransmit: Nanos,
    /// Limit on packets that wait for a state or for earlier packets, all flows of a unit.
    pub pending_max: usize,
    /// The same, of one flow.
    pub pending_per_flow_max: usize,
    /// Limit on the bytes of replicas at a unit.
    pub replicas_max: ByteCount,
    /// Silence after which a flow ends; `None`: never.
    pub expire_after: Option<Nanos>,
}

impl Default for UnitsSettings {
    fn default() -> UnitsSettings {
        UnitsSettings {
            count: UnitCount { min: 1, max: 10 },
            capacity: PositiveBitRate(1_000_000_000),
            service: ServiceKind::Rate,
            quota_period: Nanos(100_000_000),
            packet_cost: None,
            byte_cost: None,
            message_cost: Picos(0),
            queue: 1 << 20,
            drops_at: DropPlace::Unit,
            start: Nanos(0),
            warm: 0,
            warm_start: Nanos(0),
            state: ByteCount(64),
            changes: None,
            deltas: false,
            replicate_after: None,
            reorder_timeout: Nanos(1_000_000),
            retransmit: Nanos(10_000_000),
            pending_max: 1 << 16,
            pending_per_flow_max: 1 << 12,
            replicas_max: ByteCount(256_000_000),
            expire_after: None,
        }
    }
}

/// The place where packets above a unit's capacity are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropPlace {
    /// At the unit: they are lost on the way, and later packets of their flows wait for them.
    Unit,
    /// At the dispatcher, before they are numbered; packets that begin flows, at the unit.
    Dispatcher,
}

/// Effect of the capacity on a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceKind {
    /// Each packet takes its bits at the capacity, or its costs if there are any.
    Rate,
    /// Each packet takes its costs, until the capacity of the period is used up; then all wait for
    /// the next.
    Quota,
}

/// Number of units: `1..10` at least and at most, or always `4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitCount {
    /// Units from the beginning, and at least; 1 or more.
    pub min: u16,
    /// Limit on units at once; up to [`UNITS_MAX`].
    pub max: u16,
}

/// Limit on the units of a simulation.
pub const UNITS_MAX: u16 = 1_024;

/// A text that is no number of units.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of units, such as 4 or 1..10; there are at least 1 and at most {UNITS_MAX}")]
pub struct UnitCountError(String);

impl FromStr for UnitCount {
    type Err = UnitCountError;

    fn from_str(text: &str) -> Result<UnitCount, UnitCountError> {
        let wrong = || UnitCountError(text.to_owned());
        let number = |text: &str| text.trim().parse().map_err(|_| wrong());
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if 0 < min && min <= max && max <= UNITS_MAX { Ok(UnitCount { min, max }) } else { Err(wrong()) }
    }
}

impl<'de> Deserialize<'de> for UnitCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UnitCount, D::Error> {
        Cow::<'de, str>::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
