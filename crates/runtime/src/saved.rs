//! The flows of one home as bytes: what goes from unit to unit.
//!
//! A flow of the router's is, nearly always, one of the graph's; see [`Graph::flows_of`].

use graph::{Graph, RestoreError};
use packet::PacketPool;
use protocol::message::RefuseReason;

/// What stands before each saved flow: its length.
const PREFIX_LEN: usize = size_of::<u32>();

/// What a saved flow usually takes at most beside its record.
const SPARE_LEN: usize = 64;

/// Appends all flows that have this home.
pub fn save(graph: &mut Graph, home: u32, out: &mut Vec<u8>) {
    let flow = |graph: &Graph, number| graph.flows_of(home).nth(number);
    let mut number = 0;
    while let Some(record) = flow(graph, number) {
        number += 1;
        let begin = out.len();
        out.reserve(PREFIX_LEN + graph.record_len() + SPARE_LEN);
        out.extend_from_slice(&[0; PREFIX_LEN]);
        graph.save_flow(record, out);
        let len = (out.len() - begin - PREFIX_LEN) as u32;
        out[begin..begin + PREFIX_LEN].copy_from_slice(&len.to_le_bytes());
    }
}

/// Where saved flows come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Whoever saved them does not have them any more.
    Handed,
    /// They were with somebody else meanwhile, who dropped fragments whose time was over.
    Copied,
}

/// Has the flows that [`save`] wrote in place of those that have this home. If they cannot be read
/// nothing changes.
pub fn restore(
    graph: &mut Graph,
    home: u32,
    (saved, source): (&[u8], Source),
    pool: &mut PacketPool,
) -> Result<(), RefuseReason> {
    let mut before = Vec::new();
    save(graph, home, &mut before);
    release(graph, home);
    add(graph, home, (saved, source), pool).inspect_err(|_| {
        release(graph, home);
        let _ = add(graph, home, (&before, Source::Handed), pool); // What was here a moment ago has room here.
    })
}

/// Takes the flows that [`save`] wrote over.
fn add(
    graph: &mut Graph,
    home: u32,
    (saved, source): (&[u8], Source),
    pool: &mut PacketPool,
) -> Result<(), RefuseReason> {
    let mut rest = saved;
    while let Some((len, behind)) = rest.split_first_chunk::<PREFIX_LEN>() {
        let (flow, next) =
            behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(RefuseReason::Unreadable)?;
        let restored = match source {
            Source::Handed => graph.restore_flow(flow, pool),
            Source::Copied => graph.restore_copy(flow, pool),
        };
        let record = restored.map_err(|error| reason(&error))?;
        graph.set_handle(record, home);
        rest = next;
    }
    if rest.is_empty() { Ok(()) } else { Err(RefuseReason::Unreadable) }
}

/// Returns the reason for which a graph refuses a flow, as units exchange it.
fn reason(error: &RestoreError) -> RefuseReason {
    match error {
        RestoreError::Damaged => RefuseReason::Unreadable,
        RestoreError::OtherChain | RestoreError::Upgrade(_) => RefuseReason::Incompatible,
        RestoreError::Known => RefuseReason::Conflict,
        RestoreError::TableFull | RestoreError::Streams(_) => RefuseReason::NoRoom,
    }
}

/// The flows that have this home are elsewhere.
pub fn release(graph: &mut Graph, home: u32) {
    let records: Vec<u32> = graph.flows_of(home).collect();
    records.into_iter().for_each(|record| graph.release_flow(record));
}
