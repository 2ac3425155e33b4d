//! The flows of one home as bytes: what goes from unit to unit.
//!
//! A flow of the router's is, nearly always, one of the chain's; see [`Chain::flows_of`].

use graph::{Chain, RestoreError};
use packet::PacketPool;
use protocol::message::RefuseReason;

/// What stands before each saved flow: its length.
const PREFIX_LEN: usize = size_of::<u32>();

/// What a saved flow usually takes at most beside its record.
const SPARE_LEN: usize = 64;

/// Appends all flows that have this home.
pub fn save(chain: &mut Chain, home: u32, out: &mut Vec<u8>) {
    let flow = |chain: &Chain, number| chain.flows_of(home).nth(number);
    let mut number = 0;
    while let Some(record) = flow(chain, number) {
        number += 1;
        let begin = out.len();
        out.reserve(PREFIX_LEN + chain.record_len() + SPARE_LEN);
        out.extend_from_slice(&[0; PREFIX_LEN]);
        chain.save_flow(record, out);
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
    chain: &mut Chain,
    home: u32,
    (saved, source): (&[u8], Source),
    pool: &mut PacketPool,
) -> Result<(), RefuseReason> {
    let mut before = Vec::new();
    save(chain, home, &mut before);
    release(chain, home);
    add(chain, home, (saved, source), pool).inspect_err(|_| {
        release(chain, home);
        let _ = add(chain, home, (&before, Source::Handed), pool); // What was here a moment ago has room here.
    })
}

/// Takes the flows that [`save`] wrote over.
fn add(
    chain: &mut Chain,
    home: u32,
    (saved, source): (&[u8], Source),
    pool: &mut PacketPool,
) -> Result<(), RefuseReason> {
    let mut rest = saved;
    while let Some((len, behind)) = rest.split_first_chunk::<PREFIX_LEN>() {
        let (flow, next) =
            behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(RefuseReason::Unreadable)?;
        let restored = match source {
            Source::Handed => chain.restore_flow(flow, pool),
            Source::Copied => chain.restore_copy(flow, pool),
        };
        let record = restored.map_err(|error| reason(&error))?;
        chain.set_handle(record, home);
        rest = next;
    }
    if rest.is_empty() { Ok(()) } else { Err(RefuseReason::Unreadable) }
}

/// Returns the reason for which a chain refuses a flow, as units exchange it.
fn reason(error: &RestoreError) -> RefuseReason {
    match error {
        RestoreError::Damaged => RefuseReason::Unreadable,
        RestoreError::OtherChain | RestoreError::Upgrade(_) => RefuseReason::Incompatible,
        RestoreError::Known => RefuseReason::Conflict,
        RestoreError::TableFull | RestoreError::Streams(_) => RefuseReason::NoRoom,
    }
}

/// The flows that have this home are elsewhere.
pub fn release(chain: &mut Chain, home: u32) {
    let records: Vec<u32> = chain.flows_of(home).collect();
    records.into_iter().for_each(|record| chain.release_flow(record));
}
