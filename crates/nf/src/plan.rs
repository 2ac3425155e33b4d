//! What a function would do to a flow's packets, told from the flow's state alone: so that a rule
//! can be made without a packet that is recorded, and of many flows by the same few parts of their
//! functions.

use packet::{Direction, End, Endpoint, EndsDraft, OuterHeaders, OuterMatch, Packet, Side, Tag, TagRoom};

use crate::{Cause, Connection, EventCondition, HeaderAction, KEEP_MS_MAX, Recording, StateFunction};

/// Packets that are alike, as they would come to a function: of one flow, direction and phase of
/// its connection, whole, without SYN, FIN or RST. The function says what it would do to them, in
/// place of doing it.
pub struct Plan<'a> {
    /// The side that they enter by.
    pub side: Side,
    /// Their direction in the flow.
    pub direction: Direction,
    /// The side that the flow's first packet entered by.
    pub origin: Side,
    /// The connection as they leave it.
    pub connection: Connection,
    /// The outer headers that they come in, as they are before this function; none if they are in
    /// no tunnel, or in one of which not all packets can be told to be alike.
    pub outer: Option<&'a OuterMatch>,
    /// The function's place in the chain.
    pub stage: u16,
    /// What all functions said so far.
    pub said: &'a mut PlannedActions,
    /// Filled in, if wanted, with what each function would record, by its place.
    pub recordings: Option<&'a mut [Option<Recording>]>,
}

/// What functions predict, in order. Its memory is used again.
#[derive(Default)]
pub struct PlannedActions {
    /// What is the same for many flows.
    pub shape: PlanShape,
    /// The ends that packets get.
    pub ends: EndsDraft,
    /// How long functions keep the flow for them, in milliseconds.
    pub keep_ms: u32,
    /// The outer headers that they get last, and how long a packet may be that gets them.
    pub encap: Option<(OuterHeaders, u16)>,
    /// The tags that packets are to have room for.
    pub tags: TagRoom,
    /// The events that packets may cause, and whose they are.
    pub events: Vec<(u16, EventCondition)>,
}

impl PlannedActions {
    /// Nothing was said yet of packets like this one.
    #[inline(always)]
    pub fn begin(&mut self, packet: &Packet) {
        self.shape.begin(packet.meta().transit.side);
        self.ends.begin(packet);
        self.keep_ms = 0;
        self.encap = None;
        self.tags = TagRoom::default();
        self.events.clear();
    }
}

/// Numbers that stand for what was said, but for ends, outer headers and events' arguments.
pub struct PlanShape {
    numbers: [u32; PLAN_SHAPE_MAX],
    len: usize,
}

/// Numbers of a shape at most; where functions say more, their chain records packets.
pub const PLAN_SHAPE_MAX: usize = 256;

impl Default for PlanShape {
    fn default() -> PlanShape {
        PlanShape { numbers: [0; PLAN_SHAPE_MAX], len: 0 }
    }
}

impl PlanShape {
    /// That of packets that enter by this side, of which nothing was said yet.
    #[inline(always)]
    fn begin(&mut self, side: Side) {
        (self.numbers[0], self.len) = (side as u32, 1);
    }

    #[inline(always)]
    fn push(&mut self, number: u32) {
        let len = self.len;
        if let Some(place) = self.numbers.get_mut(len) {
            *place = number;
        }
        self.len = len + 1;
    }

    /// The numbers; none if there are too many.
    #[inline]
    pub fn numbers(&self) -> Option<&[u32]> {
        self.numbers.get(..self.len)
    }
}

/// Functions of a chain at most of which what they say is told apart.
pub const PREDICTING_NFS_MAX: usize = 1 << 12;

/// What a number of a shape stands for, in its upper bits; then comes the function's place, and the
/// number of a state function.
mod said {
    pub const SOURCE: u32 = 1 << 28;
    pub const DESTINATION: u32 = 2 << 28;
    pub const FUNCTION: u32 = 3 << 28;
    pub const EVENT: u32 = 4 << 28;
    pub const ENCAP: u32 = 5 << 28;
    pub const TAG: u32 = 6 << 28;
    pub const DECAP: u32 = 7 << 28;
}

