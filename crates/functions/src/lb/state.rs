//! What the load balancer keeps of each flow: one cache line.

use packet::{Addr, Direction, Endpoint};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The server of a flow and how many packets it had (S24). Addresses stand here, not only numbers,
/// so that a flow keeps its server when the table changes or the flow is moved to an instance with
/// another configuration.
#[derive(Clone, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Packets of the flow, both directions.
    pub packets: u64,
    vip: Addr,
    server: Addr,
    vip_port: u16,
    server_port: u16,
    /// The server's number in the configuration.
    pub number: u16,
    roles: [Role; 2],
    /// The configuration's generation by which the server was last found usable; 0: none.
    pub generation: u32,
    /// What varies the tunnel headers' fields from flow to flow.
    pub entropy: u32,
    /// When the sender was last told something by an answer, in milliseconds; 0: never.
    pub told_ms: u32,
    /// What the next packet from the server is awaited for: `ANNOUNCE`, `LEARN`.
    pub awaiting: u8,
    /// Whether the connection was over after the last packet.
    pub over: u8,
    padding: [u8; 2],
}

/// The chain does not yet know the server that the flow was moved to.
pub const ANNOUNCE: u8 = 1;
/// The QUIC connection ID that the server gives is not yet known.
pub const LEARN: u8 = 2;

/// What is done with the packets of one direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Role(u8);

impl Role {
    /// Not decided: no packet of this direction has come yet.
    pub const OPEN: Role = Role(0);
    /// They pass untouched.
    pub const PASS: Role = Role(1);
    /// They go to the server by a new destination address.
    pub const REWRITE: Role = Role(2);
    /// They go to the server in an IP header of their own.
    pub const IPIP: Role = Role(3);
    /// They go to the server in Generic UDP Encapsulation.
    pub const GUE: Role = Role(4);
    /// They come from the server and get the service's address.
    pub const RESTORE: Role = Role(5);

    /// Whether they go to the server.
    #[inline]
    pub fn is_to_server(self) -> bool {
        matches!(self, Role::REWRITE | Role::IPIP | Role::GUE)
    }
}

impl State {
    /// What is done with packets of this direction.
    #[inline]
    pub fn role(&self, direction: Direction) -> Role {
        self.roles[direction.index()]
    }

    /// Says what is done with packets of this direction.
    #[inline]
    pub fn set_role(&mut self, direction: Direction, role: Role) {
        self.roles[direction.index()] = role;
    }

    /// Whether the flow has a server.
    #[inline]
    pub fn is_balanced(&self) -> bool {
        self.roles.iter().any(|role| role.is_to_server())
    }

    /// Where the flow's client sends to.
    #[inline]
    pub fn vip(&self) -> Endpoint {
        Endpoint::new(self.vip, self.vip_port)
    }

    /// Where the flow goes.
    #[inline]
    pub fn server(&self) -> Endpoint {
        Endpoint::new(self.server, self.server_port)
    }

    /// Sets where the flow's client sends to.
    pub fn set_vip(&mut self, vip: Endpoint) {
        (self.vip, self.vip_port) = (vip.addr, vip.port);
    }

    /// Sets where the flow goes.
    pub fn set_server(&mut self, number: u16, server: Endpoint) {
        (self.number, self.server, self.server_port) = (number, server.addr, server.port);
    }

    /// Whether the sender may be told something now: at most once in `interval_ms` and flow.
    pub fn may_tell(&mut self, now_ns: u64, interval_ms: u32) -> bool {
        let now_ms = (now_ns / 1_000_000) as u32;
        if self.told_ms != 0 && now_ms.wrapping_sub(self.told_ms) < interval_ms {
            return false;
        }
        self.told_ms = now_ms.max(1);
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
    fn a_sender_is_told_once_in_a_while() {
        let mut state = State::default();
        assert!(state.may_tell(0, 100));
        assert!(!state.may_tell(99_000_000, 100));
        assert!(state.may_tell(101_000_000, 100));
    }
}
