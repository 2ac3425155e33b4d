//! Messages of the ownership protocol.

use protocol::message::{
    FlowId, FlowRecord, FromDispatcher, FromPeer, FromUnit, Handover, RefuseReason, StateDelta, UnitId,
    Version, Watermark,
};

use super::reader::{FrameError, Reader, put, put_sized};

pub(super) fn put_flow(out: &mut Vec<u8>, flow: FlowId) {
    put!(out, flow.index, flow.generation);
}

pub(super) fn read_flow(from: &mut Reader<'_>) -> Result<FlowId, FrameError> {
    Ok(FlowId { index: from.u32()?, generation: from.u32()? })
}

pub(super) fn put_handover(out: &mut Vec<u8>, handover: Handover) {
    match handover {
        Handover::None => out.push(0),
        Handover::From { previous, last } => {
            out.push(1);
            put!(out, previous.0, last);
        }
    }
}

pub(super) fn read_handover(from: &mut Reader<'_>) -> Result<Handover, FrameError> {
    match from.u8()? {
        0 => Ok(Handover::None),
        1 => Ok(Handover::From { previous: UnitId(from.u16()?), last: from.u64()? }),
        _ => Err(FrameError::Invalid("handover")),
    }
}

/// Numbers of messages from dispatchers.
mod dispatcher {
    pub const RELEASE: u8 = 0;
    pub const ADOPT: u8 = 1;
    pub const END: u8 = 2;
    pub const DRAIN: u8 = 3;
    pub const REPLICATE: u8 = 4;
}

/// Appends a message of a dispatcher.
pub(super) fn write_from_dispatcher(out: &mut Vec<u8>, message: &FromDispatcher) {
    match message {
        FromDispatcher::Release { flow, epoch, owner, last, start } => {
            out.push(dispatcher::RELEASE);
            put_flow(out, *flow);
            put!(out, epoch, owner.0, last);
            put_handover(out, *start);
        }
        FromDispatcher::Adopt { flow, epoch, previous, last } => {
            out.push(dispatcher::ADOPT);
            put_flow(out, *flow);
            put!(out, epoch, previous.0, last);
        }
        FromDispatcher::Replicate { flow, epoch, to } => {
            out.push(dispatcher::REPLICATE);
            put_flow(out, *flow);
            put!(out, epoch, to.0);
        }
        FromDispatcher::End { flow } => {
            out.push(dispatcher::END);
            put_flow(out, *flow);
        }
        FromDispatcher::Drain => out.push(dispatcher::DRAIN),
    }
}

/// Reads a message of a dispatcher.
pub(super) fn read_from_dispatcher(from: &mut Reader<'_>) -> Result<FromDispatcher, FrameError> {
    Ok(match from.u8()? {
        dispatcher::RELEASE => FromDispatcher::Release {
            flow: read_flow(from)?,
            epoch: from.u32()?,
            owner: UnitId(from.u16()?),
            last: from.u64()?,
            start: read_handover(from)?,
        },
        dispatcher::ADOPT => FromDispatcher::Adopt {
            flow: read_flow(from)?,
            epoch: from.u32()?,
            previous: UnitId(from.u16()?),
            last: from.u64()?,
        },
        dispatcher::REPLICATE => {
            FromDispatcher::Replicate { flow: read_flow(from)?, epoch: from.u32()?, to: UnitId(from.u16()?) }
        }
        dispatcher::END => FromDispatcher::End { flow: read_flow(from)? },
        dispatcher::DRAIN => FromDispatcher::Drain,
        kind => return Err(FrameError::UnknownKind(kind)),
    })
}

/// Numbers of messages from units to dispatchers.
mod unit {
    pub const EXPIRE: u8 = 0;
    pub const DRAINED: u8 = 1;
    pub const LOST: u8 = 2;
    pub const REFUSE: u8 = 3;
    pub const ARRIVED: u8 = 4;
    pub const REPLICATED: u8 = 5;
}

/// Appends a message of a unit to its dispatcher.
pub(super) fn write_from_unit(out: &mut Vec<u8>, message: &FromUnit) {
    match message {
        FromUnit::Expire { flow, epoch, seq } => {
            out.push(unit::EXPIRE);
            put_flow(out, *flow);
            put!(out, epoch, seq);
        }
        FromUnit::Arrived { flow, epoch } => {
            out.push(unit::ARRIVED);
            put_flow(out, *flow);
            put!(out, epoch);
        }
        FromUnit::Replicated { flow, epoch } => {
            out.push(unit::REPLICATED);
            put_flow(out, *flow);
            put!(out, epoch);
        }
        FromUnit::Drained => out.push(unit::DRAINED),
        FromUnit::Lost { flow, epoch } => {
            out.push(unit::LOST);
            put_flow(out, *flow);
            put!(out, epoch);
        }
        FromUnit::Refuse { flow, epoch, reason, holder } => {
            out.push(unit::REFUSE);
            put_flow(out, *flow);
            put!(out, epoch, holder.0);
            out.push(number_of(*reason));
        }
    }
}

pub(super) fn read_from_unit(from: &mut Reader<'_>) -> Result<FromUnit, FrameError> {
    Ok(match from.u8()? {
        unit::EXPIRE => FromUnit::Expire { flow: read_flow(from)?, epoch: from.u32()?, seq: from.u64()? },
        unit::ARRIVED => FromUnit::Arrived { flow: read_flow(from)?, epoch: from.u32()? },
        unit::REPLICATED => FromUnit::Replicated { flow: read_flow(from)?, epoch: from.u32()? },
        unit::DRAINED => FromUnit::Drained,
        unit::LOST => FromUnit::Lost { flow: read_flow(from)?, epoch: from.u32()? },
        unit::REFUSE => {
            let (flow, epoch, holder) = (read_flow(from)?, from.u32()?, UnitId(from.u16()?));
            FromUnit::Refuse { flow, epoch, reason: read_reason(from)?, holder }
        }
        kind => return Err(FrameError::UnknownKind(kind)),
    })
}

