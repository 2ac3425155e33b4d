//! What a function does to a packet, written down while it does it (B5, B11, B21-B23): the Local MAT's entries.
//!
//! Functions write through [`crate::PacketView`], which records; those that want control add entries themselves. The plain
//! chain only shows the record (`rivulet explain`); consolidation replays it.

use packet::{DropReason, End, Endpoint};

use crate::{Access, Field};

/// Actions, state functions and events that are kept of one function and packet, each; further ones are counted.
pub const RECORD_MAX: usize = 32;

/// What is done to a packet's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderAction {
    /// Nothing: the default (B12).
    Forward,
    /// It is dropped (B13).
    Drop(DropReason),
    /// One end gets this address and port (B15).
    SetEnd(End, Endpoint),
    /// One end of the packet that an ICMP error quotes gets this address and port.
    SetEmbeddedEnd(End, Endpoint),
    /// The field gets this value.
    SetField(Field, u64),
    /// The time to live goes down by one (B16).
    DecrementTtl,
    /// These bytes are put before the IP header (B14).
    Encapsulate {
        /// The headers.
        header: Vec<u8>,
        /// Their IP version.
        version: u8,
    },
    /// This many bytes before the inner IP header are taken away (B14).
    Decapsulate {
        /// How many.
        len: usize,
        /// The inner header's IP version.
        version: u8,
    },
}

/// A part of a function that is to run for every packet of the flow, whatever happens to the headers (B17, B22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFunction {
    /// The function's own number for it, handed back to [`crate::NetworkFunction::state_function`].
    pub id: u16,
    /// What it does with the payload.
    pub access: Access,
}

/// A condition that, once it holds, makes what was recorded of the flow stale (B7, B23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCondition {
    /// The function's own number for it, handed back to [`crate::NetworkFunction::event_holds`].
    pub id: u16,
    /// An argument of the function's own.
    pub argument: u64,
}

/// What one function recorded for one packet, in order (B19).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Header actions.
    pub actions: Vec<HeaderAction>,
    /// State functions.
    pub functions: Vec<StateFunction>,
    /// Events.
    pub events: Vec<EventCondition>,
    /// Entries beyond [`RECORD_MAX`], which were not kept. A recording that lost entries must not be replayed.
    pub lost: u32,
}

impl Recording {
    pub(crate) fn action(&mut self, action: HeaderAction) {
        add(&mut self.actions, action, &mut self.lost);
    }

    pub(crate) fn function(&mut self, function: StateFunction) {
        add(&mut self.functions, function, &mut self.lost);
    }

    pub(crate) fn event(&mut self, event: EventCondition) {
        add(&mut self.events, event, &mut self.lost);
    }
}

fn add<T>(list: &mut Vec<T>, entry: T, lost: &mut u32) {
    if list.len() < RECORD_MAX {
        list.push(entry);
    } else {
        *lost += 1;
    }
}
