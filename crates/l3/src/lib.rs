//! L3: what makes a port a router's: ARP, neighbour discovery, next hops, time to live, ICMP
//! errors.
//!
//! A [`RouterPort`] is placed between an interface and a graph. It consumes incoming frames that
//! are for the port itself (ARP, neighbour discovery, pings) or for other machines, and forwards
//! the rest to the graph. Outgoing packets get the next hop's address, once that is known, and a
//! decremented time to live. The port also answers for addresses owned by the graph's NFs: for
//! configured ones always, for addresses of a prefix only while hosts use them.
//!
//! A [`ProxyPort`] takes its place on a wire with a graph that owns addresses; it answers for those
//! only.
//!
//! Errors about outgoing packets go back through the graph, so that NFs that rewrote a packet also
//! rewrite the error. There is no clock and no socket: times and frames are arguments, and frames
//! to send are taken from the port.

mod announce;
mod arp;
mod echo;
mod fragment;
mod frame;
mod in_use;
mod interface_address;
mod nd;
mod neighbours;
mod proxy_port;
mod route_table;
mod router_port;

pub use announce::{ANNOUNCED_MAX, ANNOUNCEMENTS_PER_MS};
pub use frame::untag;
pub use in_use::IN_USE_MAX;
pub use interface_address::{AddressRole, InterfaceAddress, InterfaceAddressError};
pub use neighbours::{NEIGHBOURS_MAX, PENDING_PER_NEIGHBOUR_MAX};
pub use proxy_port::{ProxyPort, ProxyPortConfig, SENDERS_MAX};
pub use route_table::{ROUTES_MAX, StaticRoute};
pub use router_port::{Config, Counters, ERRORS_PER_SECOND, EgressAction, IngressAction, RouterPort};
