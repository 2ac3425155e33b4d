//! Ports of external nodes: packets to a program that is down are dropped.

use packet::DropReason;

use crate::assembly::Assembly;
use crate::external::NodeGate;
use crate::report::Report;

/// The gates of external nodes, closed while a program is down.
#[derive(Default)]
pub(super) struct Gates {
    by_port: Vec<(u16, NodeGate)>,
    packets: u64,
    bytes: u64,
}

impl Gates {
    pub fn of(assembly: &Assembly) -> Gates {
        let numbers = assembly.externals.iter().flat_map(|node| node.ports);
        let by_port = numbers.filter_map(|port| Some((port, assembly.gate(port)?))).collect();
        Gates { by_port, packets: 0, bytes: 0 }
    }

    /// Returns true if a packet that leaves by a port must be dropped, and counts it.
    #[inline]
    pub fn drop(&mut self, port: u16, len: usize) -> bool {
        let gate = self.by_port.iter().find(|(of, _)| *of == port);
        let is_dropped = gate.is_some_and(|(_, gate)| gate.drops());
        self.packets += u64::from(is_dropped);
        self.bytes += if is_dropped { len as u64 } else { 0 };
        is_dropped
    }

    pub fn add_to_report(&self, report: &mut Report) {
        report.drop_sent(DropReason::NodeDown, self.packets, self.bytes);
    }
}
