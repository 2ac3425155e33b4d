//! Packets that functions do not see: they take the edges with filters that they pass.

use nf::stage::Stage;
use packet::{DropReason, Packet};

use super::fields::PacketFields;
use super::{Refusal, Routing};
use crate::topology::{EdgeId, Hop, NfSet, RouteEnd};

impl Routing {
    /// Takes a packet along the edges, past the functions, and sets its port. Calls `taken` with
    /// each edge.
    ///
    /// # Errors
    /// The reason to drop it.
    pub fn pass_by(
        &mut self,
        packet: &mut Packet,
        stages: &[Box<dyn Stage>],
        mut taken: impl FnMut(EdgeId, &Packet),
    ) -> Result<(), DropReason> {
        if let Err(Refusal { reason, edge }) = self.enter(packet, stages) {
            edge.iter().for_each(|edge| taken(*edge, packet));
            return Err(reason);
        }
        let Some((_, hop, edge)) = self.entered.take() else { return Err(DropReason::Internal) };
        self.pass_along((hop, edge), packet, stages, taken)
    }

    /// Takes a packet that the function at `stage` made to a port, past the other functions: to the
    /// port of `trail`, if it goes back, or along the edges. Observers are not notified.
    ///
    /// # Errors
    /// The reason to drop it.
    pub fn pass_behind(
        &mut self,
        stage: usize,
        trail: Option<(NfSet, u16)>,
        packet: &mut Packet,
        stages: &[Box<dyn Stage>],
    ) -> Result<(), DropReason> {
        if let Some((_, port)) = trail {
            packet.meta_mut().transit.egress = port;
            return Ok(());
        }
        let fields = PacketFields { packet, routing: self, stages, started: NfSet::default() };
        let first = self.topology.next(stage, packet.meta().transit.side, &fields);
        self.pass_along(first, packet, stages, |_, _| {})
    }

    fn pass_along(
        &mut self,
        (mut hop, mut edge): (Hop, EdgeId),
        packet: &mut Packet,
        stages: &[Box<dyn Stage>],
        mut taken: impl FnMut(EdgeId, &Packet),
    ) -> Result<(), DropReason> {
        loop {
            self.log.count(Some(edge), packet.len());
            taken(edge, packet);
            match hop {
                Hop::Stage(stage) => {
                    let fields = PacketFields { packet, routing: self, stages, started: NfSet::default() };
                    (hop, edge) = self.topology.next(stage, packet.meta().transit.side, &fields);
                }
                Hop::End(RouteEnd::Port(port)) => {
                    packet.meta_mut().transit.egress = port;
                    return Ok(());
                }
                Hop::End(RouteEnd::Drop) => return Err(DropReason::Policy),
                Hop::End(RouteEnd::Unmatched) => return Err(DropReason::PolicyUnmatched),
            }
        }
    }
}
