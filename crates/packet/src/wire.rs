//! Headers on the wire: checked views that read and write them in place, and plain values to build
//! them from.
//!
//! A **view** (`Packet`, `Frame`, ...) wraps anything that is bytes. `new_checked` verifies that
//! all lengths fit, once; from then on every getter is a bounds-checked load and never panics,
//! whatever the bytes. Setters come with mutable bytes. Each view's whole-byte fields are declared
//! in one table, `view!`, which is the header's layout.
//!
//! A **value** (`Repr`) holds a header's contents. `parse` takes it from a checked view, `emit`
//! writes it to a buffer of `buffer_len` bytes or more; values that a field cannot hold are
//! refused, never cut.
//!
//! | layer | module | what | `Repr` |
//! |---|---|---|---|
//! | capture | [`sll`] | Linux "cooked", versions 1 and 2 | |
//! | | [`null`] | BSD loopback | |
//! | link | [`ethernet`] | Ethernet II, 802.3 | yes |
//! | | [`llc`] | LLC and SNAP in 802.3 | |
//! | | [`vlan`] | 802.1Q tags, and the walk over a stack of them | yes |
//! | | [`mpls`] | label stack entries, and the walk over them | |
//! | | [`ppp`] | PPP, PPPoE | |
//! | | [`arp`] | ARP | IPv4 on Ethernet |
//! | network | [`ipv4`], [`ipv4_option`] | IPv4, its options | without options |
//! | | [`ipv6`] | IPv6 | yes |
//! | | [`ipv6_ext`], [`ipv6_walk`] | extension headers, and the walk to the upper layer | |
//! | | [`icmpv4`], [`icmpv6`] | ICMP; errors show the packet they report on | echo, errors |
//! | transport | [`tcp`], [`tcp_option`] | TCP, its options | option MSS only |
//! | | [`mptcp`] | Multipath TCP options | yes |
//! | | [`udp`] | UDP | yes |
//! | tunnel | [`gre`] | GRE version 0; version 1 is recognised | version 0 |
//! | | [`vxlan`] | VXLAN | yes |
//! | | [`geneve`] | Geneve, its options | yes |
//! | | [`gue`] | GUE variant 0 | yes |
//! | | [`gtpu`] | GTP-U version 1, its extension headers | |
//!
//! Walks are bounded, by the bytes they walk over and by a named constant. An error ends a walk,
//! except for a TCP option of a known kind with a foreign length, which the walk skips. IPv4, IPv6
//! and UDP packets that may have been cut off (in ICMP errors, captures, fragments) are wrapped
//! with `new_checked_header`.
//!
//! Checksums are computed on request: `verify_checksum` and `fill_checksum`, with [`IpAddresses`]
//! where a pseudo-header is covered. To keep one up to date while fields change, see
//! [`crate::checksum::Delta`].
//!
//! ```
//! use packet::wire::{EtherType, IpAddresses, IpProtocol, ethernet, ipv4, udp};
//!
//! # fn main() -> Result<(), packet::wire::WireError> {
//! let mut frame = [0; 14 + 20 + 8 + 5];
//! let (link, rest) = frame.split_at_mut(14);
//! let (network, transport) = rest.split_at_mut(20);
//! ethernet::Repr {
//!     destination: packet::wire::MacAddress([2, 0, 0, 0, 0, 2]),
//!     source: packet::wire::MacAddress([2, 0, 0, 0, 0, 1]),
//!     ethertype: EtherType::IPV4,
//! }
//! .emit(link)?;
//! let ip = ipv4::Repr {
//!     dscp: 0,
//!     ecn: 0,
//!     ident: 1,
//!     dont_fragment: true,
//!     more_fragments: false,
//!     fragment_offset: 0,
//!     ttl: 64,
//!     protocol: IpProtocol::UDP,
//!     source: [10, 0, 0, 1].into(),
//!     destination: [10, 0, 0, 2].into(),
//!     payload_len: 13,
//! };
//! ip.emit(network)?;
//! udp::Repr { source_port: 4000, destination_port: 53, payload_len: 5 }.emit(transport)?;
//! let mut datagram = udp::Packet::new_checked(transport)?;
//! datagram.payload_mut().copy_from_slice(b"hello");
//! datagram.fill_checksum(IpAddresses::V4 { source: ip.source, destination: ip.destination });
//!
//! let frame = ethernet::Frame::new_checked(&frame[..])?;
//! let packet = ipv4::Packet::new_checked(frame.payload())?;
//! let datagram = udp::Packet::new_checked(packet.payload())?;
//! assert!(packet.verify_checksum() && datagram.verify_checksum(IpAddresses::from(&packet)));
//! assert_eq!((datagram.destination_port(), datagram.payload()), (53, &b"hello"[..]));
//! # Ok(())
//! # }
//! ```

mod addresses;
mod bytes;
mod error;
mod numbers;

pub mod arp;
pub mod ethernet;
pub mod geneve;
pub mod gre;
pub mod gtpu;
pub mod gue;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv4_option;
pub mod ipv6;
pub mod ipv6_ext;
pub mod ipv6_walk;
pub mod llc;
pub mod mpls;
pub mod mptcp;
pub mod null;
pub mod ppp;
pub mod sll;
pub mod tcp;
pub mod tcp_option;
pub mod udp;
pub mod vlan;
pub mod vxlan;

pub use addresses::IpAddresses;
pub use error::WireError;
pub use numbers::{EtherType, IpProtocol, MacAddress};
