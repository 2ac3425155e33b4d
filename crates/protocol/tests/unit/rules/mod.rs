//! Each rule of the protocol by itself, at one unit.
#![allow(clippy::unwrap_used)] // A test that panics fails.

use protocol::message::{
    Epoch, FlowId, FlowRecord, FromDispatcher, FromPeer, FromUnit, Handover, RefuseReason, ReplicaTargets,
    Stamp, StateDelta, UnitId, UnitMessage, Version, Watermark,
};
use protocol::unit::{Config, DropCause, Outbox, Unit};

use crate::common::{Ledger, bytes};

mod copies;
mod ends;
mod moves;
mod packets;
mod pre_copy;
mod recovery;
mod refusals;

const FLOW: FlowId = FlowId { index: 3, generation: 1 };
/// The index's next flow.
const NEXT: FlowId = FlowId { generation: 2, ..FLOW };
const ME: UnitId = UnitId(0);
const X: UnitId = UnitId(1);
const Y: UnitId = UnitId(2);
const Z: UnitId = UnitId(3);
const ORDER_NS: u64 = 100;
const SILENCE_NS: u64 = 1_000;

struct Bench {
    unit: Unit<Ledger>,
    out: Outbox<u64>,
    now_ns: u64,
    targets: ReplicaTargets,
}

fn config() -> Config {
    Config { replicate_after_ns: Some(SILENCE_NS), reorder_timeout_ns: ORDER_NS, ..Config::new(ME) }
}

fn from(previous: UnitId, last: u64) -> Handover {
    Handover::From { previous, last }
}

fn record(seqs: &[u64], contiguous: u64) -> FlowRecord {
    FlowRecord { watermark: Watermark::up_to(contiguous), bytes: bytes(seqs) }
}

fn state(epoch: Epoch, seqs: &[u64], contiguous: u64) -> FromPeer {
    FromPeer::State { flow: FLOW, epoch, record: record(seqs, contiguous) }
}

fn replica(epoch: Epoch, seqs: &[u64], contiguous: u64) -> FromPeer {
    FromPeer::Replicate { flow: FLOW, epoch, record: record(seqs, contiguous), is_reported: false }
}

/// A replica requested by the dispatcher.
fn asked_replica(epoch: Epoch, seqs: &[u64], contiguous: u64) -> FromPeer {
    FromPeer::Replicate { flow: FLOW, epoch, record: record(seqs, contiguous), is_reported: true }
}

/// The state that an epoch begins with, as changes to a replica: states of all seqs from 1 on.
fn state_since((base_epoch, base): (Epoch, u64), epoch: Epoch, seq: u64) -> FromPeer {
    let of = |seq: u64| bytes(&(1..=seq).collect::<Vec<_>>());
    let (base, version) = (Version { epoch: base_epoch, seq: base }, Version { epoch: epoch - 1, seq });
    let delta = StateDelta::of((base, &of(base.seq)), (version, &of(seq))).unwrap();
    FromPeer::Changes { flow: FLOW, epoch, watermark: Watermark::up_to(seq), delta }
}

/// A pull of an owner that has a replica.
fn pull_since(has: (Epoch, u64), epoch: Epoch, owner: UnitId, last: u64, again: bool) -> FromPeer {
    let has = Some(Version { epoch: has.0, seq: has.1 });
    FromPeer::Pull { flow: FLOW, epoch, owner, last, again, has }
}

/// A delta from a base: states of all seqs from 1 on. `None` for the state of a flow that has not
/// begun.
fn changes(epoch: Epoch, base: Option<(Epoch, u64)>, seq: u64) -> FromPeer {
    let of = |seq: u64| bytes(&(1..=seq).collect::<Vec<_>>());
    let base = base.map_or(Version::BEGINNING, |(epoch, seq)| Version { epoch, seq });
    let version = Version { epoch, seq };
    let delta = StateDelta::of((base, &of(base.seq)), (version, &of(seq))).unwrap();
    FromPeer::Delta { flow: FLOW, epoch, watermark: Watermark::up_to(seq), delta }
}

fn lacking(epoch: Epoch, seq: u64) -> FromPeer {
    FromPeer::NeedFull { flow: FLOW, version: Version { epoch, seq } }
}

/// A replica of the state after all packets up to this seq.
fn replica_up_to(epoch: Epoch, seq: u64) -> FromPeer {
    replica(epoch, &(1..=seq).collect::<Vec<_>>(), seq)
}

/// The release of the first epoch's owner.
fn release(epoch: Epoch, owner: UnitId, last: u64) -> FromDispatcher {
    release_from(Handover::None, epoch, owner, last)
}

/// The release of an owner with an epoch that began with `start`.
fn release_from(start: Handover, epoch: Epoch, owner: UnitId, last: u64) -> FromDispatcher {
    FromDispatcher::Release { flow: FLOW, epoch, owner, last, start }
}

fn pull(epoch: Epoch, owner: UnitId, last: u64) -> FromPeer {
    FromPeer::Pull { flow: FLOW, epoch, owner, last, again: false, has: None }
}

fn pull_again(epoch: Epoch, owner: UnitId, last: u64) -> FromPeer {
    FromPeer::Pull { flow: FLOW, epoch, owner, last, again: true, has: None }
}

fn refuse(epoch: Epoch, reason: RefuseReason, record: FlowRecord) -> FromPeer {
    FromPeer::Refuse { flow: FLOW, epoch, reason, record }
}

const END: FromDispatcher = FromDispatcher::End { flow: FLOW };

fn no_state(epoch: Epoch) -> FromPeer {
    FromPeer::End { flow: FLOW, epoch }
}

fn taken(epoch: Epoch) -> FromPeer {
    FromPeer::StateAck { flow: FLOW, epoch }
}

impl Bench {
    fn new(config: Config) -> Bench {
        let unit = Unit::new(config, Ledger::default());
        Bench { unit, out: Outbox::default(), now_ns: 1, targets: ReplicaTargets::NONE }
    }

    fn packet(&mut self, epoch: Epoch, handover: Handover, seq: u64) {
        let stamp = Stamp { flow: FLOW, seq, epoch, handover, targets: Some(self.targets) };
        self.unit.handle_packet(self.now_ns, stamp, seq, &mut self.out);
    }

    fn first(&mut self, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            self.packet(1, Handover::None, seq);
        }
    }

    fn dispatcher(&mut self, message: FromDispatcher) {
        self.unit.handle_message(self.now_ns, UnitMessage::FromDispatcher(message), &mut self.out);
    }

    fn peer(&mut self, unit: UnitId, message: FromPeer) {
        self.unit.handle_message(self.now_ns, UnitMessage::FromPeer(unit, message), &mut self.out);
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        self.unit.handle_timeout(self.now_ns, &mut self.out);
    }

    fn state(&self) -> &[u64] {
        self.unit.engine().state(FLOW)
    }

    fn sent(&mut self) -> Vec<(UnitId, FromPeer)> {
        std::mem::take(&mut self.out.to_units)
    }

    fn said(&mut self) -> Vec<FromUnit> {
        std::mem::take(&mut self.out.to_dispatcher)
    }

    fn dropped(&mut self) -> Vec<(DropCause, u64)> {
        self.out.dropped.drain(..).map(|(reason, _, packet)| (reason, packet)).collect()
    }
}
