//! Lookup by address, protocol and port.

use std::fmt;

use packet::parse::protocol;
use packet::{Addr, Endpoint};
use serde::Deserialize;

/// Protocol of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// ICMP for an IPv4 address, ICMPv6 for an IPv6 address.
    Icmp,
    /// Every protocol.
    Any,
}

impl fmt::Display for ServiceProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServiceProtocol::Tcp => "tcp",
            ServiceProtocol::Udp => "udp",
            ServiceProtocol::Icmp => "icmp",
            ServiceProtocol::Any => "any",
        })
    }
}

impl ServiceProtocol {
    /// Returns whether services of this protocol can be distinguished by port.
    pub fn has_ports(self) -> bool {
        matches!(self, ServiceProtocol::Tcp | ServiceProtocol::Udp)
    }

    fn covers(self, number: u8) -> bool {
        match self {
            ServiceProtocol::Tcp => number == protocol::TCP,
            ServiceProtocol::Udp => number == protocol::UDP,
            ServiceProtocol::Icmp => matches!(number, protocol::ICMP | protocol::ICMPV6),
            ServiceProtocol::Any => true,
        }
    }
}

/// An entry: an address, its protocol and ports, and the number of their target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Address.
    pub addr: Addr,
    /// Protocol.
    pub protocol: ServiceProtocol,
    /// First and last port.
    pub ports: (u16, u16),
    /// Number of the target.
    pub target: u16,
}

impl DirectoryEntry {
    fn covers(&self, number: u8, port: u16) -> bool {
        let any_port = !self.protocol.has_ports();
        self.protocol.covers(number) && (any_port || (self.ports.0..=self.ports.1).contains(&port))
    }

    /// Returns the sort key: by address, most specific first. A specific protocol precedes `any`,
    /// and few ports precede many.
    fn order(&self) -> (Addr, bool, u16, u16) {
        (self.addr, self.protocol == ServiceProtocol::Any, self.ports.1 - self.ports.0, self.target)
    }
}

/// Entries by address. A lookup returns the most specific match.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    entries: Box<[DirectoryEntry]>,
}

impl Directory {
    /// Builds a directory of these entries.
    pub fn new(mut entries: Vec<DirectoryEntry>) -> Directory {
        entries.sort_unstable_by_key(DirectoryEntry::order);
        Directory { entries: entries.into() }
    }

    /// Returns the target of this endpoint of a packet with protocol `number`.
    pub fn find(&self, at: Endpoint, number: u8) -> Option<u16> {
        self.at(at.addr).find(|entry| entry.covers(number, at.port)).map(|entry| entry.target)
    }

    /// Returns whether there is an entry at this address.
    pub fn has(&self, addr: Addr) -> bool {
        self.at(addr).next().is_some()
    }

    fn at(&self, addr: Addr) -> impl Iterator<Item = &DirectoryEntry> {
        let first = self.entries.partition_point(|entry| entry.addr < addr);
        self.entries[first..].iter().take_while(move |entry| entry.addr == addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_entry_is_found() {
        let a = Addr::from_v4_bytes([192, 0, 2, 1]);
        let entry = |protocol, ports, target| DirectoryEntry { addr: a, protocol, ports, target };
        let directory = Directory::new(vec![
            entry(ServiceProtocol::Any, (0, 0xffff), 0),
            entry(ServiceProtocol::Tcp, (0, 0xffff), 1),
            entry(ServiceProtocol::Tcp, (80, 90), 2),
            entry(ServiceProtocol::Tcp, (80, 80), 3),
            entry(ServiceProtocol::Icmp, (0, 0xffff), 4),
        ]);
        let find = |port, number| directory.find(Endpoint::new(a, port), number);
        assert_eq!(find(80, protocol::TCP), Some(3));
        assert_eq!(find(81, protocol::TCP), Some(2));
        assert_eq!(find(91, protocol::TCP), Some(1));
        assert_eq!(find(80, protocol::UDP), Some(0));
        assert_eq!(find(7, protocol::ICMP), Some(4));
        let other = Addr::from_v4_bytes([192, 0, 2, 2]);
        assert_eq!(directory.find(Endpoint::new(other, 80), protocol::TCP), None);
        assert!(directory.has(a) && !directory.has(other));
    }
}
