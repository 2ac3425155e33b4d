//! Recordings of an NF's actions on a packet (B5, B11, B21-B23): the entries of the Local MAT.
//!
//! Writes through [`crate::PacketView`] are recorded automatically; NFs can add entries of their
//! own. `rivulet explain` shows recordings, and the graph makes rules of them for the flow's next
//! packets.

use packet::{DropReason, End, Endpoint, OuterHeaders, Tag, TagKind};

use crate::{Access, Field};

/// Limit on the actions, on the state functions and on the events recorded per NF and packet.
/// Entries beyond it are counted.
pub const RECORD_MAX: usize = 32;

/// A change to a packet's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderAction {
    /// No change: the default (B12).
    Forward,
    /// Dropped (B13).
    Drop(DropReason),
    /// Address and port of one end rewritten (B15).
    SetEnd(End, Endpoint),
    /// One end of the packet quoted in an ICMP error rewritten.
    SetEmbeddedEnd(End, Endpoint),
    /// A field set.
    SetField(Field, u64),
    /// Time to live decremented (B16).
    DecrementTtl,
    /// Outer headers added, for packets in no tunnel (B14).
    Encap {
        /// The outer headers.
        outer: OuterHeaders,
        /// Longest IP packet, in bytes, that gets the headers.
        len_max: u16,
    },
    /// The outermost tag of this kind was looked up, with this result.
    FindTag(TagKind, Option<Tag>),
    /// VLAN tag or MPLS label pushed (B14).
    PushTag(Tag),
    /// The outermost tag of its kind popped; it was this one (B14).
    PopTag(Tag),
    /// Headers specific to this packet added in front of the IP header (B14).
    EncapBytes {
        /// The headers.
        header: Vec<u8>,
        /// IP version of the headers.
        version: u8,
    },
    /// Outer headers removed, and their congestion mark copied to the inner header (B14).
    Decap {
        /// Bytes in front of the inner IP header.
        len: usize,
        /// IP version of the inner header.
        version: u8,
    },
}

/// A part of an NF that runs for every packet of the flow, whatever happens to the headers (B17,
/// B22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFunction {
    /// The NF's number for it, passed to [`crate::NetworkFunction::state_function`].
    pub id: u16,
    /// Access to the payload.
    pub access: Access,
    /// Header fields that it reads, as they are after the preceding NFs.
    pub reads: &'static [Field],
}

/// A condition that, once it holds, invalidates the recordings of the flow (B7, B23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCondition {
    /// The NF's number for it, passed to [`crate::NetworkFunction::event_holds`].
    pub id: u16,
    /// An argument, with a meaning given by the NF.
    pub argument: u64,
    /// The possible cause of the event.
    pub cause: Cause,
}

/// The cause of an event, which decides when its condition is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// An operator's command or a new configuration. The condition is checked once per command,
    /// with the flow's next packet. Once true, it must stay true until the flow is recorded again.
    Command = 1,
    /// A packet of this or another flow. The condition is checked before every packet. While it
    /// holds, every packet is recorded: do not record it again then.
    Packet = 2,
}

/// Everything that one NF recorded for one packet, in order (B19).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Header actions.
    pub actions: Vec<HeaderAction>,
    /// State functions.
    pub functions: Vec<StateFunction>,
    /// Events.
    pub events: Vec<EventCondition>,
    /// Entries beyond [`RECORD_MAX`], not kept. A recording with lost entries cannot become a rule.
    pub lost: u32,
    /// The NF will treat the next packets differently, see [`crate::PacketView::mark_one_off`].
    pub one_off: bool,
    /// The NF must see every packet, see [`crate::PacketView::mark_per_packet`].
    pub per_packet: bool,
    /// Time that the NF keeps the flow, in milliseconds; 0: not stated.
    pub keep_ms: u32,
    /// Position in [`crate::Setup::rules`] of the rule that decided, for `rivulet explain`.
    pub rule: Option<u32>,
    /// If set, a one-off recording is worthless, so header actions are no longer added.
    for_rules: bool,
}

impl Recording {
    /// Checks if header actions are still wanted.
    #[inline]
    pub(crate) fn wants_actions(&self) -> bool {
        !(self.for_rules && self.one_off)
    }

    /// Checks if the recording applies to the flow's next packets.
    pub fn repeats(&self) -> bool {
        self.lost == 0 && !self.one_off
    }

    /// Clears the recording, keeping its memory. `for_rules`: stop adding header actions once the
    /// packet is a one-off.
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
