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
//!
//! A program that reads a link, such as a dissector or a recorder, needs [`wire`] alone. Here unit
//! 2 acknowledges the state of a flow, and the frame is read at the other end:
//!
//! ```
//! use cluster::wire::{ArrivedFrame, FrameError, read_frame, write_mail};
//! use protocol::message::{FlowId, FromPeer, UnitId};
//! use runtime::transport::Mail;
//!
//! let flow = FlowId { index: 17, generation: 0 };
//! let ack = Mail::Message(UnitId(2), FromPeer::StateAck { flow, epoch: 3 });
//! let (reported, clock_ns) = (12, 5_000);
//! let mut frame = Vec::new();
//! write_mail(&mut frame, &ack, reported, clock_ns);
//!
//! // Only reports carry keys of flows, whose hashes the receiver computes.
//! let no_hash = |_: &packet::FlowKey| 0;
//! let Ok(ArrivedFrame::Peer { unit, message, .. }) = read_frame(&frame, clock_ns, no_hash) else {
//!     panic!("not a message between units");
//! };
//! assert_eq!(unit, UnitId(2));
//! assert_eq!((message.name(), message.flow()), ("StateAck", flow));
//! assert_eq!(message.epoch_of_exchange(), Some(3));
//!
//! // A frame of a later version is skipped; the link stays.
//! assert!(matches!(read_frame(&[0xee], clock_ns, no_hash), Err(FrameError::UnknownKind(0xee))));
//! ```

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
