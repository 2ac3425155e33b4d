//! What a function does to a packet, written down while it does it (B5, B11, B21-B23): the Local
//! MAT's entries.
//!
//! Functions write through [`crate::PacketView`], which records; those that want control add
//! entries themselves. `rivulet explain` shows the record; a chain that consolidates makes rules of
//! it for the flow's next packets.

use packet::{DropReason, End, Endpoint, OuterHeaders, Tag, TagKind};

use crate::{Access, Field};

/// Actions, state functions and events that are kept of one function and packet, each; further ones
/// are counted.
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
    /// It is put into a tunnel, if its IP packet has no more bytes than this and is in none (B14).
    Encap {
        /// The outer headers.
        outer: OuterHeaders,
        /// Longer packets are treated otherwise.
        len_max: u16,
    },
    /// The outermost tag of this kind is looked for, and this is it.
    FindTag(TagKind, Option<Tag>),
    /// This VLAN tag, or MPLS label, is put before those that it has (B14).
    PushTag(Tag),
    /// This one, the outermost of its kind, is taken away (B14).
    PopTag(Tag),
    /// These bytes are put before the IP header; they are this packet's own (B14).
    EncapBytes {
        /// The headers.
        header: Vec<u8>,
        /// Their IP version.
        version: u8,
    },
    /// This many bytes before the inner IP header are taken away, and what they tell of congestion
    /// is told within (B14).
    Decap {
        /// How many.
        len: usize,
        /// The inner header's IP version.
        version: u8,
    },
}

/// A part of a function that is to run for every packet of the flow, whatever happens to the
/// headers (B17, B22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFunction {
    /// The function's own number for it, handed back to [`crate::NetworkFunction::state_function`].
    pub id: u16,
    /// What it does with the payload.
    pub access: Access,
    /// Header fields that it reads as they are behind the functions before its own.
    pub reads: &'static [Field],
}

/// A condition that, once it holds, makes what was recorded of the flow stale (B7, B23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCondition {
    /// The function's own number for it, handed back to [`crate::NetworkFunction::event_holds`].
    pub id: u16,
    /// An argument of the function's own.
    pub argument: u64,
    /// What it may come to hold by.
    pub cause: Cause,
}

/// What an event may come by, and so when its condition is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// An operator's command, or another configuration. It is looked at with the flow's next packet
    /// after each command, once: if it holds, it must do so for as long as what was recorded before
    /// is stale.
    Command = 1,
    /// A packet, of this flow or of another: it is looked at before every packet. While it holds,
    /// each packet is recorded: note it no more.
    Packet = 2,
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
    /// Entries beyond [`RECORD_MAX`], which were not kept. A recording that lost entries says
    /// nothing about other packets.
    pub lost: u32,
    /// The function did to this packet what it will not do to the next ones.
    pub one_off: bool,
    /// What the function does is each packet's own: it is to see all of them, where others follow a
    /// rule.
    pub per_packet: bool,
    /// How long it wants the flow to be kept, in milliseconds; 0: it did not say.
    pub keep_ms: u32,
    /// The place in [`crate::Setup::rules`] of the rule that decided about the packet, for those
    /// who explain.
    pub rule: Option<u32>,
    /// Whether it is of no use once the packet differs from others.
    for_rules: bool,
}

impl Recording {
    /// Whether header actions are still to be added.
    #[inline]
    pub(crate) fn wants_actions(&self) -> bool {
        !(self.for_rules && self.one_off)
    }

    /// Whether it holds for the flow's next packets.
    pub fn repeats(&self) -> bool {
        self.lost == 0 && !self.one_off
    }

    /// Begins anew, in the same memory. `for_rules`: it is of no use once the packet differs from
    /// others; no header actions are added any more then.
    pub fn begin(&mut self, for_rules: bool) {
        self.for_rules = for_rules;
        self.actions.clear();
        self.functions.clear();
        self.events.clear();
        (self.lost, self.one_off, self.per_packet, self.keep_ms) = (0, false, false, 0);
        self.rule = None;
    }

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
