//! What makes a router's port of a wire's: addresses of its own, neighbours, next hops, and the
//! answers that a router owes.
//!
//! A [`Host`] stands between an interface and a chain. Frames that [arrive](Host::arrive) are its
//! own business (ARP, neighbour discovery, pings), nobody's, or go through the chain; packets that
//! [depart](Host::depart) get the next hop's address, once that is known, and a time to live that
//! is one less. It answers for addresses that the chain's functions own, too. It depends on no
//! clock and no socket: time and frames are given, and what it wants sent is taken from it.
//!
//! A wire's port whose chain owns addresses has a [`Proxy`] in its place, which answers for those
//! alone.
//!
//! Errors about packets that depart go back through the chain, so that functions that rewrote a
//! packet rewrite what is said about it.

mod announce;
mod arp;
mod echo;
mod fragment;
mod host;
mod neighbours;
mod network;
mod proxy;
mod solicit;

pub use announce::{ANNOUNCED_MAX, ANNOUNCEMENTS_PER_MS};
pub use host::{Arrival, Config, Counters, Departure, ERRORS_PER_SECOND, Host, untag};
pub use neighbours::{NEIGHBOURS_MAX, QUEUE_MAX};
pub use network::{Network, NotANetwork};
pub use proxy::{Proxy, ProxyConfig, SENDERS_MAX};
