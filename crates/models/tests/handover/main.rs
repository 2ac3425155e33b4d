//! Handover: the real dispatcher and real units, and every order of arrivals, losses, repetitions
//! and crashes for their packets and messages (design.md 3.1-3.4, 3.13).
//!
//! The engine of the units is a ledger: a state lists the packets that it contains, and so shows
//! what happened to it.
//!
//! Bounds: one or two flows of up to 4 packets, 2 or 3 units, up to two changes of owner, one
//! crash, and up to two faults of the network. Each test prints the number of states.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../protocol/tests/unit/common/mod.rs"]
mod common;
mod invariants;
mod network;
mod situation;
#[path = "../support/mod.rs"]
mod support;

use models::{explore, find_violation, is_deep};

use network::{Faults, Handover, PlantedFault};
use situation::Step::{self, Crash, Migrate, Notice, Packet};

/// A flow moves between two packets, and back.
const TO_AND_FRO: &[Step] = &[Packet(0), Packet(0), Migrate(0, 1), Packet(0), Migrate(0, 0), Packet(0)];

/// Two flows move one after the other.
const BOTH: &[Step] = &[Packet(0), Packet(1), Migrate(0, 1), Packet(1), Migrate(1, 1), Packet(0), Packet(1)];

/// A flow moves on before its state has come.
const ON: &[Step] = &[Packet(0), Migrate(0, 1), Packet(0), Migrate(0, 2), Packet(0)];

/// The previous owner crashes, perhaps with the state.
const FIRST_CRASHES: &[Step] =
    &[Packet(0), Migrate(0, 1), Packet(0), Crash(0), Packet(0), Notice(0), Packet(0)];

/// The new owner crashes, and the flow begins again elsewhere.
const SECOND_CRASHES: &[Step] = &[Packet(0), Migrate(0, 1), Packet(0), Crash(1), Notice(1), Packet(0)];

/// The owner in the middle crashes, while the state passes through it.
const MIDDLE_CRASHES: &[Step] =
    &[Packet(0), Migrate(0, 1), Migrate(0, 2), Packet(0), Crash(1), Notice(1), Packet(0)];

const NONE: Faults = Faults { lost: 0, twice: 0, mute: 0, early: 0 };

fn model(steps: &'static [Step], units: u16, faults: Faults) -> Handover {
    Handover { steps, units, faults, is_patient: false, planted: PlantedFault::None }
}

/// A flow loses no packet by its moves.
#[test]
fn a_move_loses_no_packet() {
    let patient = |steps, units, faults| Handover { is_patient: true, ..model(steps, units, faults) };
    explore("to and fro", patient(TO_AND_FRO, 2, Faults { twice: 1, ..NONE }));
    explore("on", patient(ON, 3, Faults { twice: 1, ..NONE }));
    explore("both", patient(BOTH, 2, Faults { twice: 1, ..NONE }));
    if is_deep() {
        explore("to and fro, deep", patient(TO_AND_FRO, 2, Faults { twice: 2, mute: 1, early: 1, ..NONE }));
        explore("on, deep", patient(ON, 3, Faults { twice: 1, mute: 1, early: 1, ..NONE }));
    }
}

/// Packets and messages are lost; timers give up what does not come.
#[test]
fn losses_leave_nothing_waiting() {
    explore("to and fro, losses", model(TO_AND_FRO, 2, Faults { lost: 1, ..NONE }));
    explore("on, losses", model(ON, 3, Faults { lost: 1, ..NONE }));
    explore("on, lost messages", model(ON, 3, Faults { mute: 1, early: 1, ..NONE }));
    if is_deep() {
        let faults = Faults { lost: 1, mute: 1, early: 1, ..NONE };
        explore("to and fro, losses, deep", model(TO_AND_FRO, 2, faults));
        explore("on, losses, deep", model(ON, 3, faults));
    }
}

/// A unit crashes at any moment of a handover.
#[test]
fn a_crash_leaves_nothing_waiting() {
    for (name, steps) in [("first", FIRST_CRASHES), ("second", SECOND_CRASHES), ("middle", MIDDLE_CRASHES)] {
        explore(name, model(steps, 3, NONE));
        explore(&format!("{name}, losses"), model(steps, 3, Faults { lost: 1, ..NONE }));
        if is_deep() {
            let faults = Faults { lost: 1, mute: 1, early: 1, ..NONE };
            explore(&format!("{name}, deep"), model(steps, 3, faults));
        }
    }
}

/// Each property is violated by a planted fault.
#[test]
fn planted_faults_are_found() {
    let planted = |planted, steps, faults| Handover { planted, ..model(steps, 3, faults) };
    let fault = planted(PlantedFault::EpochKept, TO_AND_FRO, NONE);
    find_violation("the epoch is not raised", fault, "one unit writes in each epoch");
    let fault = planted(PlantedFault::MoveLost, &[Packet(0), Migrate(0, 1)], NONE);
    find_violation("the messages of a move are lost", fault, "nothing waits forever");
    let fault = planted(PlantedFault::LostUnitSilent, FIRST_CRASHES, NONE);
    find_violation("nobody answers for a lost unit", fault, "nothing waits forever");
    let fault = planted(PlantedFault::NumberReused, FIRST_CRASHES, Faults { twice: 1, ..NONE });
    find_violation("a number is used again", fault.clone(), "each packet is processed at most once");
    find_violation("a number is used again", fault, "a state has all packets up to its watermark");
}
