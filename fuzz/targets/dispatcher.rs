//! Any packets, messages and times at any dispatcher: nothing panics. A flow's packets are numbered
//! one by one, its epoch never falls, it has one owner per epoch, and all orders agree with the
//! stamps.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::message::FlowId;
use protocol::dispatcher::{UnitChoice, Config, Granularity, TargetChoice, WhenFlowsFull};

#[path = "../../crates/protocol/tests/dispatcher/witness/mod.rs"]
mod witness;

use witness::{Step, Trial};

const MODES: [Granularity; 8] = [
    Granularity::Flowlet,
    Granularity::Flowlet,
    Granularity::Flowlet,
    Granularity::Flow,
    Granularity::SmartFlow { every_ns: 5_000_000 },
    Granularity::Packet,
    Granularity::Rss { buckets: 16, every_ns: Some(5_000_000) },
    Granularity::Rss { buckets: 16, every_ns: None },
];

const TARGETS: [TargetChoice; 8] = [
    TargetChoice::Weighted,
    TargetChoice::Weighted,
    TargetChoice::Weighted,
    TargetChoice::First,
    TargetChoice::LeastLoaded,
    TargetChoice::All,
    TargetChoice::None,
    TargetChoice::Predicted,
];

// Input: four bytes that choose the configuration, then four for each step.
fuzz_target!(|data: &[u8]| {
    let Some((&[how, units, flags, seed], steps)) = data.split_first_chunk() else { return };
    let units_min = u16::from(units % 4) + 1;
    let config = Config {
        mode: MODES[usize::from(how % 8)],
        targets: TARGETS[usize::from(how / 8 % 8)],
        targets_count: how / 64 + 1,
        units_min,
        units_max: units_min + u16::from(units / 4 % 8),
        flows_max: 1 + u32::from(units / 32) * 3,
        choice: if flags & 1 == 0 { UnitChoice::MostUtilised } else { UnitChoice::LowestId },
        when_full: if flags & 2 == 0 { WhenFlowsFull::RefuseNew } else { WhenFlowsFull::EndOldest },
        push_at: (flags & 4 != 0).then_some(0.5),
        alarm_buckets: if flags & 8 == 0 { 0 } else { 3 },
        forget_after_ns: (flags & 16 != 0).then_some(1_000_000_000),
        buckets: if flags & 32 == 0 { 20 } else { 1 + usize::from(flags / 64) * 3 },
        capacity_bps: 20_000_000,
        idle_ns: 20_000_000,
        seed: seed.into(),
        ..Config::default()
    };
    if config.alarm_buckets > config.buckets {
        return;
    }
    let mut trial = Trial::new(config);
    for &[kind, a, b, c] in steps.as_chunks().0 {
        // Up to some seconds pass: a few bits, shifted.
        let ns = u64::from(b) << (c % 25);
        trial.step(&match kind % 16 {
            0 | 1 => Step::Wait { ns },
            2 => Step::Back { ns },
            3 => Step::Started { unit: a.into() },
            4 => Step::Expire { nth: a.into(), is_right: b & 1 == 0 },
            5 => Step::Alias { nth: a.into(), flow: (b % 64).into() },
            6 => Step::Drained { unit: a.into() },
            7 if c & 1 == 0 => Step::Refuse { nth: a.into(), is_owner: b & 1 == 0 },
            7 => Step::Claim {
                from: u16::from(a % 16),
                flow: FlowId { index: u32::from(b % 32), generation: u32::from(a / 16) },
                epoch: u32::from(b / 32),
                seq: u64::from(c / 2),
            },
            8 => Step::Advance,
            _ => Step::Packet { flow: (a % 32).into(), len: u32::from(b) << (c % 12) },
        });
    }
});
