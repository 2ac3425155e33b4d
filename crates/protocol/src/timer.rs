//! The timers of dispatcher and unit, each declared once: the state machines name them, and
//! `docs/design.md` lists them.

use std::fmt::Write;

/// A timer, as the documentation lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerInfo {
    /// The name.
    pub name: &'static str,
    /// The event that arms it.
    pub armed_by: &'static str,
    /// The time after that event.
    pub fires_after: &'static str,
    /// The effect.
    pub effect: &'static str,
}

const fn timer(
    name: &'static str,
    armed_by: &'static str,
    fires_after: &'static str,
    effect: &'static str,
) -> TimerInfo {
    TimerInfo { name, armed_by, fires_after, effect }
}

/// A timer of a flow at a unit. Its settings are those of [`Config`](crate::unit::Config).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitTimer {
    /// A packet is pending, and an earlier one is missing.
    Gap,
    /// The last packets before a release are missing.
    Release,
    /// The state was pulled, and has not arrived.
    Pull,
    /// Replicas were sought, and not all units have answered.
    Seek,
    /// The flow was released, and its state was not pulled.
    Offer,
    /// The state was sent, and is not acknowledged.
    State,
    /// The flow has been silent since a packet changed its state.
    Replicate,
    /// The flow has been silent, or its proposed end is not answered.
    Expire,
    /// The flow has ended elsewhere, and its state has not arrived.
    End,
}

/// A timer of the dispatcher. Its settings are those of [`Config`](crate::dispatcher::Config).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatcherTimer {
    /// A bucket of the load meter ends.
    Bucket,
    /// A unit has received no packet.
    Idle,
    /// A unit without flows has not reported that it is drained.
    Drain,
    /// Buckets of flows may be moved.
    Balance,
    /// The flow table is searched for silent flows.
    Sweep,
}

impl UnitTimer {
    /// All of them, in the order of the documentation.
    pub const ALL: [UnitTimer; 9] = [
        UnitTimer::Gap,
        UnitTimer::Release,
        UnitTimer::Pull,
        UnitTimer::Seek,
        UnitTimer::Offer,
        UnitTimer::State,
        UnitTimer::Replicate,
        UnitTimer::Expire,
        UnitTimer::End,
    ];

    /// Describes the timer.
    pub const fn info(self) -> TimerInfo {
        match self {
            UnitTimer::Gap => timer(
                "gap",
                "the oldest pending packet of the epoch",
                "`reorder_timeout_ns`",
                "gives up the packets before the first pending one",
            ),
            UnitTimer::Release => timer(
                "release",
                "`Release`, or a repeated `Pull`, while packets are missing",
                "`reorder_timeout_ns`",
                "gives up the rest of the epoch",
            ),
            UnitTimer::Pull => timer(
                "pull",
                "`Pull` sent",
                "`retransmit_ns`, doubled up to `BACKOFF_DOUBLINGS_MAX` times",
                "repeats `Pull`",
            ),
            UnitTimer::Seek => timer(
                "seek",
                "`Seek` sent",
                "`retransmit_ns`, doubled up to `BACKOFF_DOUBLINGS_MAX` times",
                "repeats `Seek` to the units that have not answered",
            ),
            UnitTimer::Offer => timer(
                "offer",
                "`Release`, without a `Pull`",
                "`OFFER_AFTER_TIMEOUTS` x `reorder_timeout_ns`, at most `retransmit_ns`",
                "sends `State`",
            ),
            UnitTimer::State => timer(
                "state",
                "`State` sent",
                "`retransmit_ns`, doubled up to `BACKOFF_DOUBLINGS_MAX` times",
                "repeats `State`",
            ),
            UnitTimer::Replicate => timer(
                "replicate",
                "a packet of a flow with targets",
                "`replicate_after_ns`",
                "sends `Replicate` or `Delta`",
            ),
            UnitTimer::Expire => timer(
                "expire",
                "the flow's last packet, or `Expire` sent",
                "`expire_after_ns`",
                "sends `Expire`, or repeats it",
            ),
            UnitTimer::End => timer(
                "end",
                "`End`, or another flow of the same index, without the state",
                "2 x `retransmit_ns` x 2^`BACKOFF_DOUBLINGS_MAX`",
                "forgets the flow",
            ),
        }
    }
}

impl DispatcherTimer {
    /// All of them, in the order of the documentation.
    pub const ALL: [DispatcherTimer; 5] = [
        DispatcherTimer::Bucket,
        DispatcherTimer::Idle,
        DispatcherTimer::Drain,
        DispatcherTimer::Balance,
        DispatcherTimer::Sweep,
    ];

    /// Describes the timer.
    pub const fn info(self) -> TimerInfo {
        match self {
            DispatcherTimer::Bucket => timer(
                "bucket",
                "the first packet, then each bucket",
                "`bucket_ns`",
                "measures loads; starts a unit; moves flows of draining units; looks at the other timers",
            ),
            DispatcherTimer::Idle => timer(
                "idle",
                "the last packet to a unit",
                "`idle_ns`",
                "drains the unit if the others have room",
            ),
            DispatcherTimer::Drain => {
                timer("drain", "`Drain` sent to a unit that has no flows now", "`idle_ns`", "repeats `Drain`")
            }
            DispatcherTimer::Balance => timer(
                "balance",
                "the first packet, then each time",
                "`every_ns` of mode `rss`",
                "moves buckets of flows between units",
            ),
            DispatcherTimer::Sweep => timer(
                "sweep",
                "the end of the last search",
                "`forget_after_ns` / 4",
                "ends flows that are silent for `forget_after_ns`",
            ),
        }
    }
}

/// Returns the table of all timers, in Markdown.
pub fn timers_table() -> String {
    let mut table =
        "| timer of | name | armed by | fires after | effect |\n|---|---|---|---|---|\n".to_owned();
    let units = UnitTimer::ALL.map(|timer| ("unit, per flow", timer.info()));
    let dispatchers = DispatcherTimer::ALL.map(|timer| ("dispatcher", timer.info()));
    for (role, TimerInfo { name, armed_by, fires_after, effect }) in units.into_iter().chain(dispatchers) {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| {role} | {name} | {armed_by} | {fires_after} | {effect} |");
    }
    table
}
