//! The flows' TCP streams, for the functions that want them: reassembled once, before the first of
//! these functions processes a packet.

use nf::record::{FlowRecords, RecordHeader, RecordLayout};
use nf::stage::Stage;
use nf::stream::Deliveries;
use nf::{Alert, AlertDetail, Effects, MemoryShortage, ReportLimit, Verdict};
use packet::memory::{OutOfMemory, SlotField};
use packet::{Direction, Packet, Side, Transit};

use crate::streams::{
    Datagrams, MemoryOf, Reassembler, ShortOf, StreamCounters, StreamOptions, StreamRestoreError, Streams,
};

/// The streams of a graph, if a function wants them.
pub(crate) struct Reassembly {
    reassembler: Reassembler,
    /// The position of the streams in flows' records.
    part: SlotField<Streams>,
    /// For each function, true if it wants them.
    wanted: Vec<bool>,
    /// The limit on reports of memory shortages.
    reports: ReportLimit<{ ShortOf::COUNT }>,
}

/// The group of alerts without a signature, as in the function `ids`.
const ALERT_GROUP: u32 = 900;
/// The number of the first alert about memory of streams; `ids` has the lower numbers.
const FIRST_ALERT: u32 = 11;

/// Returns the text of an alert about memory of streams.
fn message(short: ShortOf, is_dropped: bool) -> &'static str {
    match (short.memory, short.kind, is_dropped) {
        (MemoryOf::Early, MemoryShortage::Memory, true) => {
            "streams: memory for segments out of order is full, they are dropped"
        }
        (MemoryOf::Early, MemoryShortage::Memory, false) => {
            "streams: memory for segments out of order is full, streams have gaps"
        }
        (MemoryOf::Early, MemoryShortage::Share, true) => {
            "streams: a connection or its source holds its share of segments out of order, others are dropped"
        }
        (MemoryOf::Early, MemoryShortage::Share, false) => {
            "streams: a connection or its source holds its share of segments out of order, its stream has gaps"
        }
        (MemoryOf::Early, MemoryShortage::Evicted, true) => {
            "streams: segments out of order gave way to others, their stream does not go on"
        }
        (MemoryOf::Early, MemoryShortage::Evicted, false) => {
            "streams: segments out of order gave way to others, their stream has a gap"
        }
        (MemoryOf::Sent, MemoryShortage::Memory, true) => {
            "streams: memory for unacknowledged segments is full, segments are dropped"
        }
        (MemoryOf::Sent, MemoryShortage::Memory, false) => {
            "streams: memory for unacknowledged segments is full, retransmissions are not compared"
        }
        (MemoryOf::Sent, MemoryShortage::Share, true) => {
            "streams: a connection or its source holds its share of unacknowledged segments, others are dropped"
        }
        (MemoryOf::Sent, MemoryShortage::Share, false) => {
            "streams: a connection or its source holds its share of unacknowledged segments, retransmissions are not compared"
        }
        (MemoryOf::Sent, MemoryShortage::Evicted, true) => {
            "streams: unacknowledged segments gave way to others, their retransmissions are dropped"
        }
        (MemoryOf::Sent, MemoryShortage::Evicted, false) => {
            "streams: unacknowledged segments gave way to others, their retransmissions are not compared"
        }
    }
}

impl Reassembly {
    /// Creates the streams for these functions, if one wants them, with a part of the flows'
    /// records.
    pub fn new(
        stages: &[Box<dyn Stage>],
        layout: &mut RecordLayout,
        options: StreamOptions,
        seed: u64,
    ) -> Result<Option<Reassembly>, OutOfMemory> {
        let wanted: Vec<bool> = stages.iter().map(|stage| stage.descriptor().stream).collect();
        if !wanted.contains(&true) {
            return Ok(None);
        }
        let len = size_of::<Streams>();
        let Some(part) = SlotField::at(layout.add(len, len).0) else {
            return Ok(None);
        };
        let inline = options.normalize && stages.iter().any(|stage| stage.shared().prevents);
        let reassembler = Reassembler::new(StreamOptions { inline, seed, ..options })?;
        let reports = ReportLimit::new(reassembler.accounts())?;
        Ok(Some(Reassembly { reassembler, part, wanted, reports }))
    }

    /// Returns true if a function wants streams.
    #[inline]
    pub fn is_wanted_by(&self, stage: usize) -> bool {
        self.wanted.get(stage) == Some(&true)
    }

