//! TCP connections that began before the capture. A function that forwards only established
//! connections drops their packets in a run over the capture, but may forward them on the network.

use std::collections::HashSet;

use packet::parse::protocol;
use packet::{DropReason, FlowKey, PacketClass};

use super::tracer::{PacketOutcome, PacketTrace};

/// Connections that are remembered. Beyond that, none counts as begun before the capture.
const BEGUN_MAX: usize = 1 << 20;

/// The connections that began within the capture.
#[derive(Default)]
pub struct BegunConnections {
    begun: HashSet<FlowKey>,
    /// Number of packets with an unknown fate: it depends on packets before the capture.
    pub unknown: u64,
}

impl BegunConnections {
    /// Records a connection that a packet begins, and marks a packet of an earlier connection.
    pub fn note(&mut self, trace: &mut PacketTrace) {
        const SYN: u8 = 2;
        const ACK: u8 = 16;
        let Some(meta) = trace.arrived.as_ref().map(|packet| packet.meta()) else { return };
        let is_segment = meta.protocol == protocol::TCP && meta.class != PacketClass::IcmpError;
        if !is_segment || trace.generated || self.begun.len() >= BEGUN_MAX {
            return;
        }
        let is_of_known = trace.joined.as_ref().is_some_and(|joined| joined.transit.seq > 1);
        if meta.tcp_flags & (SYN | ACK) == SYN {
            self.begun.insert(meta.key);
            self.begun.extend(trace.alias);
        } else if let PacketOutcome::Dropped(reason) = trace.outcome
            && depends_on_beginning(reason)
            && !is_of_known
            && !self.begun.contains(&meta.key)
        {
            trace.is_midstream = true;
            self.unknown += 1;
        }
    }
}

/// Returns whether a packet may be dropped for this reason because its flow is not known.
fn depends_on_beginning(reason: DropReason) -> bool {
    use DropReason as R;
    matches!(
        reason,
        R::NatNotOpening
            | R::NatNoMapping
            | R::NatFiltered
            | R::NatUntranslated
            | R::FirewallDenied
            | R::FirewallRejected
            | R::FirewallDefault
            | R::FirewallInvalid
            | R::LbNoFlow
            | R::Policy
            | R::PolicyUnmatched
    )
}
