//! Each rule of the protocol by itself, at one unit.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use protocol::message::{
    Delta, Epoch, FlowId, FlowRecord, Handover, Message, Stamp, Targets, UnitId, Version, Watermark,
};
use protocol::unit::{Config, Dropped, Outbox, Unit};

use crate::common::{Ledger, bytes};

mod copies;
mod ends;
mod moves;
mod packets;

const FLOW: FlowId = FlowId { slot: 3, generation: 1 };
/// The flow that has the slot next.
const NEXT: FlowId = FlowId { generation: 2, ..FLOW };
const ME: UnitId = UnitId(0);
const X: UnitId = UnitId(1);
const Y: UnitId = UnitId(2);
const ORDER_NS: u64 = 100;
const SILENCE_NS: u64 = 1_000;

struct Bench {
    unit: Unit<Ledger>,
    out: Outbox<u64>,
    now_ns: u64,
    targets: Targets,
}

fn config() -> Config {
    Config { replicate_after_ns: Some(SILENCE_NS), order_ns: ORDER_NS, ..Config::new(ME) }
}

fn from(previous: UnitId, last: u64) -> Handover {
    Handover::From { previous, last }
}

fn record(clocks: &[u64], contiguous: u64) -> FlowRecord {
    FlowRecord { watermark: Watermark::up_to(contiguous), bytes: bytes(clocks) }
}

fn state(epoch: Epoch, clocks: &[u64], contiguous: u64) -> Message {
    Message::State { flow: FLOW, epoch, record: record(clocks, contiguous) }
}

fn replica(epoch: Epoch, clocks: &[u64], contiguous: u64) -> Message {
    Message::Replica { flow: FLOW, epoch, record: record(clocks, contiguous) }
}

/// What has changed since this many packets: states with their clocks, all from 1 on. None: since
/// the flow began.
fn changes(epoch: Epoch, base: Option<(Epoch, u64)>, clock: u64) -> Message {
    let of = |clock: u64| bytes(&(1..=clock).collect::<Vec<_>>());
    let base = base.map_or(Version::BEGINNING, |(epoch, clock)| Version { epoch, clock });
    let version = Version { epoch, clock };
    let delta = Delta::of((base, &of(base.clock)), (version, &of(clock))).unwrap();
    Message::Changes { flow: FLOW, epoch, watermark: Watermark::up_to(clock), delta }
}

fn lacking(epoch: Epoch, clock: u64) -> Message {
    Message::Lacking { flow: FLOW, version: Version { epoch, clock } }
}

/// A copy of the state that packets up to this one have made.
fn replica_up_to(epoch: Epoch, clock: u64) -> Message {
    replica(epoch, &(1..=clock).collect::<Vec<_>>(), clock)
}

fn release(epoch: Epoch, owner: UnitId, last: u64) -> Message {
    Message::Release { flow: FLOW, epoch, owner, last }
}

fn pull(epoch: Epoch, last: u64) -> Message {
    Message::Pull { flow: FLOW, epoch, last, again: false }
}

const END: Message = Message::End { flow: FLOW };

fn taken(epoch: Epoch) -> Message {
    Message::Taken { flow: FLOW, epoch }
}

impl Bench {
    fn new(config: Config) -> Bench {
        let unit = Unit::new(config, Ledger::default());
        Bench { unit, out: Outbox::default(), now_ns: 1, targets: Targets::NONE }
    }

    fn packet(&mut self, epoch: Epoch, handover: Handover, clock: u64) {
        let stamp = Stamp { flow: FLOW, clock, epoch, handover, targets: Some(self.targets) };
        self.unit.packet(self.now_ns, stamp, clock, &mut self.out);
    }

    fn first(&mut self, clocks: impl IntoIterator<Item = u64>) {
        for clock in clocks {
            self.packet(1, Handover::None, clock);
        }
    }

    fn router(&mut self, message: Message) {
        self.unit.receive(self.now_ns, None, message, &mut self.out);
    }

    fn peer(&mut self, unit: UnitId, message: Message) {
        self.unit.receive(self.now_ns, Some(unit), message, &mut self.out);
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        self.unit.advance(self.now_ns, &mut self.out);
    }

    fn state(&self) -> &[u64] {
        self.unit.engine().state(FLOW)
    }

    fn sent(&mut self) -> Vec<(UnitId, Message)> {
        std::mem::take(&mut self.out.to_units)
    }

    fn dropped(&mut self) -> Vec<(Dropped, u64)> {
        self.out.dropped.drain(..).map(|(reason, _, packet)| (reason, packet)).collect()
    }
}
