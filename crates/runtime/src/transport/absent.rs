//! A missing part of a transport.

use std::os::fd::BorrowedFd;

use nf::AffinityGroup;
use packet::{FlowKey, Packet};
use protocol::dispatcher::{AliasChange, FlowGuess, NumberedPacket};
use protocol::message::{FlowId, FromUnit, Stamp, UnitId};

use super::{Barrier, Elsewhere, FastLane, Federation, Passage, UnitNodes};

/// A missing part of a transport. It has no value, so it is never called, and no code is generated.
pub enum Absent {}

impl Federation for Absent {
    fn datagram_elsewhere(&self, _: u64) -> Option<u16> {
        match *self {}
    }

    fn elsewhere(&mut self, _: &FlowKey, _: u64, _: Option<AffinityGroup>, _: Passage) -> Option<Elsewhere> {
        match *self {}
    }

    fn pass_on(&mut self, _: Elsewhere, _: Packet) {
        match *self {}
    }

    fn take_passed(&mut self) -> Option<(Packet, Passage)> {
        match *self {}
    }

    fn announce(&mut self, _: AliasChange) {
        match *self {}
    }

    fn poll_claimed(&mut self) -> Option<FlowKey> {
        match *self {}
    }
}

impl Barrier for Absent {
    fn wait(&mut self) {
        match *self {}
    }

    fn is_full(&self) -> bool {
        match *self {}
    }

    fn drain_messages(&mut self) {
        match *self {}
    }

    fn has_unanswered(&self) -> bool {
        match *self {}
    }

    fn is_moving(&self) -> bool {
        match *self {}
    }

    fn has_failed(&self) -> bool {
        match *self {}
    }

    fn reset_units(&mut self) {
        match *self {}
    }

    fn resume_units(&mut self) {
        match *self {}
    }
}

impl UnitNodes for Absent {
    fn begin(&mut self, _: FlowId, _: Option<AffinityGroup>) {
        match *self {}
    }

    fn stopped(&mut self, _: UnitId) -> bool {
        match *self {}
    }

    fn set_draining(&mut self, _: UnitId, _: bool) {
        match *self {}
    }

    fn has_spare(&self) -> bool {
        match *self {}
    }

    fn has_full_units(&self) -> bool {
        match *self {}
    }

    fn is_unit_full(&self, _: UnitId) -> bool {
        match *self {}
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        match *self {}
    }
}

impl FastLane for Absent {
    fn prefetch_index(&self, _: u32) {
        match *self {}
    }

    fn prefetch_flow(&self, _: UnitId, _: u32) {
        match *self {}
    }

    fn skips_unit(&mut self, _: &NumberedPacket) -> bool {
        match *self {}
    }

    fn skip_unit(&mut self, _: u32, _: Packet) {
        match *self {}
    }

    fn skip_unit_all(&mut self, _: &[FlowGuess], _: impl Iterator<Item = Packet>) {
        match *self {}
    }

    fn continue_flowlet(&mut self, _: u64, _: &NumberedPacket, _: Stamp, _: Packet) {
        match *self {}
    }

    fn packet_alone(&mut self, _: u64, _: UnitId, _: Stamp, _: Packet) {
        match *self {}
    }

    fn expire_flow(&mut self, _: u64, _: FlowId) {
        match *self {}
    }

    fn flush(&mut self) {
        match *self {}
    }

    fn take_messages(&mut self, _: &mut dyn FnMut(UnitId, FromUnit)) {
        match *self {}
    }
}
