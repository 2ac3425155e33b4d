//! Saved flows: what units exchange in a handover.
//!
//! A flow of the dispatcher is nearly always one flow of the graph; see
//! [`graph::FlowsView::of_handle`].

use graph::{Graph, RestoreError};
use packet::PacketPool;
use protocol::message::RefuseReason;

/// Length of the length field before each saved flow.
const PREFIX_LEN: usize = size_of::<u32>();

/// Usual limit on the bytes of a saved flow in addition to its record: 152 of TCP streams without
/// pending bytes, and others.
const SPARE_LEN: usize = 256;

/// Appends all flows with this handle.
pub fn save(graph: &mut Graph, handle: u32, out: &mut Vec<u8>) {
    let flow = |graph: &Graph, number| graph.flows().of_handle(handle).nth(number);
    let mut number = 0;
    while let Some(record) = flow(graph, number) {
        number += 1;
        let begin = out.len();
        out.reserve(PREFIX_LEN + graph.flows().record_len() + SPARE_LEN);
        out.extend_from_slice(&[0; PREFIX_LEN]);
        graph.flows_mut().save(record, out);
        let len = (out.len() - begin - PREFIX_LEN) as u32;
        out[begin..begin + PREFIX_LEN].copy_from_slice(&len.to_le_bytes());
    }
}

/// Origin of saved flows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Their owner handed them over.
    Handed,
    /// A replica: their owner may have dropped expired fragments since.
    Copied,
}

/// Replaces the flows with this handle by saved ones.
///
/// # Errors
/// The reason, if they cannot be restored. Then nothing has changed.
pub fn restore(
    graph: &mut Graph,
    handle: u32,
    (saved, source): (&[u8], Source),
    pool: &mut PacketPool,
) -> Result<(), RefuseReason> {
    let mut before = Vec::new();
    save(graph, handle, &mut before);
    release(graph, handle);
    add(graph, handle, (saved, source), pool).inspect_err(|_| {
        release(graph, handle);
        let _ = add(graph, handle, (&before, Source::Handed), pool); // There was room for them before.
    })
}

/// Adds saved flows.
fn add(
    graph: &mut Graph,
    handle: u32,
    (saved, source): (&[u8], Source),
    pool: &mut PacketPool,
) -> Result<(), RefuseReason> {
    let mut rest = saved;
    while let Some((len, after)) = rest.split_first_chunk::<PREFIX_LEN>() {
        let (flow, next) =
            after.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(RefuseReason::Unreadable)?;
        let restored = match source {
            Source::Handed => graph.flows_mut().restore(flow, pool),
            Source::Copied => graph.flows_mut().restore_copy(flow, pool),
        };
        let record = restored.map_err(|error| reason(&error))?;
        graph.flows_mut().set_handle(record, handle);
        rest = next;
    }
    if rest.is_empty() { Ok(()) } else { Err(RefuseReason::Unreadable) }
}

/// Returns the reason why a graph refuses a flow, as units exchange it.
fn reason(error: &RestoreError) -> RefuseReason {
    match error {
        RestoreError::Damaged => RefuseReason::Unreadable,
        RestoreError::OtherChain | RestoreError::Upgrade(_) => RefuseReason::Incompatible,
        RestoreError::Known => RefuseReason::Conflict,
        RestoreError::TableFull | RestoreError::SharedState | RestoreError::Streams(_) => {
            RefuseReason::NoRoom
        }
    }
}

/// Notes that the flows with this handle lack packets that were processed elsewhere.
pub fn note_lag(graph: &mut Graph, handle: u32, pool: &mut PacketPool) {
    let records: Vec<u32> = graph.flows().of_handle(handle).collect();
    records.into_iter().for_each(|record| graph.flows_mut().note_lag(record, pool));
}

/// Removes the flows with this handle; they have another owner.
pub fn release(graph: &mut Graph, handle: u32) {
    let records: Vec<u32> = graph.flows().of_handle(handle).collect();
    records.into_iter().for_each(|record| graph.flows_mut().release(record));
}
