//! The flows' TCP streams, for the functions that want them: put together once, before the first of these has a packet.

use nf::Verdict;
use nf::record::{Layout, Records};
use nf::stage::Stage;
use nf::stream::Deliveries;
use packet::memory::{OutOfMemory, Part};
use packet::{Packet, Side};

use crate::streams::{Datagrams, Reassembler, RestoreError, StreamCounters, StreamOptions, Streams};

/// The streams of a chain in which a function wants them.
pub(super) struct Subscribed {
    reassembler: Reassembler,
    /// Where the streams stand in flows' records.
    part: Part<Streams>,
    /// The first function that wants them, as seen from each side.
    first: [usize; 2],
}

impl Subscribed {
    /// The streams for these functions, if one wants them; the flows' records then have a part for them.
    pub fn new(
        stages: &[Box<dyn Stage>],
        layout: &mut Layout,
        options: StreamOptions,
    ) -> Result<Option<Subscribed>, OutOfMemory> {
        let wants = || stages.iter().map(|stage| stage.descriptor().stream);
        let first = [wants().position(|wants| wants), wants().rposition(|wants| wants)];
        let [Some(inside), Some(outside)] = first else { return Ok(None) };
        let len = size_of::<Streams>();
        let Some(part) = Part::at(layout.add(len, len).0) else {
            return Ok(None);
        };
        let inline = options.normalize && stages.iter().any(|stage| stage.shared().prevents);
        let reassembler = Reassembler::new(StreamOptions { inline, ..options })?;
        Ok(Some(Subscribed { reassembler, part, first: [inside, outside] }))
    }

    /// The first function that wants streams of packets from this side.
    pub fn first(&self, side: Side) -> usize {
        self.first[side as usize]
    }

    /// Puts what those packets of a group that entered by `side` bring, and that are to be forwarded, in its place; whether some of them
    /// are not to pass.
    pub fn assemble(
        &mut self,
        side: Side,
        packets: &[Packet],
        verdicts: &mut [Verdict],
        records: &mut Records,
    ) -> bool {
        self.reassembler.begin_group();
        let mut drops = false;
        for (packet, verdict) in packets.iter().zip(verdicts) {
            let meta = packet.meta();
            match records.state_mut(meta.transit.flow, self.part) {
                Some(streams) if *verdict == Verdict::Forward && meta.transit.side == side => {
                    if let Some(reason) = self.reassembler.take(packet, streams) {
                        *verdict = Verdict::Drop(reason);
                        drops = true;
                    }
                }
                _ => self.reassembler.skip(),
            }
        }
        drops
    }

    /// Its datagrams in fragments.
    pub fn datagrams(&self) -> &Datagrams {
        self.reassembler.datagrams()
    }

    /// The same, to be changed, and where it is counted how many were given up.
    pub fn datagrams_mut(&mut self) -> (&mut Datagrams, &mut u64) {
        self.reassembler.datagrams_mut()
    }

    /// What the group's packets brought.
    pub fn deliveries(&self) -> Deliveries<'_> {
        self.reassembler.deliveries()
    }

    /// Adds the flow's streams and datagrams, with all that waits, to `out`; see [`Reassembler::save_flow`].
    pub fn save(&self, record: u32, records: &Records, out: &mut Vec<u8>) {
        if let Some(streams) = records.state(record, self.part) {
            self.reassembler.save_flow(record, streams, out);
        }
    }

    /// Takes over what [`Subscribed::save`] wrote elsewhere; on an error, the flow has no streams.
    pub fn restore(&mut self, record: u32, records: &mut Records, saved: &[u8]) -> Result<(), RestoreError> {
        let restored = self.reassembler.restore_flow(record, saved);
        if let Some(streams) = records.state_mut(record, self.part) {
            *streams = restored.unwrap_or_default();
        }
        restored.map(|_| ())
    }

    /// The flow is over.
    pub fn forget(&mut self, record: u32, records: &mut Records) {
        self.reassembler.leave_datagrams(record);
        self.forget_streams(record, records);
    }

    /// The flow is elsewhere.
    pub fn release(&mut self, record: u32, records: &mut Records) {
        self.reassembler.forget_datagrams(record);
        self.forget_streams(record, records);
    }

    fn forget_streams(&mut self, record: u32, records: &mut Records) {
        if let Some(streams) = records.state_mut(record, self.part) {
            self.reassembler.forget(streams);
        }
    }

    /// What was counted.
    pub fn counters(&self) -> StreamCounters {
        *self.reassembler.counters()
    }
}
