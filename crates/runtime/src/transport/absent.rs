//! The part that a transport has not.

use nf::AffinityGroup;
use packet::{FlowKey, Packet};
use protocol::dispatcher::AliasChange;

use super::{Elsewhere, Federation, Passage};

/// A part that a transport has not. There is no value of it, so nothing is ever called, and no code
/// is generated.
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
