//! Clients and servers of flows: their addresses and ports.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::error::ProfileError;
use super::frame::AddressPair;
use super::profile::{AddressPrefix, TrafficAddresses, TrafficProfile};
use super::random::Random;

/// The first port of clients.
const FIRST_CLIENT_PORT: u16 = 1_024;
const CLIENT_PORTS: u64 = (u16::MAX - FIRST_CLIENT_PORT) as u64 + 1;

/// All hosts of a profile, by number.
#[derive(Debug)]
pub(super) struct Endpoints {
    clients_v4: Hosts,
    clients_v6: Hosts,
    servers_v4: Hosts,
    servers_v6: Hosts,
    order_v4: Permutation,
    order_v6: Permutation,
    server_ports: Vec<u16>,
}

/// The two endpoints of a flow; hosts are numbers within their prefixes.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndpointPair {
    pub is_v6: bool,
    pub client: u32,
    pub client_port: u16,
    pub server: u32,
    pub server_port: u16,
}

impl Endpoints {
    /// # Errors
    /// [`ProfileError::TooFewClients`] if not all open flows can have a 5-tuple of their own.
    pub fn new(profile: &TrafficProfile, random: &mut Random) -> Result<Endpoints, ProfileError> {
        let TrafficAddresses { clients_v4, servers_v4, clients_v6, servers_v6, server_ports, .. } =
            &profile.addresses;
        let (clients_v4, clients_v6) = (Hosts::v4(*clients_v4), Hosts::v6(*clients_v6));
        let endpoints = Endpoints {
            order_v4: Permutation::new(clients_v4.count * CLIENT_PORTS, random),
            order_v6: Permutation::new(clients_v6.count * CLIENT_PORTS, random),
            clients_v4,
            clients_v6,
            servers_v4: Hosts::v4(*servers_v4),
            servers_v6: Hosts::v6(*servers_v6),
            server_ports: server_ports.clone(),
        };
        let families = [
            ("clients_v4", profile.ipv6_share < 1.0, endpoints.order_v4.length),
            ("clients_v6", profile.ipv6_share > 0.0, endpoints.order_v6.length),
        ];
        for (prefix, is_used, room) in families {
            if is_used && room < u64::from(profile.flows) {
                return Err(ProfileError::TooFewClients { flows: profile.flows, prefix, room });
            }
        }
        Ok(endpoints)
    }

    /// Returns the endpoints of the flow with this number. No address and port of a client repeats
    /// before all were used.
    pub fn ends(&self, number: u64, is_v6: bool, random: &mut Random) -> EndpointPair {
        let (order, servers) =
            if is_v6 { (&self.order_v6, &self.servers_v6) } else { (&self.order_v4, &self.servers_v4) };
        let place = order.place(number);
        EndpointPair {
            is_v6,
            client: (place / CLIENT_PORTS) as u32,
            // Below CLIENT_PORTS, so the port is within 16 bits.
            client_port: FIRST_CLIENT_PORT + (place % CLIENT_PORTS) as u16,
            server: random.below(servers.count) as u32,
            server_port: self.server_ports[random.below(self.server_ports.len() as u64) as usize],
        }
    }

    /// Returns the addresses of a flow's packets, from the client to the server.
    pub fn addresses(&self, ends: &EndpointPair) -> AddressPair {
        match ends.is_v6 {
            false => AddressPair::V4 {
                source: self.clients_v4.address_v4(ends.client),
                destination: self.servers_v4.address_v4(ends.server),
            },
            true => AddressPair::V6 {
                source: self.clients_v6.address_v6(ends.client),
                destination: self.servers_v6.address_v6(ends.server),
            },
        }
    }

    /// Returns the IPv4 address of a client; numbers wrap around.
    pub fn client_v4(&self, number: u64) -> [u8; 4] {
        self.clients_v4.address_v4((number % self.clients_v4.count) as u32)
    }

