//! Units in the memory of the calling thread.

use packet::Packet;
use protocol::dispatcher::{FlowGuess, NumberedPacket};
use protocol::message::{FlowId, FromUnit, Stamp, UnitId};

/// The fast lane to units in the memory of the calling thread, which share its flow table: a packet
/// has left when the call that brought it returns, answers are there at once, and most packets of a
/// flowlet are processed without their unit.
pub trait FastLane {
    /// Prefetches what the lane knows of the flow with this index.
    fn prefetch_index(&self, index: u32);

    /// Prefetches what a unit knows of the flow with this index.
    fn prefetch_flow(&self, unit: UnitId, index: u32);

    /// Returns whether the next packet of a flowlet may be processed without its unit's being
    /// notified; if so, it is counted as sent, and `skip_unit` follows.
    fn skips_unit(&mut self, packet: &NumberedPacket) -> bool;

    /// Processes a packet after `skips_unit` returned true for it.
    fn skip_unit(&mut self, index: u32, packet: Packet);

    /// Processes several such packets, of the flows that were guessed.
    fn skip_unit_all(&mut self, guesses: &[FlowGuess], packets: impl Iterator<Item = Packet>);

    /// Delivers the next packet of a flowlet to its unit.
    fn continue_flowlet(&mut self, now_ns: u64, numbered: &NumberedPacket, stamp: Stamp, packet: Packet);

    /// Delivers a packet, and processes it before any later one.
    fn packet_alone(&mut self, now_ns: u64, unit: UnitId, stamp: Stamp, packet: Packet);

    /// Expires the flow if its deadline has passed.
    fn expire_flow(&mut self, now_ns: u64, flow: FlowId);

    /// Processes pending packets.
    fn flush(&mut self);

    /// Hands over messages that units have sent to the dispatcher.
    fn take_messages(&mut self, take: &mut dyn FnMut(UnitId, FromUnit));
}
