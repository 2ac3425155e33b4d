//! Rivulet on several hosts (S11, S18, S19; A3-A8, A25-A27).
//!
//! A dispatcher and its units are processes, and flows move between them. The ownership protocol
//! and its state machines are in [`protocol`]; this crate carries their messages.
//!
//! | module | content |
//! |---|---|
//! | [`addresses`] | addresses of nodes, and sockets at them |
//! | [`wire`] | frames of dispatchers and units; no socket, no clock |
//! | [`identity`] | certificates, and the handshake of two nodes |
//! | [`remote`] | the dispatcher's end: units at other nodes as a transport of [`runtime`] |
//! | [`mod@unit`] | a unit as a process |
//! | [`policies`] | policies of nodes, and how units get another one |
//! | [`network`] | access to other nodes and to the time |
//! | [`simulated`] | nodes of one thread, on virtual time, with faulty links |

pub mod addresses;
mod digest;
pub mod identity;
mod links;
pub mod network;
mod peers;
pub mod policies;
pub mod remote;
pub mod simulated;
pub mod unit;
pub mod wire;

pub use digest::{fingerprint, policy_digest, shared_seed};
pub use links::{HandshakeCounters, LinkInfo};
