//! wip
mod addresses;
pub mod arp;
mod bytes;
mod error;
pub mod ethernet;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
pub mod llc;
mod numbers;
pub mod udp;
pub mod vlan;
pub use addresses::IpAddresses;
pub use error::WireError;
pub use numbers::{EtherType, IpProtocol, MacAddress};
