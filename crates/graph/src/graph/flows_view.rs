//! The flows of a graph: looking them up, saving and restoring them, and ending them.

use nf::EndReason;
use nf::record::FlowRecords;
use packet::{Direction, FlowKey, PacketPool};

use super::Graph;
use crate::cache::RuleView;
use crate::flows::{RestoreError, SavedLayout};
use crate::pipeline::Pipeline;
use crate::places::{Places, PortPlace};

/// The flows of a graph ([`Graph::flows`]). Flows have the numbers of their records.
#[derive(Clone, Copy)]
pub struct FlowsView<'g> {
    pipeline: &'g Pipeline,
}

/// The flows of a graph, to be changed ([`Graph::flows_mut`]).
pub struct FlowsMut<'g> {
    pipeline: &'g mut Pipeline,
}

impl Graph {
    /// Returns the flows.
    pub fn flows(&self) -> FlowsView<'_> {
        FlowsView { pipeline: &self.pipeline }
    }

    /// Returns the flows, to be changed.
    pub fn flows_mut(&mut self) -> FlowsMut<'_> {
        FlowsMut { pipeline: &mut self.pipeline }
    }
}

impl<'g> FlowsView<'g> {
    /// Returns the flows' records.
    pub fn records(self) -> &'g FlowRecords {
        &self.pipeline.flows().table.records
    }

    /// Returns the length of a record, in bytes.
    pub fn record_len(self) -> usize {
        self.records().record_len()
    }

    /// Returns the flow with this key or alias.
    pub fn find(self, hash: u64, key: &FlowKey, reversed: bool) -> Option<u32> {
        self.pipeline.flows().table.find(hash, key, reversed).map(|(record, _)| record)
    }

    /// Returns the flows with this handle, the newest first.
    pub fn of_handle(self, handle: u32) -> impl Iterator<Item = u32> + 'g {
        self.pipeline.flows().table.handles.records(handle)
    }

    /// Returns the cached rule for packets of one direction of a flow, if it is current.
    pub fn rule(self, record: u32, direction: Direction) -> Option<RuleView> {
        self.pipeline.flows().cache.as_ref()?.rule_of(record, direction)
    }

    /// Appends a flow's TCP streams with their queued bytes to `out`, for
    /// [`crate::streams::Reassembler::restore`]; nothing if no function subscribes to streams.
    pub fn save_streams(self, record: u32, out: &mut Vec<u8>) {
        self.pipeline.flows().save_streams(record, out);
    }

    /// Returns the layout of saved flows.
    pub fn saved_layout(self) -> SavedLayout {
        self.pipeline.transfer().saved_layout().clone()
    }

    /// Returns a flow's alias as a unit sends it to a dispatcher on another machine.
    pub fn alias_to_send(self, alias: FlowKey) -> FlowKey {
        self.pipeline.flows().places().alias_to_send(alias)
    }

    /// Returns the alias that a unit on another machine sent of the flow with this key, and its
    /// hash.
    pub fn sent_alias(self, alias: FlowKey, key: &FlowKey) -> (FlowKey, u64) {
        let flows = self.pipeline.flows();
        let alias = flows.places().sent_alias(alias, key);
        (alias, flows.table.hash(&alias))
    }
}

impl FlowsMut<'_> {
    /// Appends everything that a flow owns to `out`: the record, the functions' buffers, its TCP
    /// streams and datagrams in fragments with their queued bytes. The flow does not change.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn save(&mut self, record: u32, out: &mut Vec<u8>) {
        let (transfer, flows, stages) = self.pipeline.transfer_parts();
        transfer.save(record, flows, stages, out);
    }

    /// Restores a saved flow, and returns its record.
    ///
    /// A flow of the same key or alias that is here already is not changed. If the table is full,
    /// another flow is evicted only if the graph's options say so.
    ///
    /// # Errors
    /// If the flow cannot be restored. Nothing of it is kept.
    pub fn restore(&mut self, saved: &[u8], pool: &mut PacketPool) -> Result<u32, RestoreError> {
        self.pipeline.restore_flow(saved, false, pool)
    }

    /// Restores a flow that another graph had since it was saved, with the same time as this graph:
    /// that graph dropped fragments that have expired since.
    ///
    /// # Errors
    /// If the flow cannot be restored. Nothing of it is kept.
    pub fn restore_copy(&mut self, saved: &[u8], pool: &mut PacketPool) -> Result<u32, RestoreError> {
        self.pipeline.restore_flow(saved, true, pool)
    }

    /// Notes that a restored flow lacks packets that were processed elsewhere, at a unit that was
    /// lost.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn note_lag(&mut self, record: u32, pool: &mut PacketPool) {
        let (transfer, flows, stages) = self.pipeline.transfer_parts();
        transfer.note_lag(record, flows, stages, pool);
    }

    /// Removes a flow that has moved elsewhere, which is not its end. What it holds of pools stays
    /// held, unless the other graph has pools of its own.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn release(&mut self, record: u32) {
        let (transfer, flows, stages) = self.pipeline.transfer_parts();
        transfer.release(record, flows, stages);
    }

    /// Accepts flows that a graph with other versions of the functions saved: each function
    /// upgrades its states ([`nf::NetworkFunction::upgrade`]).
    ///
    /// # Errors
    /// If it is a graph of other functions, or in another order.
    pub fn accept_states_of(&mut self, other: SavedLayout) -> Result<(), RestoreError> {
        self.pipeline.transfer_parts().0.accept_states_of(other)
    }

    /// Gives a flow without a handle this one.
    pub fn set_handle(&mut self, record: u32, handle: u32) {
        self.pipeline.parts().0.table.handles.add(handle, record);
    }

    /// Gives the flows with one handle another one, which no flow has.
    pub fn change_handle(&mut self, handle: u32, new: u32) {
        let handles = &mut self.pipeline.parts().0.table.handles;
        let records: Vec<u32> = handles.records(handle).collect();
        for record in records {
            handles.remove(record);
            handles.add(new, record);
        }
    }

    /// Ends the flows with this handle.
    pub fn end(&mut self, handle: u32, pool: &mut PacketPool) {
        let (flows, stages) = self.pipeline.parts();
        while let Some(record) = flows.table.handles.newest(handle) {
            flows.end(record, EndReason::Evicted, stages, pool);
        }
    }

    /// Ends the expired flows with this handle. [`Graph::handle_timeout`] clears them a little
    /// later; until then no lookup finds them.
    pub fn end_expired(&mut self, handle: u32, now_ns: u64, pool: &mut PacketPool) {
        let (flows, stages) = self.pipeline.parts();
        flows.clock.advance(now_ns);
        let now_ns = flows.clock.now_ns();
        let has_expired = |&record: &u32| flows.table.records.header(record).has_expired(now_ns);
        let expired: Vec<u32> = flows.table.handles.records(handle).filter(has_expired).collect();
        expired.into_iter().for_each(|record| flows.end_in_time(record, stages, pool));
    }

    /// Sets the places of ports. A flow's alias is a key of the place of the port where its packets
    /// leave: there its replies arrive. Without places, all ports have the same. There must be no
    /// flows yet.
    pub fn set_places(&mut self, places: &[PortPlace]) {
        self.pipeline.parts().0.set_places(Places::new(places));
    }
}
