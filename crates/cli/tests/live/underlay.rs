//! Addresses of a cluster's hosts: the middle joins networks, one for each other host.

/// The kind of addresses between the hosts of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underlay {
    #[default]
    Ipv4,
    /// They have no others.
    Ipv6,
    /// Units are known by names, which may get other addresses.
    Names,
}

/// The network of dispatchers.
pub const DISPATCHERS: usize = 9;

/// Port of the units' handshakes.
const PORT: u16 = 7400;

impl Underlay {
    /// Returns the address of a host on this network, where the middle is host 1.
    pub fn host(self, network: usize, host: u8) -> String {
        match self {
            Underlay::Ipv4 | Underlay::Names => format!("10.9.{network}.{host}"),
            Underlay::Ipv6 => format!("fd09:{network}::{host}"),
        }
    }

    /// Returns the same with the length of the network's prefix.
    pub fn interface(self, network: usize, host: u8) -> String {
        let length = if self == Underlay::Ipv6 { 64 } else { 24 };
        format!("{}/{length}", self.host(network, host))
    }

    /// Returns the same with a port, as a URL or a configuration has it.
    pub fn socket(self, network: usize, host: u8, port: u16) -> String {
        match self {
            Underlay::Ipv6 => format!("[{}]:{port}", self.host(network, host)),
            Underlay::Ipv4 | Underlay::Names => format!("{}:{port}", self.host(network, host)),
        }
    }

    /// Returns the kernel's setting that makes the middle forward packets between networks.
    pub fn forwarding(self) -> &'static str {
        match self {
            Underlay::Ipv6 => "net.ipv6.conf.all.forwarding",
            Underlay::Ipv4 | Underlay::Names => "net.ipv4.ip_forward",
        }
    }

    /// Returns the names of units, a line each; none if they are not known by names.
    pub fn names(self) -> Option<String> {
        let line = |unit| format!("{} u{unit}.test\n", self.host(unit, 2));
        (self == Underlay::Names).then(|| (1..DISPATCHERS).map(line).collect())
    }

    /// Returns the address at which others reach a unit, which is alone on its network.
    pub fn unit(self, name: &str, network: usize) -> String {
        match self {
            Underlay::Names => format!("{name}.test:{PORT}"),
            Underlay::Ipv4 | Underlay::Ipv6 => self.socket(network, 2, PORT),
        }
    }

    /// Returns the addresses of units, for the configuration of a dispatcher.
    pub fn units(self, units: &[&str]) -> String {
        let lines =
            (1..).zip(units).map(|(number, name)| format!("{name} = \"{}\"\n", self.unit(name, number)));
        format!("[units]\n{}", lines.collect::<String>())
    }
}