    /// Adds the bytes of a group's forwarded packets of one side to their streams. The function is
    /// the first on their paths that wants streams. Returns true if some of them must be dropped.
    pub fn assemble(
        &mut self,
        (stage, side): (usize, Side),
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        records: &mut FlowRecords,
        effects: &mut Effects,
    ) -> bool {
        self.reassembler.begin_group();
        let mut drops = false;
        let mut states = records.states_mut(self.part);
        for (packet, verdict) in packets.iter_mut().zip(verdicts) {
            let meta = packet.meta();
            match states.as_mut().and_then(|states| states.at(meta.transit.flow)) {
                Some((header, streams, _)) if verdict.is_forward() && meta.transit.side == side => {
                    self.reassembler.own(header);
                    if let Some(reason) = self.reassembler.normalize(packet, streams) {
                        *verdict = Verdict::Drop(reason);
                        drops = true;
                    }
                    if let Some(short) = self.reassembler.shortage() {
                        let is_dropped = !verdict.is_forward();
                        self.report((stage, short), packet, header, is_dropped, effects);
                    }
                }
                _ => self.reassembler.skip(),
            }
        }
        drops
    }

    /// Reports that there was no memory for a packet, dropped or not.
    #[cold]
    fn report(
        &mut self,
        (stage, short): (usize, ShortOf),
        packet: &Packet,
        header: &RecordHeader,
        is_dropped: bool,
        effects: &mut Effects,
    ) {
        let Transit { timestamp_ns, sequence, direction, ingress, .. } = packet.meta().transit;
        if !self.reports.is_due(short.number(), self.reassembler.account(), timestamp_ns) {
            return;
        }
        let detail = AlertDetail { group: ALERT_GROUP, ..AlertDetail::default() };
        effects.alert(Alert {
            timestamp_ns,
            sequence,
            stage: stage as u16,
            signature_id: FIRST_ALERT + short.number() as u32,
            signature: message(short, is_dropped).into(),
            category: "Not Suspicious Traffic".into(),
            severity: 3,
            key: header.key,
            reversed: header.has(RecordHeader::FLAG_REVERSED) ^ (direction == Direction::Reply),
            blocked: is_dropped,
            has_packet: true,
            ingress,
            place: None,
            detail: Some(Box::new(detail)),
        });
    }

    /// Returns its datagrams in fragments.
    pub fn datagrams(&self) -> &Datagrams {
        self.reassembler.datagrams()
    }

    /// Returns the datagrams for changes, and the counter of lost ones.
    pub fn datagrams_mut(&mut self) -> (&mut Datagrams, &mut u64) {
        self.reassembler.datagrams_mut()
    }

    /// Returns the pieces of the group's packets.
    pub fn deliveries(&self) -> Deliveries<'_> {
        self.reassembler.deliveries()
    }

    /// Appends the flow's streams and datagrams with their queued bytes to `out`; see
    /// [`Reassembler::save_flow`].
    pub fn save(&self, record: u32, records: &FlowRecords, out: &mut Vec<u8>) {
        if let Some(streams) = records.state(record, self.part) {
            self.reassembler.save_flow(record, streams, out);
        }
    }

    /// Restores the output of [`Reassembly::save`]; on an error, the flow has no streams.
    pub fn restore(
        &mut self,
        record: u32,
        records: &mut FlowRecords,
        saved: &[u8],
    ) -> Result<(), StreamRestoreError> {
        self.reassembler.own(records.header(record));
        let restored = self.reassembler.restore_flow(record, saved);
        if let Some(streams) = records.state_mut(record, self.part) {
            *streams = restored.unwrap_or_default();
        }
        restored.map(|_| ())
    }

    /// Forgets a flow that has ended.
    pub fn forget(&mut self, record: u32, records: &mut FlowRecords) {
        self.reassembler.leave_datagrams(record);
        self.forget_streams(record, records);
    }

    /// Removes the streams of a flow that moved.
    pub fn release(&mut self, record: u32, records: &mut FlowRecords) {
        self.reassembler.forget_datagrams(record);
        self.forget_streams(record, records);
    }

    fn forget_streams(&mut self, record: u32, records: &mut FlowRecords) {
        if let Some(streams) = records.state_mut(record, self.part) {
            self.reassembler.forget(streams);
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> StreamCounters {
        self.reassembler.counters()
    }
}
