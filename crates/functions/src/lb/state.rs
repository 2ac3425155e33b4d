//! Per-flow state: one cache line.

use packet::{Addr, Direction, Endpoint};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The server of a flow, and its number of packets (S24). It contains addresses besides numbers, so
/// a flow keeps its server when the table changes or when the flow moves to an instance with
/// another configuration.
#[derive(Clone, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Packets in both directions.
    pub packets: u64,
    vip: Addr,
    server: Addr,
    vip_port: u16,
    server_port: u16,
    /// Number of the server in the configuration.
    pub number: u16,
    roles: [DirectionRole; 2],
    /// Last generation with the server found usable; 0: none.
    pub generation: u32,
    /// Varies source, port and flow label of tunnel headers among flows.
    pub entropy: u32,
    /// Time of the last notification of the sender, in milliseconds; 0: never.
    pub notified_ms: u32,
    /// Purposes of the next packet from the server: `ANNOUNCE`, `LEARN`.
    pub awaiting: u8,
    /// Nonzero if the connection was closed after the last packet.
    pub over: u8,
    padding: [u8; 2],
}

/// The graph does not know the flow's new server yet.
pub const ANNOUNCE: u8 = 1;
/// The connection ID that the server issues is not known yet.
pub const LEARN: u8 = 2;

/// Handling of the packets of one direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct DirectionRole(u8);

impl DirectionRole {
    /// Undecided: this direction had no packet yet.
    pub const OPEN: DirectionRole = DirectionRole(0);
    /// Pass unchanged.
    pub const PASS: DirectionRole = DirectionRole(1);
    /// Send to the server by rewriting the destination.
    pub const REWRITE: DirectionRole = DirectionRole(2);
    /// Send to the server in IP.
    pub const IPIP: DirectionRole = DirectionRole(3);
    /// Send to the server in Generic UDP Encapsulation.
    pub const GUE: DirectionRole = DirectionRole(4);
    /// From the server: restore the service's address.
    pub const RESTORE: DirectionRole = DirectionRole(5);

    /// Returns whether packets go to the server.
    #[inline]
    pub fn is_to_server(self) -> bool {
        matches!(self, DirectionRole::REWRITE | DirectionRole::IPIP | DirectionRole::GUE)
    }
}

impl State {
    /// Returns the role of this direction.
    #[inline]
    pub fn role(&self, direction: Direction) -> DirectionRole {
        self.roles[direction.index()]
    }

    /// Sets the role of this direction.
    #[inline]
    pub fn set_role(&mut self, direction: Direction, role: DirectionRole) {
        self.roles[direction.index()] = role;
    }

    /// Returns whether the flow has a server.
    #[inline]
    pub fn is_balanced(&self) -> bool {
        self.roles.iter().any(|role| role.is_to_server())
    }

    /// Returns the client's destination.
    #[inline]
    pub fn vip(&self) -> Endpoint {
        Endpoint::new(self.vip, self.vip_port)
    }

    /// Returns the endpoint of the flow's server.
    #[inline]
    pub fn server(&self) -> Endpoint {
        Endpoint::new(self.server, self.server_port)
    }

    /// Sets the client's destination.
    pub fn set_vip(&mut self, vip: Endpoint) {
        (self.vip, self.vip_port) = (vip.addr, vip.port);
    }

    /// Sets the endpoint of the flow's server.
    pub fn set_server(&mut self, number: u16, server: Endpoint) {
        (self.number, self.server, self.server_port) = (number, server.addr, server.port);
    }

    /// Returns whether the sender may be notified now: at most once per `interval_ms` and flow.
    pub fn may_notify(&mut self, now_ns: u64, interval_ms: u32) -> bool {
        let now_ms = (now_ns / 1_000_000) as u32;
        if self.notified_ms != 0 && now_ms.wrapping_sub(self.notified_ms) < interval_ms {
            return false;
        }
        self.notified_ms = now_ms.max(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_one_cache_line() {
        assert_eq!(size_of::<State>(), 64);
    }

    #[test]
    fn a_sender_is_notified_once_per_interval() {
        let mut state = State::default();
        assert!(state.may_notify(0, 100));
        assert!(!state.may_notify(99_000_000, 100));
        assert!(state.may_notify(101_000_000, 100));
    }
}