    /// Returns the IPv4 address of a server; numbers wrap around.
    pub fn server_v4(&self, number: u64) -> [u8; 4] {
        self.servers_v4.address_v4((number % self.servers_v4.count) as u32)
    }

    /// Returns the number of servers with IPv4 addresses.
    pub fn servers_v4(&self) -> u64 {
        self.servers_v4.count
    }

    /// Returns the first server port.
    pub fn first_server_port(&self) -> u16 {
        self.server_ports[0]
    }
}

/// The usable addresses of a prefix: the first one and the count.
#[derive(Debug)]
struct Hosts {
    first: u128,
    count: u64,
}

impl Hosts {
    /// Returns all addresses of a prefix but the network's and the broadcast address, if there are
    /// more than two.
    fn v4(prefix: AddressPrefix<Ipv4Addr>) -> Hosts {
        let size = 1_u64 << (32 - prefix.length);
        let network = u64::from(prefix.address.to_bits()) & !(size - 1);
        match size {
            1 | 2 => Hosts { first: network.into(), count: size },
            _ => Hosts { first: u128::from(network) + 1, count: size - 2 },
        }
    }

    /// Returns all addresses of a prefix but the routers' anycast address (RFC 4291 section 2.6.1),
    /// if there are more than two; at most 2^32.
    fn v6(prefix: AddressPrefix<Ipv6Addr>) -> Hosts {
        let host_bits = 128 - u32::from(prefix.length);
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        let network = prefix.address.to_bits() & mask;
        let size = 1_u64 << host_bits.min(32);
        match size {
            1 | 2 => Hosts { first: network, count: size },
            _ => Hosts { first: network + 1, count: size - 1 },
        }
    }

    fn address_v4(&self, number: u32) -> [u8; 4] {
        (self.first as u32).wrapping_add(number).to_be_bytes()
    }

    fn address_v6(&self, number: u32) -> [u8; 16] {
        (self.first + u128::from(number)).to_be_bytes()
    }
}

/// A pseudo-random permutation of 0..length, which repeats.
#[derive(Debug)]
struct Permutation {
    length: u64,
    step: u64,
    start: u64,
}

impl Permutation {
    fn new(length: u64, random: &mut Random) -> Permutation {
        const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;
        let mut step = (length as f64 * GOLDEN_RATIO) as u64 | 1;
        while greatest_common_divisor(step, length) != 1 {
            step += 2;
        }
        Permutation { length, step, start: random.below(length) }
    }

    fn place(&self, number: u64) -> u64 {
        let place = u128::from(number) * u128::from(self.step) + u128::from(self.start);
        (place % u128::from(self.length)) as u64
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_permutation_visits_every_place_once() {
        for length in [1, 2, 6, 97, 1_000, CLIENT_PORTS] {
            let order = Permutation::new(length, &mut Random::stream(3, length));
            let places: BTreeSet<_> = (0..length).map(|number| order.place(number)).collect();
            assert_eq!(places.len() as u64, length);
            assert_eq!(order.place(0), order.place(length));
        }
    }

    #[test]
    fn hosts_stay_within_their_prefix() {
        let hosts = |text: &str| Hosts::v4(text.parse().unwrap());
        assert_eq!(hosts("10.1.2.3/30").address_v4(0), [10, 1, 2, 1]);
        assert_eq!(hosts("10.1.2.3/30").count, 2);
        assert_eq!(hosts("10.1.2.3/32").address_v4(0), [10, 1, 2, 3]);
        assert_eq!(hosts("0.0.0.0/0").count, (1 << 32) - 2);
        let hosts = |text: &str| Hosts::v6(text.parse().unwrap());
        assert_eq!(hosts("2001:db8::/64").count, (1 << 32) - 1);
        assert_eq!(hosts("::/0").first, 1);
        assert_eq!(hosts("::7/128").address_v6(0)[15], 7);
    }
}
