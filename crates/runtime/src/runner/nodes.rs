//! Ports of external nodes: forwarding in place of a program.

use packet::{DropReason, LinkType, Packet};

use super::ingress::{Frame, Ingress};
use crate::assembly::Assembly;
use crate::external::NodeGate;
use crate::report::Report;

/// The external nodes of a runner.
pub(super) struct Nodes {
    gates: Vec<(u16, NodeGate)>,
    /// The programs run somewhere. Otherwise nodes forward packets unchanged.
    have_programs: bool,
    forwarded: Vec<ForwardedPacket>,
    dropped: u64,
    dropped_bytes: u64,
    /// The sequence numbers of packets that were dropped, while packets are observed.
    observed: Option<Vec<u64>>,
}

/// A packet that an external node without a program has forwarded unchanged.
#[derive(Clone, Debug)]
pub struct ForwardedPacket {
    /// Name of the node.
    pub node: String,
    /// The port where it enters again, with its attributes.
    pub from: Ingress,
    timestamp_ns: u64,
    link: LinkType,
    wire_len: u32,
    data: Vec<u8>,
}

impl ForwardedPacket {
    /// Returns the packet as a frame.
    pub fn frame(&self) -> Frame<'_> {
        let ForwardedPacket { timestamp_ns, link, wire_len, ref data, .. } = *self;
        Frame { timestamp_ns, link, wire_len, data }
    }
}

impl Nodes {
    /// Returns the nodes of an assembly, without programs.
    pub fn of(assembly: &Assembly) -> Nodes {
        let numbers = assembly.externals.iter().flat_map(|node| node.ports);
        let gates = numbers.filter_map(|port| Some((port, assembly.gate(port)?))).collect();
        let (have_programs, forwarded) = (false, Vec::new());
        Nodes { gates, have_programs, forwarded, dropped: 0, dropped_bytes: 0, observed: None }
    }

    /// Notes that the programs run.
    pub fn watch(&mut self) {
        self.have_programs = true;
    }

    /// Returns true if there are nodes without programs.
    pub fn are_assumed(&self) -> bool {
        !self.have_programs && !self.gates.is_empty()
    }

    /// Returns the node without a program that a port belongs to.
    pub fn assumed(&self, port: u16) -> Option<&str> {
        self.gate(port).filter(|_| self.are_assumed()).map(NodeGate::node)
    }

    /// Returns true if a packet that leaves by a port must be dropped, and counts it.
    #[inline]
    pub fn drop(&mut self, port: u16, packet: &Packet) -> bool {
        if self.gates.is_empty() || !self.have_programs {
            return false;
        }
        let is_dropped = self.gate(port).is_some_and(NodeGate::drops);
        if is_dropped {
            self.dropped += 1;
            self.dropped_bytes += packet.len() as u64;
            self.observed.iter_mut().for_each(|all| all.push(packet.meta().transit.sequence));
        }
        is_dropped
    }

    /// Notes the packets that are dropped from now on, and forgets those before.
    pub fn observe(&mut self) {
        self.observed = Some(Vec::new());
    }

    /// Returns true if this packet was dropped since [`observe`](Nodes::observe).
    pub fn has_dropped(&self, sequence: u64) -> bool {
        self.observed.as_ref().is_some_and(|all| all.contains(&sequence))
    }

    /// Keeps a packet that leaves by a port of a node without a program.
    #[inline]
    pub fn pass(&mut self, port: u16, packet: &Packet, assembly: &Assembly) {
        if !self.are_assumed() {
            return;
        }
        let Some(gate) = self.gate(port) else { return };
        let meta = packet.meta();
        self.forwarded.push(ForwardedPacket {
            node: gate.node().to_owned(),
            from: Ingress::Tagged(gate.forward(), assembly.kept_tags(port, meta.transit.tags)),
            timestamp_ns: meta.transit.timestamp_ns,
            link: meta.link,
            wire_len: meta.wire_len,
            data: packet.data().to_vec(),
        });
    }

    /// Returns true if nodes have forwarded packets.
    pub fn has_forwarded(&self) -> bool {
        !self.forwarded.is_empty()
    }

    /// Returns the packets that nodes have forwarded.
    pub fn take_forwarded(&mut self) -> Vec<ForwardedPacket> {
        std::mem::take(&mut self.forwarded)
    }

    pub fn add_to_report(&self, report: &mut Report) {
        report.drop_sent(DropReason::NodeDown, self.dropped, self.dropped_bytes);
    }

    fn gate(&self, port: u16) -> Option<&NodeGate> {
        self.gates.iter().find(|(of, _)| *of == port).map(|(_, gate)| gate)
    }
}
