//! Stamps of packets: the data of a Geneve option.
//!
//! | form | bytes | fields |
//! |---|---|---|
//! | short, type 1 | 16 | flow: index (4), generation (2); epoch (2); seq (4); arrival (4) |
//! | long, type 2 | 32 to 68 | flow: index (4), generation (4); epoch (4), seq (8), arrival (8); handover and targets |
//!
//! Most packets have the short form, 28 bytes with the headers of Geneve and the option: those of
//! flows that have not moved, within a flowlet. Its arrival is the lowest 32 bits of the time in
//! nanoseconds; the receiver knows the rest from its clock, which the sender sets.

use protocol::message::{FlowId, Handover, ReplicaTargets, Stamp, UnitId};
use protocol::wire::{FrameError, Reader, Wire};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::put;

/// The form of a stamp, as the type of its option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StampForm {
    Short = 1,
    Long = 2,
}

impl StampForm {
    pub fn of_type(number: u8) -> Option<StampForm> {
        [StampForm::Short, StampForm::Long].into_iter().find(|form| *form as u8 == number)
    }
}

/// A stamp in its short form.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ShortStamp {
    index: U32,
    generation: U16,
    epoch: U16,
    seq: U32,
    arrival: U32,
}

impl ShortStamp {
    /// Returns a stamp in its short form, if it has one.
    #[inline]
    pub fn new(stamp: &Stamp, arrival_ns: u64) -> Option<ShortStamp> {
        if stamp.handover != Handover::None || stamp.targets.is_some() {
            return None;
        }
        Some(ShortStamp {
            index: stamp.flow.index.into(),
            generation: u16::try_from(stamp.flow.generation).ok()?.into(),
            epoch: u16::try_from(stamp.epoch).ok()?.into(),
            seq: u32::try_from(stamp.seq).ok()?.into(),
            arrival: (arrival_ns as u32).into(),
        })
    }

    /// Returns the stamp, and the packet's arrival. `now_ns`: the receiver's clock, as the sender
    /// set it.
    #[inline]
    pub fn read(&self, now_ns: u64) -> (Stamp, u64) {
        let flow = FlowId { index: self.index.get(), generation: self.generation.get().into() };
        let (seq, epoch) = (self.seq.get().into(), self.epoch.get().into());
        let stamp = Stamp { flow, seq, epoch, handover: Handover::None, targets: None };
        (stamp, nearest(now_ns, self.arrival.get()))
    }
}

/// Values of the byte that counts targets.
const NO_TARGETS: u8 = 0xff;
const ALL_TARGETS: u8 = 0xfe;

/// Appends a stamp, and returns its form.
pub(super) fn put_stamp(out: &mut Vec<u8>, stamp: &Stamp, arrival_ns: u64) -> StampForm {
    if let Some(short) = ShortStamp::new(stamp, arrival_ns) {
        out.extend_from_slice(short.as_bytes());
        return StampForm::Short;
    }
    put!(out, stamp.flow.index, stamp.flow.generation, stamp.epoch, stamp.seq, arrival_ns);
    stamp.handover.write(out);
    match &stamp.targets {
        None => out.push(NO_TARGETS),
        Some(targets) => {
            let units = targets.units();
            // Up to `TARGETS_MAX` units.
            out.push(if targets.is_all() { ALL_TARGETS } else { units.len() as u8 });
            out.push(u8::from(targets.are_at_once()));
            units.iter().for_each(|unit| put!(out, unit.0));
        }
    }
    StampForm::Long
}

/// Reads a stamp, and the packet's arrival. `now_ns`: the receiver's clock, as the sender set it.
pub(super) fn read_stamp(
    from: &mut Reader<'_>,
    form: StampForm,
    now_ns: u64,
) -> Result<(Stamp, u64), FrameError> {
    if form == StampForm::Short {
        return Ok(from.head::<ShortStamp>()?.read(now_ns));
    }
    let (flow, epoch, seq, arrival_ns) = (FlowId::read(from)?, from.u32()?, from.u64()?, from.u64()?);
    let handover = Handover::read(from)?;
    let targets = match from.u8()? {
        NO_TARGETS => None,
        count => {
            let is_at_once = bool::read(from)?;
            let mut targets = if count == ALL_TARGETS { ReplicaTargets::ALL } else { ReplicaTargets::NONE };
            for _ in 0..if count == ALL_TARGETS { 0 } else { count } {
                if !targets.add(UnitId(from.u16()?)) {
                    return Err(FrameError::Invalid("target"));
                }
            }
            Some(if is_at_once { targets.at_once() } else { targets })
        }
    };
    Ok((Stamp { flow, seq, epoch, handover, targets }, arrival_ns))
}

/// Returns the time nearest to `now_ns` with these lowest bits.
fn nearest(now_ns: u64, low: u32) -> u64 {
    let ahead = low.wrapping_sub(now_ns as u32) as i32;
    now_ns.saturating_add_signed(ahead.into())
}
