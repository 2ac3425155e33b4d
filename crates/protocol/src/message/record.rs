//! A flow's state as it travels, and the reasons why a unit cannot take it.

use crate::message::Watermark;
use crate::wire::{FrameError, Reader, Wire, WireForm, part, put_sized};

/// A flow's serialised state, with the packets that it covers (S19).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowRecord {
    /// The packets that the state covers.
    pub watermark: Watermark,
    /// Everything that the flow owns, in a format that only units know. Empty for a new flow.
    pub bytes: Vec<u8>,
}

impl Wire for FlowRecord {
    const FORM: WireForm =
        WireForm::Parts(&[part("watermark", Watermark::FORM), part("record", WireForm::Sized)]);

    fn write(&self, out: &mut Vec<u8>) {
        self.watermark.write(out);
        put_sized(out, &self.bytes);
    }

    fn read(from: &mut Reader<'_>) -> Result<FlowRecord, FrameError> {
        Ok(FlowRecord { watermark: Watermark::read(from)?, bytes: from.sized()?.to_vec() })
    }

    fn state_bytes(&self) -> Option<usize> {
        Some(self.bytes.len())
    }
}

/// Why a unit cannot take a flow's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum RefuseReason {
    /// The bytes are damaged.
    #[error("the state is damaged")]
    Unreadable = 0,
    /// The state was written by other functions, or by versions of them that cannot be upgraded.
    #[error("the state is of other functions or versions")]
    Incompatible = 1,
    /// Another flow at the unit has the same key or alias.
    #[error("another flow has the key or the alias of this one")]
    Conflict = 2,
    /// The unit has no room for another flow or its streams.
    #[error("there is no room for the flow")]
    NoRoom = 3,
}

impl Wire for RefuseReason {
    const FORM: WireForm = WireForm::Choice(&["unreadable", "incompatible", "conflict", "no room"]);

    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn read(from: &mut Reader<'_>) -> Result<RefuseReason, FrameError> {
        match from.u8()? {
            0 => Ok(RefuseReason::Unreadable),
            1 => Ok(RefuseReason::Incompatible),
            2 => Ok(RefuseReason::Conflict),
            3 => Ok(RefuseReason::NoRoom),
            _ => Err(FrameError::Invalid("reason")),
        }
    }
}