impl Plan<'_> {
    /// Where they come from, behind the functions before this one.
    #[inline]
    pub fn source(&self) -> Endpoint {
        self.said.ends.source()
    }

    /// Where they go to, behind the functions before this one.
    #[inline]
    pub fn destination(&self) -> Endpoint {
        self.said.ends.destination()
    }

    /// They get this address and port at one end.
    #[inline(always)]
    pub fn set_end(&mut self, end: End, to: Endpoint) {
        let said = match end {
            End::Source => said::SOURCE,
            End::Destination => said::DESTINATION,
        };
        self.said.ends.set_end(end, to);
        self.said.shape.push(said | self.place());
        if self.recordings.is_some() {
            self.record_end(end);
        }
    }

    /// They get these outer headers, as long as they are in no tunnel and their IP packets have no
    /// more bytes than this; see [`crate::PacketView::encap`].
    #[cold]
    #[inline(never)]
    pub fn encap(&mut self, outer: OuterHeaders, len_max: u16) {
        let len_max = outer.room_within(len_max);
        self.outer = None; // They are in another tunnel now.
        self.said.shape.push(said::ENCAP | self.place());
        self.said.encap = Some((outer, len_max));
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::Encap { outer, len_max });
        }
    }

    /// They are taken out of the tunnel that they come in ([`Plan::cover`]), see
    /// [`crate::PacketView::decap`]; false if that is not one of which it can be predicted.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn decap(&mut self) -> bool {
        let Some(cover) = self.outer.take() else { return false };
        self.said.shape.push(said::DECAP | self.place());
        cover.words().for_each(|word| self.said.shape.push(word));
        let version = self.destination().addr.version();
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::Decap { len: cover.len(), version });
        }
        true
    }

    /// They get this VLAN tag or MPLS label, as long as their link layer has room for it; see
    /// [`crate::PacketView::push_tag`].
    #[inline]
    pub fn push_tag(&mut self, tag: Tag) {
        let [kind, bits] = tag.words();
        [said::TAG | self.place(), kind, bits].into_iter().for_each(|number| self.said.shape.push(number));
        self.said.tags = self.said.tags.and_for(tag.kind());
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::PushTag(tag));
        }
    }

    /// This state function would run for each, see [`crate::PacketView::record_state_function`].
    #[inline]
    pub fn record_state_function(&mut self, function: StateFunction) {
        self.said.shape.push(said::FUNCTION | self.place() | u32::from(function.id));
        if self.recordings.is_some() {
            self.record_function(function);
        }
    }

    /// What is said holds until this does, see [`crate::PacketView::record_event`]. What only a
    /// command can cause need not be noted: after each, functions are asked anew.
    #[inline]
    pub fn record_event(&mut self, event: EventCondition) {
        if event.cause == Cause::Command {
            return;
        }
        self.said.shape.push(said::EVENT | self.place());
        self.said.events.push((self.stage, event));
        if let Some(recording) = self.recording() {
            recording.event(event);
        }
    }

    /// Each would keep the flow for so long, see [`crate::Context::keep_flow_ms`].
    #[inline]
    pub fn keep_flow_ms(&mut self, ms: u32) {
        self.said.keep_ms = self.said.keep_ms.max(ms.min(KEEP_MS_MAX));
    }

    /// Where the function's place stands in the numbers of a shape.
    #[inline(always)]
    fn place(&self) -> u32 {
        u32::from(self.stage) << 16
    }

    #[cold]
    #[inline(never)]
    fn record_end(&mut self, end: End) {
        let to = match end {
            End::Source => self.source(),
            End::Destination => self.destination(),
        };
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::SetEnd(end, to));
        }
    }

    #[cold]
    #[inline(never)]
    fn record_function(&mut self, function: StateFunction) {
        if let Some(recording) = self.recording() {
            recording.function(function);
        }
    }

    /// What this function would record, if that is wanted.
    fn recording(&mut self) -> Option<&mut Recording> {
        self.recordings.as_deref_mut()?.get_mut(usize::from(self.stage))?.as_mut()
    }
}
