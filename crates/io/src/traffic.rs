//! Generated traffic: a [`TrafficProfile`] describes it, a [`Generator`] yields its frames, and a
//! [`Responder`] answers as its servers would.
//!
//! ```
//! use io::traffic::{Generator, TrafficProfile};
//!
//! # fn main() -> Result<(), io::traffic::ProfileError> {
//! let profile = TrafficProfile { seed: 7, packets: Some(1_000), ..TrafficProfile::default() };
//! let mut generator = Generator::new(&profile)?;
//! let mut bytes = 0;
//! while let Some(frame) = generator.next() {
//!     bytes += frame.data.len();
//! }
//! assert!(bytes >= 60_000);
//! # Ok(())
//! # }
//! ```
//!
//! The same profile gives the same frames, byte for byte. (Poisson and log-normal times, heavy
//! tails and Zipf popularity use the platform's logarithm and exponential, so they may differ in
//! the last digit between platforms.) Lengths are those of Ethernet frames without the frame check
//! sequence: the least is 60 bytes, which makes 64 on the wire. Each flow's packets are in order
//! and without loss; nothing is retransmitted.

mod attack;
mod check;
mod contents;
mod endpoints;
mod error;
mod flow;
mod frame;
mod generated;
mod generator;
mod population;
mod presets;
mod profile;
mod random;
mod responder;
mod schedule;

pub use error::ProfileError;
pub use frame::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
pub use generated::{Counters, FrameKind, GeneratedFrame};
pub use generator::Generator;
pub use profile::{
    AddressPrefix, Attacks, FLOWS_MAX, FlowLength, FrameBytes, FrameRate, Pacing, Payload, Popularity,
    Protocols, ServerAnswer, TrafficAddresses, TrafficProfile,
};
pub use responder::{NoAnswer, Responder};
