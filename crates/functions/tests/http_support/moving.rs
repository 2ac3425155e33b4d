//! A flow that moves between two units after each packet.

use graph::streams::{Reassembler, StreamOptions, Streams};
use nf::record::{FlowRecords, RecordHeader, RecordLayout};
use nf::stage::{PacketGroup, PacketTotals, Stage, StageEnv};
use nf::{Effects, EndReason, Verdict};
use packet::memory::SlotField;
use packet::{Direction, FlowHasher, PacketPool, Parser, Side};
use serde_json::Value;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{SECOND_NS, Talk, packet, stage};

/// A unit with one flow, with the graph's layout, of a function with state `T`.
struct Unit<T> {
    stage: Box<dyn Stage>,
    records: FlowRecords,
    record: u32,
    /// The place of the function's state in a record: after the header.
    state: SlotField<T>,
}

impl<T: Copy + FromBytes + IntoBytes + Immutable> Unit<T> {
    fn new(function: &str, config: &Value) -> Unit<T> {
        let (mut stage, mut layout) = (stage(function, config), RecordLayout::default());
        stage.place(0, &mut layout, 0).unwrap();
        let mut records = FlowRecords::new(4, layout).unwrap();
        let record = records.allocate().unwrap();
        Unit { stage, records, record, state: SlotField::at(size_of::<RecordHeader>()).unwrap() }
    }

    /// Takes over another unit's flow: the bytes of its record and its buffers.
    fn take_over(&mut self, from: &mut Unit<T>) {
        let mut saved = vec![];
        from.stage.save_buffers(from.record, &mut from.records, &mut saved);
        *self.records.header_mut(self.record) = from.records.header(from.record).clone();
        let bytes = *from.records.state(from.record, from.state).unwrap();
        *self.records.state_mut(self.record, self.state).unwrap() = bytes;
        let rest = self.stage.restore_buffers(self.record, &mut self.records, &saved);
        assert_eq!(rest, Some(&[][..]));
    }
}

/// Sends the packets through a function one by one, with one unit, or with two that move the flow
/// to each other; returns the verdicts and reports.
pub fn moved<T>(function: &str, config: &Value, talk: &Talk, moves: bool) -> Vec<String>
where
    T: Copy + FromBytes + IntoBytes + Immutable,
{
    let mut units = [Unit::<T>::new(function, config), Unit::new(function, config)];
    let (mut reassembler, mut streams) =
        (Reassembler::new(StreamOptions::default()).unwrap(), Streams::default());
    let (mut effects, mut pool, parser) =
        (Effects::default(), PacketPool::new(8), Parser::new(FlowHasher::new(1)));
    let mut reported = vec![];
    let mut at = 0;
    for (number, segment) in talk.segments.iter().enumerate() {
        let mut packet = packet(segment.at_ns, segment.side, &segment.network);
        parser.parse(&mut packet).unwrap();
        let meta = packet.meta_mut();
        let reversed = meta.reversed ^ (segment.side == Side::Outside);
        (meta.transit.flow, meta.transit.sequence) = (units[at].record, number as u64);
        meta.transit.direction =
            if segment.side == Side::Inside { Direction::Original } else { Direction::Reply };
        let key = meta.key;
        units.iter_mut().for_each(|unit| unit.records.header_mut(unit.record).set_key(key, reversed));
        reassembler.begin_group();
        reassembler.take(&packet, &mut streams);
        let unit = &mut units[at];
        let mut group = PacketGroup {
            packets: std::slice::from_mut(&mut packet),
            verdicts: &mut [Verdict::Forward],
            side: segment.side,
            load: PacketTotals::default(),
            changed: false,
            env: StageEnv { records: &mut unit.records, effects: &mut effects, buffers: &mut pool },
            deliveries: reassembler.deliveries(),
            recording: None,
        };
        unit.stage.process(&mut group);
        reported.push(format!("{:?}", group.verdicts));
        if moves {
            let [one, other] = &mut units;
            let (from, to) = if at == 0 { (one, other) } else { (other, one) };
            to.take_over(from);
            at = 1 - at;
        }
    }
    let unit = &mut units[at];
    let mut env = StageEnv { records: &mut unit.records, effects: &mut effects, buffers: &mut pool };
    unit.stage.flow_end(unit.record, EndReason::Shutdown, SECOND_NS, &mut env);
    reported.extend(effects.alerts.iter().map(|alert| format!("{alert:?}")));
    reported.extend(
        effects.events.iter().map(|event| format!("{event:?} {:?}", event.fields().collect::<Vec<_>>())),
    );
    reported.push(format!("{:?}", unit.records.header(unit.record).tags));
    reported
}
