//! Idle timeouts of flows: one lookup by side, protocol class and phase.

use nf::{Connection, KEEP_MS_MAX};
use packet::Side;

use super::config::{NatTimeouts, RefreshBehaviour};
use super::space::PortClass;

/// Timeout, in milliseconds, of a flow that an outside host opened and the inside host has not
/// answered. Its packets do not extend it, so no outside host can keep a mapping alive (RFC 4787
/// REQ-6) or keep its port from others.
pub const UNANSWERED_MS: u32 = 30_000;

const CLASSES: usize = 4;
const PHASES: usize = 16;

/// Timeouts in milliseconds, rounded up; 0 where the packet does not refresh its flow.
pub struct FlowTimeouts([[[u32; PHASES]; CLASSES]; 2]);

impl FlowTimeouts {
    /// Builds the table from the configuration.
    pub fn new(timeouts: &NatTimeouts, refresh: RefreshBehaviour) -> FlowTimeouts {
        let mut keep = FlowTimeouts([[[0; PHASES]; CLASSES]; 2]);
        for phase in 0..PHASES {
            let tcp = tcp(timeouts, Connection::from_phase(phase as u8));
            let row = [tcp, timeouts.udp.0, timeouts.icmp.0, timeouts.other.0];
            for (class, ns) in row.into_iter().enumerate() {
                let ms = ns.div_ceil(1_000_000).min(u64::from(KEEP_MS_MAX)) as u32;
                keep.0[Side::Inside as usize][class][phase] = ms;
                // RFC 4787 REQ-6 is about UDP. Packets of either end keep a TCP connection alive.
                let inbound = refresh == RefreshBehaviour::Both || class == PortClass::Tcp as usize;
                keep.0[Side::Outside as usize][class][phase] = if inbound { ms } else { 0 };
            }
        }
        keep
    }

    /// Returns the timeout, in milliseconds, after a packet that entered by `side`.
    #[inline]
    pub fn ms(&self, side: Side, class: u8, connection: Connection) -> u32 {
        self.0[side as usize][class as usize % CLASSES][connection.phase() as usize % PHASES]
    }
}

/// Returns the timeout of a TCP connection. A half-closed one may still carry data for a long time
/// (RFC 5382 REQ-5, RFC 7857 2).
fn tcp(timeouts: &NatTimeouts, phase: Connection) -> u64 {
    match phase {
        Connection::ESTABLISHED | Connection::FIN_ORIGINAL | Connection::FIN_REPLY | Connection::REPLIED => {
            timeouts.tcp_established.0
        }
        _ => timeouts.tcp_transitory.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_have_the_timeouts_of_the_rfcs() {
        let keep = FlowTimeouts::new(&NatTimeouts::default(), RefreshBehaviour::Outbound);
        let minutes = |side, class: PortClass, phase| keep.ms(side, class as u8, phase) / 60_000;
        let inside = |class, phase| minutes(Side::Inside, class, phase);
        assert_eq!(inside(PortClass::Udp, Connection::UNREPLIED), 5); // RFC 4787 REQ-5
        assert_eq!(inside(PortClass::Tcp, Connection::SYN_SENT), 4); // RFC 5382 REQ-5
        assert_eq!(inside(PortClass::Tcp, Connection::ESTABLISHED), 124);
        assert_eq!(inside(PortClass::Tcp, Connection::RESET), 4); // RFC 7857 2.2
        assert_eq!(inside(PortClass::Icmp, Connection::REPLIED), 1); // RFC 5508 REQ-2
        assert_eq!(minutes(Side::Outside, PortClass::Udp, Connection::REPLIED), 0); // RFC 4787 REQ-6
        assert_eq!(minutes(Side::Outside, PortClass::Tcp, Connection::ESTABLISHED), 124);
        let both = FlowTimeouts::new(&NatTimeouts::default(), RefreshBehaviour::Both);
        assert!(both.ms(Side::Outside, PortClass::Udp as u8, Connection::REPLIED) > 0);
    }
}
