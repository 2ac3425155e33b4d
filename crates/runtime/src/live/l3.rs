//! L3 of a port: what answers and resolves addresses between an interface and the graph.

use io::port::LinkState;
use l3::{EgressAction, IngressAction, ProxyPort, ProxyPortConfig, RouterPort};
use nf::OwnedAddresses;
use packet::wire::MacAddress;

use crate::assembly::Assembly;
use crate::ports::PortEntry;
use crate::report::HostReport;

/// L3 of a port.
pub(super) enum PortL3 {
    /// A port of a wire: all frames pass.
    Wire,
    /// A port of a wire that answers ARP and ND for addresses of NFs.
    Proxy(Box<ProxyPort>),
    /// A router's port, which has addresses.
    Router(Box<RouterPort>),
}

impl PortL3 {
    /// Creates L3 for a port.
    ///
    /// On a wire, no other host answers for addresses that NFs own on one side. Hosts of the wire
    /// may have addresses that are owned on both sides, as a load balancer's. `wire` has the
    /// Ethernet addresses of all interfaces; `shard` is the worker's number and the number of
    /// workers.
    pub fn new(
        port: &PortEntry,
        link: LinkState,
        wire: &[MacAddress],
        assembly: &Assembly,
        shard: (usize, usize),
    ) -> PortL3 {
        let mut owned_anywhere = assembly.graph.stages().iter().flat_map(|stage| &stage.shared().owned);
        let ranges = |in_use: bool, is_wire: bool| {
            let owned = assembly.owned_at(port).filter(move |owned| owned.in_use == in_use);
            let owned = owned.filter(move |owned| !is_wire || owned.side.is_some());
            owned.map(|owned: &OwnedAddresses| (owned.first, owned.last)).collect()
        };
        if port.networks.is_empty() {
            if owned_anywhere.all(|owned| owned.side.is_none()) || link.address.is_none() {
                return PortL3::Wire;
            }
            return PortL3::Proxy(Box::new(ProxyPort::new(ProxyPortConfig {
                mac: mac(link),
                wire: wire.to_vec(),
                nf_addresses: ranges(false, true),
                nf_addresses_in_use: ranges(true, true),
                shard,
            })));
        }
        let networks = assembly.ports.all().iter().flat_map(|port| &port.networks);
        PortL3::Router(Box::new(RouterPort::new(l3::Config {
            mac: mac(link),
            mtu: link.mtu,
            addresses: port.networks.clone(),
            routes: port.routes.clone(),
            gateways: port.gateways.clone(),
            nf_addresses: ranges(false, false),
            nf_addresses_in_use: ranges(true, false),
            router_addresses: networks.map(|network| network.address).collect(),
            is_at_program: port.is_of_node,
            drop_martians: assembly.graph.options().guards.martians != Some(false),
            shard,
        })))
    }

    pub fn is_router(&self) -> bool {
        matches!(self, PortL3::Router(_))
    }

    pub fn handle_ingress(&mut self, frame: &[u8], now_ns: u64) -> IngressAction {
        match self {
            PortL3::Wire => IngressAction::Forward,
            PortL3::Proxy(proxy) => proxy.handle_ingress(frame, now_ns),
            PortL3::Router(router) => router.handle_ingress(frame, now_ns),
        }
    }

    pub fn handle_egress(&mut self, frame: &mut [u8], now_ns: u64) -> EgressAction {
        match self {
            PortL3::Wire => EgressAction::Transmit,
            PortL3::Proxy(proxy) => proxy.handle_egress(frame, now_ns),
            PortL3::Router(router) => router.handle_egress(frame, now_ns),
        }
    }

    pub fn handle_timeout(&mut self, now_ns: u64) {
        match self {
            PortL3::Wire => {}
            PortL3::Proxy(proxy) => proxy.handle_timeout(now_ns),
            PortL3::Router(router) => router.handle_timeout(now_ns),
        }
    }

    /// Learns from a frame about neighbours that another worker has received on the same port.
    pub fn snoop(&mut self, frame: &[u8], now_ns: u64) {
        match self {
            PortL3::Wire => {}
            PortL3::Proxy(proxy) => proxy.snoop(frame, now_ns),
            PortL3::Router(router) => router.snoop(frame, now_ns),
        }
    }

