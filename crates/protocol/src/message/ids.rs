//! Identifiers of flows, units and epochs.

use std::fmt;

use crate::wire::{FrameError, Reader, Wire, WireForm, part};

/// The number of a compute unit: the lowest are used first (S35).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u16);

impl UnitId {
    /// Returns it as an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit {}", self.0)
    }
}

impl Wire for UnitId {
    const FORM: WireForm = u16::FORM;

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<UnitId, FrameError> {
        Wire::read(from).map(UnitId)
    }
}

/// A flow, as its dispatcher knows it: the index in its table, and the number of earlier flows of
/// that index. No other flow of that dispatcher ever has the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// The index.
    pub index: u32,
    /// The number of earlier flows of the index.
    pub generation: u32,
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow {}.{}", self.index, self.generation)
    }
}

impl Wire for FlowId {
    const FORM: WireForm =
        WireForm::Parts(&[part("flow_index", u32::FORM), part("flow_generation", u32::FORM)]);

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.index.write(out);
        self.generation.write(out);
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<FlowId, FrameError> {
        Ok(FlowId { index: Wire::read(from)?, generation: Wire::read(from)? })
    }
}

/// The number of a flow's owner, counted from 1.
pub type Epoch = u32;
