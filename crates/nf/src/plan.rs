//! Plans: an NF's prediction of its actions on a flow's packets, from the flow's state alone.
//!
//! A rule can then be made without recording a packet, and flows with plans of the same shape share
//! one program.

use packet::{Direction, End, Endpoint, EndsDraft, OuterHeaders, OuterMatch, Packet, Side, Tag, TagRoom};

use crate::{Cause, Connection, EventCondition, Field, HeaderAction, KEEP_MS_MAX, Recording, StateFunction};

/// A plan for similar packets: whole packets of one flow, direction and connection phase, without
/// SYN, FIN or RST. An NF adds the actions that it would take.
pub struct Plan<'a> {
    /// The side that the packets enter by.
    pub side: Side,
    /// The packets' direction in the flow.
    pub direction: Direction,
    /// The side that the flow's first packet entered by.
    pub origin: Side,
    /// State of the connection after such a packet.
    pub connection: Connection,
    /// Outer headers of the packets in front of this NF. `None` if they are in no tunnel, or if its
    /// headers cannot be matched.
    pub outer: Option<&'a OuterMatch>,
    /// Index of the NF in the graph.
    pub stage: u16,
    /// Actions planned by all NFs so far.
    pub said: &'a mut PlannedActions,
    /// If given, filled with what each NF would record, by stage.
    pub recordings: Option<&'a mut [Option<Recording>]>,
}

/// The actions planned by all NFs, in order. The memory is reused.
#[derive(Default)]
pub struct PlannedActions {
    /// The part that many flows have in common.
    pub shape: PlanShape,
    /// Source and destination after the rewrites.
    pub ends: EndsDraft,
    /// Time that the NFs keep the flow, in milliseconds.
    pub keep_ms: u32,
    /// The last outer headers added, and the longest packet that takes them.
    pub encap: Option<(OuterHeaders, u16)>,
    /// Headroom required for tags.
    pub tags: TagRoom,
    /// Events that packets may cause, each with its NF's stage.
    pub events: Vec<(u16, EventCondition)>,
}

impl PlannedActions {
    /// Starts a plan for packets like this one.
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

/// Numbers that encode a plan, except for endpoints, outer headers and event arguments.
pub struct PlanShape {
    numbers: [u32; PLAN_SHAPE_MAX],
    len: usize,
}

/// Limit on the numbers of a shape. For longer plans, packets are recorded instead.
pub const PLAN_SHAPE_MAX: usize = 256;

impl Default for PlanShape {
    fn default() -> PlanShape {
        PlanShape { numbers: [0; PLAN_SHAPE_MAX], len: 0 }
    }
}

impl PlanShape {
    /// Starts the shape of packets that enter by this side.
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

    /// Adds an edge of the packets' path.
    #[inline]
    pub fn push_edge(&mut self, edge: u16) {
        self.push(said::EDGE | u32::from(edge));
    }

    /// Returns the numbers, or `None` if there were too many.
    #[inline]
    pub fn numbers(&self) -> Option<&[u32]> {
        self.numbers.get(..self.len)
    }
}

/// Limit on the NFs of a graph that can predict.
pub const PREDICTING_NFS_MAX: usize = 1 << 12;

/// Kinds of numbers in a shape, in the upper bits. The stage and the number of a state function
/// follow.
mod said {
    pub const SOURCE: u32 = 1 << 28;
    pub const DESTINATION: u32 = 2 << 28;
    pub const FUNCTION: u32 = 3 << 28;
    pub const EVENT: u32 = 4 << 28;
    pub const ENCAP: u32 = 5 << 28;
    pub const TAG: u32 = 6 << 28;
    pub const DECAP: u32 = 7 << 28;
    pub const DSCP: u32 = 8 << 28;
    pub const EDGE: u32 = 9 << 28;
}

impl Plan<'_> {
    /// Returns the source after the preceding NFs.
    #[inline]
    pub fn source(&self) -> Endpoint {
        self.said.ends.source()
    }

    /// Returns the destination after the preceding NFs.
    #[inline]
    pub fn destination(&self) -> Endpoint {
        self.said.ends.destination()
    }

    /// Plans to rewrite address and port of one end.
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

    /// Plans to add these outer headers to packets of up to `len_max` bytes that are in no tunnel;
    /// see [`crate::PacketView::encap`].
    #[cold]
    #[inline(never)]
    pub fn encap(&mut self, outer: OuterHeaders, len_max: u16) {
        let len_max = outer.room_within(len_max);
        self.outer = None; // The original headers are no longer outermost.
        self.said.shape.push(said::ENCAP | self.place());
        self.said.encap = Some((outer, len_max));
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::Encap { outer, len_max });
        }
    }

    /// Plans to remove the outer headers ([`Plan::outer`]), see [`crate::PacketView::decap`].
    /// Returns false if these cannot be planned for.
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

    /// Plans to push a VLAN tag or MPLS label, if the link layer has room for it; see
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

    /// Plans to set the DSCP, 0 to 63; see [`crate::PacketView::set_dscp`].
    #[inline]
    pub fn set_dscp(&mut self, dscp: u8) {
        self.said.shape.push(said::DSCP | self.place() | u32::from(dscp));
        if let Some(recording) = self.recording() {
            recording.action(HeaderAction::SetField(Field::Dscp, u64::from(dscp)));
        }
    }

    /// Plans to run this state function for each packet, see
    /// [`crate::PacketView::record_state_function`].
    #[inline]
    pub fn record_state_function(&mut self, function: StateFunction) {
        self.said.shape.push(said::FUNCTION | self.place() | u32::from(function.id));
        if self.recordings.is_some() {
            self.record_function(function);
        }
    }

    /// Limits the plan to the time until this event holds, see [`crate::PacketView::record_event`].
    /// Events caused by commands need no record: NFs predict again after each command.
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

    /// Plans to keep the flow for this long after each packet, see
    /// [`crate::Context::keep_flow_ms`].
    #[inline]
    pub fn keep_flow_ms(&mut self, ms: u32) {
        self.said.keep_ms = self.said.keep_ms.max(ms.min(KEEP_MS_MAX));
    }

    /// Returns the stage, shifted to its position in a shape's numbers.
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

    /// Returns the NF's recording, if one is wanted.
    fn recording(&mut self) -> Option<&mut Recording> {
        self.recordings.as_deref_mut()?.get_mut(usize::from(self.stage))?.as_mut()
    }
}