    /// Takes the current state of the link; `came_up` if it was down, or the interface is another
    /// one.
    pub fn set_link(&mut self, link: LinkState, wire: &[MacAddress], came_up: bool, now_ns: u64) {
        match self {
            PortL3::Wire => {}
            PortL3::Proxy(proxy) => {
                proxy.set_link(mac(link), wire);
                if came_up {
                    proxy.handle_link_up(now_ns);
                }
            }
            PortL3::Router(router) => {
                router.set_link(mac(link), link.mtu);
                if came_up {
                    router.handle_link_up(now_ns);
                }
            }
        }
    }

    /// Returns frames that leave by the port: answers, requests, and packets with a newly resolved
    /// neighbour.
    pub fn take_frames(&mut self) -> Vec<Vec<u8>> {
        match self {
            PortL3::Wire => Vec::new(),
            PortL3::Proxy(proxy) => proxy.take_frames(),
            PortL3::Router(router) => router.take_frames(),
        }
    }

    /// Returns received frames about neighbours, for other workers.
    pub fn take_snooped(&mut self) -> Vec<Vec<u8>> {
        match self {
            PortL3::Wire => Vec::new(),
            PortL3::Proxy(proxy) => proxy.take_snooped(),
            PortL3::Router(router) => router.take_snooped(),
        }
    }

    /// Returns frames that enter the graph as if they had been received: ICMP errors about packets
    /// that could not leave.
    pub fn take_returned(&mut self) -> Vec<Vec<u8>> {
        match self {
            PortL3::Wire | PortL3::Proxy(_) => Vec::new(),
            PortL3::Router(router) => router.take_returned(),
        }
    }

    pub fn report(&self) -> Option<HostReport> {
        match self {
            PortL3::Wire => None,
            PortL3::Proxy(proxy) => Some(HostReport { counters: proxy.counters(), pending: proxy.pending() }),
            PortL3::Router(router) => {
                Some(HostReport { counters: router.counters(), pending: router.pending() })
            }
        }
    }
}

fn mac(link: LinkState) -> MacAddress {
    MacAddress(link.address.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use packet::DropReason;
    use policy::Policy;

    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

    /// An IPv4 or IPv6 packet without contents, in a frame to the port.
    fn frame(from: &str, to: &str) -> Vec<u8> {
        let mut frame = [&OWN[..], &[2, 0, 0, 0, 0, 2]].concat();
        match (from.parse().unwrap(), to.parse().unwrap()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend([8, 0, 0x45, 0, 0, 20, 0, 1, 0, 0, 64, 253, 0, 0]);
                frame.extend([from.octets(), to.octets()].concat());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 253, 64]);
                frame.extend([from.octets(), to.octets()].concat());
            }
            _ => unreachable!("both are of one version"),
        }
        frame
    }

    #[test]
    fn program_may_send_from_addresses_of_other_ports() {
        let text = "Port<0> inside { address: [\"10.7.0.254/24\", \"fd07::254/64\"] };
            Port<1> outside { address: [\"203.0.113.254/24\", \"fd08::254/64\"] };
            Legacy box { };
            pipelet { inside <-> box <-> outside; }";
        let policy = Policy::read("test", text, &mut |_: &str| Err(String::new())).unwrap();
        let assembly = crate::assemble(&policy, &functions::registry(), 1, None).unwrap();
        let action = |port: &str, from: &str, to: &str| {
            let entry = assembly.ports.named(port).unwrap();
            let link = LinkState { is_up: true, mtu: 1_500, address: Some(OWN) };
            PortL3::new(entry, link, &[], &assembly, (0, 1)).handle_ingress(&frame(from, to), 0)
        };
        let martian = IngressAction::Drop(DropReason::Martian);
        // An error about a packet that did not leave by `outside`, and its way back.
        for (from, to) in [("203.0.113.254", "10.7.0.1"), ("fd08::254", "fd07::1")] {
            assert_eq!(action("box.inside", from, to), IngressAction::Forward, "{from}");
            assert_eq!(action("inside", from, to), martian, "{from}");
        }
        // An error of the node's other port: a packet's time to live expired there.
        assert_eq!(action("box.inside", "100.127.0.5", "10.7.0.1"), IngressAction::Forward);
        assert_eq!(action("outside", "100.127.0.5", "203.0.113.2"), martian);
        // Its own address, or one of no host.
        assert_eq!(action("box.inside", "100.127.0.1", "10.7.0.1"), martian);
        assert_eq!(action("box.inside", "127.0.0.1", "10.7.0.1"), martian);
    }
}