/// Numbers of messages between units.
mod peer {
    pub const PULL: u8 = 0;
    pub const STATE: u8 = 1;
    pub const STATE_ACK: u8 = 2;
    pub const REPLICATE: u8 = 3;
    pub const DELTA: u8 = 4;
    pub const NEED_FULL: u8 = 5;
    pub const END: u8 = 6;
    pub const REFUSE: u8 = 7;
    pub const CHANGES: u8 = 8;
}

/// Appends a message of a unit to another one.
pub(super) fn write_from_peer(out: &mut Vec<u8>, message: &FromPeer) {
    let mut head = |kind: u8, epoch: u32| {
        out.push(kind);
        put_flow(out, message.flow());
        put!(out, epoch);
    };
    match message {
        FromPeer::Pull { epoch, owner, last, again, has, .. } => {
            head(peer::PULL, *epoch);
            put!(out, owner.0, last);
            out.push(u8::from(*again));
            // Version 1 of the format had no more.
            out.push(u8::from(has.is_some()));
            if let Some(has) = has {
                put!(out, has.epoch, has.seq);
            }
        }
        FromPeer::State { epoch, record, .. } => {
            head(peer::STATE, *epoch);
            put_record(out, record);
        }
        FromPeer::Changes { epoch, watermark, delta, .. } => {
            head(peer::CHANGES, *epoch);
            put!(out, watermark.contiguous, watermark.ahead);
            put_sized(out, delta.bytes());
        }
        FromPeer::StateAck { epoch, .. } => head(peer::STATE_ACK, *epoch),
        FromPeer::Replicate { epoch, record, is_reported, .. } => {
            head(peer::REPLICATE, *epoch);
            put_record(out, record);
            out.push(u8::from(*is_reported));
        }
        FromPeer::Delta { epoch, watermark, delta, .. } => {
            head(peer::DELTA, *epoch);
            put!(out, watermark.contiguous, watermark.ahead);
            put_sized(out, delta.bytes());
        }
        FromPeer::NeedFull { version, .. } => {
            head(peer::NEED_FULL, version.epoch);
            put!(out, version.seq);
        }
        FromPeer::End { epoch, .. } => head(peer::END, *epoch),
        FromPeer::Refuse { epoch, reason, record, .. } => {
            head(peer::REFUSE, *epoch);
            out.push(number_of(*reason));
            put_record(out, record);
        }
    }
}

/// Reads a message of another unit.
pub(super) fn read_from_peer(from: &mut Reader<'_>) -> Result<FromPeer, FrameError> {
    let (kind, flow, epoch) = (from.u8()?, read_flow(from)?, from.u32()?);
    Ok(match kind {
        peer::PULL => FromPeer::Pull {
            flow,
            epoch,
            owner: UnitId(from.u16()?),
            last: from.u64()?,
            again: read_flag(from)?,
            has: match !from.is_empty() && read_flag(from)? {
                true => Some(Version { epoch: from.u32()?, seq: from.u64()? }),
                false => None,
            },
        },
        peer::STATE => FromPeer::State { flow, epoch, record: read_record(from)? },
        peer::CHANGES => FromPeer::Changes {
            flow,
            epoch,
            watermark: read_watermark(from)?,
            delta: StateDelta::from_bytes(from.sized()?.to_vec()),
        },
        peer::STATE_ACK => FromPeer::StateAck { flow, epoch },
        peer::REPLICATE => FromPeer::Replicate {
            flow,
            epoch,
            record: read_record(from)?,
            is_reported: !from.is_empty() && read_flag(from)?,
        },
        peer::DELTA => FromPeer::Delta {
            flow,
            epoch,
            watermark: read_watermark(from)?,
            delta: StateDelta::from_bytes(from.sized()?.to_vec()),
        },
        peer::NEED_FULL => FromPeer::NeedFull { flow, version: Version { epoch, seq: from.u64()? } },
        peer::END => FromPeer::End { flow, epoch },
        peer::REFUSE => {
            FromPeer::Refuse { flow, epoch, reason: read_reason(from)?, record: read_record(from)? }
        }
        kind => return Err(FrameError::UnknownKind(kind)),
    })
}

fn put_record(out: &mut Vec<u8>, record: &FlowRecord) {
    put!(out, record.watermark.contiguous, record.watermark.ahead);
    put_sized(out, &record.bytes);
}

fn read_record(from: &mut Reader<'_>) -> Result<FlowRecord, FrameError> {
    Ok(FlowRecord { watermark: read_watermark(from)?, bytes: from.sized()?.to_vec() })
}

fn read_watermark(from: &mut Reader<'_>) -> Result<Watermark, FrameError> {
    Ok(Watermark { contiguous: from.u64()?, ahead: from.u64()? })
}

pub(super) fn read_flag(from: &mut Reader<'_>) -> Result<bool, FrameError> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FrameError::Invalid("flag")),
    }
}

const REASONS: [RefuseReason; 4] =
    [RefuseReason::Unreadable, RefuseReason::Incompatible, RefuseReason::Conflict, RefuseReason::NoRoom];

fn number_of(reason: RefuseReason) -> u8 {
    // All reasons are in the list.
    REASONS.iter().position(|of| *of == reason).unwrap_or_default() as u8
}

fn read_reason(from: &mut Reader<'_>) -> Result<RefuseReason, FrameError> {
    REASONS.get(usize::from(from.u8()?)).copied().ok_or(FrameError::Invalid("reason"))
}
