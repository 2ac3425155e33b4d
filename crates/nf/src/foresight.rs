//! What a function would do to a flow's packets, told from the flow's state alone: so that a rule can be made without a packet
//! that is recorded, and of many flows by the same few parts of their functions.

use packet::{Cover, Direction, End, Endpoint, EndsDraft, Outer, Side, Tag, TagRoom};

use crate::{Cause, Connection, EventCondition, HeaderAction, KEEP_MS_MAX, Recording, StateFunction};

/// Packets that are alike, as they would come to a function: of one flow, direction and phase of its connection, whole, without SYN, FIN or
/// RST. The function says what it would do to them, in place of doing it.
pub struct Foresight<'a> {
    /// The side that they enter by.
    pub side: Side,
    /// Their direction in the flow.
    pub direction: Direction,
    /// The side that the flow's first packet entered by.
    pub origin: Side,
    /// The connection as they leave it.
    pub connection: Connection,
    /// Where they come from and go to, behind the functions before this one.
    pub ends: EndsDraft,
    /// The outer headers that they come in, as they are before this function; none if they are in no tunnel, or in one of which not all
    /// packets can be told to be alike.
    pub cover: Option<&'a Cover>,
    /// How long functions keep the flow for them, in milliseconds.
    pub keep_ms: u32,
    /// The function's place in the chain.
    pub stage: u16,
    /// What all functions said so far.
    pub said: &'a mut Said,
    /// Filled in, if wanted, with what each function would record, by its place.
    pub recordings: Option<&'a mut [Option<Recording>]>,
}

/// What functions foresee, in order.
#[derive(Default)]
pub struct Said {
    /// What is the same for many flows: numbers that stand for what was said, but for ends, outer headers and events' arguments.
    pub shape: Vec<u32>,
    /// Outer headers, and how long a packet may be that gets them.
    pub wraps: Vec<(Outer, u16)>,
    /// The tags that packets are to have room for.
    pub tags: TagRoom,
    /// The events, and whose they are.
    pub events: Vec<(u16, EventCondition)>,
}

impl Said {
    /// Nothing was said yet of packets that enter by this side.
    pub fn begin(&mut self, side: Side) {
        self.shape.clear();
        self.wraps.clear();
        self.tags = TagRoom::default();
        self.events.clear();
        self.shape.push(side as u32);
    }
}

/// Functions of a chain at most of which what they say is told apart.
pub const FORESEEING_MAX: usize = 1 << 12;

/// What a number of a shape stands for, in its upper bits; then comes the function's place, and the number of a state function.
mod said {
    pub const SOURCE: u32 = 1 << 28;
    pub const DESTINATION: u32 = 2 << 28;
    pub const FUNCTION: u32 = 3 << 28;
    pub const COMMAND: u32 = 4 << 28;
    pub const PACKET: u32 = 5 << 28;
    pub const WRAP: u32 = 6 << 28;
    pub const TAG: u32 = 7 << 28;
    pub const TAKE_OUT: u32 = 8 << 28;
}

impl Foresight<'_> {
    /// They get this address and port at one end.
    #[inline(always)]
    pub fn set_end(&mut self, end: End, to: Endpoint) {
        let said = match end {
            End::Source => said::SOURCE,
            End::Destination => said::DESTINATION,
        };
        self.ends.set_end(end, to);
        self.said.shape.push(said | self.place());
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::SetEnd(end, to));
        }
    }

    /// They get these outer headers, as long as they are in no tunnel and their IP packets have no more bytes than this; see
    /// [`crate::PacketView::wrap`].
    #[cold]
    #[inline(never)]
    pub fn wrap(&mut self, outer: Outer, len_max: u16) {
        let len_max = outer.room_within(len_max);
        self.cover = None; // They are in another tunnel now.
        self.said.shape.push(said::WRAP | self.place());
        self.said.wraps.push((outer, len_max));
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::Wrap { outer, len_max });
        }
    }

    /// They are taken out of the tunnel that they come in ([`Foresight::cover`]), see [`crate::PacketView::take_out`]; false if that is not
    /// one of which it can be foreseen.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn take_out(&mut self) -> bool {
        let Some(cover) = self.cover.take() else { return false };
        self.said.shape.push(said::TAKE_OUT | self.place());
        self.said.shape.extend(cover.words());
        let version = self.ends.destination().addr.version();
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::Decapsulate { len: cover.len(), version });
        }
        true
    }

    /// They get this VLAN tag or MPLS label, as long as their link layer has room for it; see [`crate::PacketView::push_tag`].
    #[inline]
    pub fn push_tag(&mut self, tag: Tag) {
        let [kind, bits] = tag.words();
        self.said.shape.extend([said::TAG | self.place(), kind, bits]);
        self.said.tags = self.said.tags.and_for(tag.kind());
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::PushTag(tag));
        }
    }

    /// This state function would run for each, see [`crate::PacketView::note_function`].
    #[inline]
    pub fn note_function(&mut self, function: StateFunction) {
        self.said.shape.push(said::FUNCTION | self.place() | u32::from(function.id));
        if let Some(recording) = self.recording() {
            recording.function(function);
        }
    }

    /// What is said holds until this does, see [`crate::PacketView::note_event`].
    #[inline]
    pub fn note_event(&mut self, event: EventCondition) {
        let cause = if event.cause == Cause::Command { said::COMMAND } else { said::PACKET };
        self.said.shape.push(cause | self.place());
        self.said.events.push((self.stage, event));
        if let Some(recording) = self.recording() {
            recording.event(event);
        }
    }

    /// Each would keep the flow for so long, see [`crate::Context::keep_flow_ms`].
    #[inline]
    pub fn keep_flow_ms(&mut self, ms: u32) {
        self.keep_ms = self.keep_ms.max(ms.min(KEEP_MS_MAX));
    }

    /// Where the function's place stands in the numbers of a shape.
    #[inline(always)]
    fn place(&self) -> u32 {
        u32::from(self.stage) << 16
    }

    /// What this function would record, if that is wanted.
    #[inline(always)]
    fn recording(&mut self) -> Option<&mut Recording> {
        self.recordings.as_deref_mut()?.get_mut(usize::from(self.stage))?.as_mut()
    }
}
