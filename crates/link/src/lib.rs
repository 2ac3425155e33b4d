//! Messages and packets between two processes over datagrams, sans-IO. A27, A28
//!
//! A [`PeerLink`] is one end. Its caller has a UDP socket and a clock; both ends have secrets from
//! a handshake that authenticated the peer. The link gives:
//!
//! - **messages** of up to 16 MiB: reliable, exactly once, in order within each of 65,536 streams,
//!   which never wait for each other. Only those of stream [`ORDERED`] are in order with all
//!   others, both ways. Small ones share a datagram, large ones are divided;
//! - **packets** of up to a datagram: never sent again, in the order of the network. Small ones
//!   share a datagram;
//! - **authentication and encryption** of all of it (AES-256-GCM), replays refused, keys rotated;
//! - **flow control** by the receiver, congestion control (NewReno, RFC 9002 appendix B, which
//!   continues in slow start on a much longer path), loss recovery (RFC 9002 6), which bears
//!   reordering (RFC 8985) and undoes what it took for a loss (RFC 4015);
//! - **life signs**: [`LinkEvent::Up`] at the first authentic datagram, [`LinkEvent::Dead`] after a
//!   bounded silence, or at once if the peer has ended the link. A dead link stays dead; its
//!   successor has other keys.
//!
//! It has no clock, socket, thread or randomness. The same calls give the same bytes.
//!
//! ```
//! use link::{Config, LinkEvent, LinkKeys, PeerLink};
//!
//! let keys = LinkKeys { send: [1; 32], receive: [2; 32] }; // from a handshake
//! let mut here = PeerLink::new(Config::default(), &keys, 0)?;
//! let mut there = PeerLink::new(Config::default(), &keys.reversed(), 0)?;
//! here.send_message(7, b"a message")?;
//! here.send_packet(b"a packet")?;
//!
//! let mut datagrams = Vec::new();
//! while let Some(transmit) = here.poll_transmit(0, &mut datagrams) {
//!     for datagram in datagrams.chunks_mut(transmit.segment) {
//!         there.handle_datagram(1_000, datagram)?;
//!     }
//! }
//! assert_eq!(there.poll_event(), Some(LinkEvent::Up));
//! let message = there.poll_message().map(|message| (message.stream, message.bytes));
//! assert_eq!(message, Some((7, &b"a message"[..])));
//! assert_eq!(there.poll_packet(), Some(&b"a packet"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Time until a peer is given up
//!
//! Each end sends at least every [`Config::heartbeat_ns`]. A peer is given up after a silence of
//!
//! ```text
//! max(heartbeats_missed x max(heartbeat_ns, smoothed round-trip time),
//!     2 x longest silence of late), from silence_min_ns to silence_max_ns
//! ```
//!
//! which is 20 ms by default within a data centre. The longest silence is one that the peer ended,
//! or a time when [this end did not run](PeerLink::excuse); it loses half of its weight each
//! minute. Time when this end did not run is no silence of the peer. After such a time, an end that
//! may have been given up [probes its peer](PeerLink::doubt) before it sends anything.
//!
//! An [end that is gone](EndedLink) answers what its peer still sends with a close frame. After a
//! crash, the other end notices within this time and that of the last datagram on its way. When
//! only one direction fails, the end that still receives notices after the other did, and so after
//! twice that time. Before the first datagram the time is [`Config::up_within_ns`].
//!
//! # Wire layout
//!
//! Version 1. All numbers are big-endian. The header is authenticated, the frames are encrypted.
//!
//! | bytes of a datagram | field |
//! |---|---|
//! | 0 | version, [`VERSION`] |
//! | 1 | key phase, its low 8 bits |
//! | 2..10 | connection id |
//! | 10..18 | datagram number; begins with 1, never repeats |
//! | 18.. | frames, encrypted |
//! | last 16 | tag over all of it |
//!
//! Every frame but padding begins with its type (1 byte) and the length of what follows (2 bytes).
//! A receiver skips frames of types that it does not know, so that later programs can add some. An
//! authentic datagram with a malformed frame of a known type ends the link.
//!
//! | type | frame | bytes after the length |
//! |---|---|---|
//! | 0 | padding | no length: the rest of the datagram is ignored |
//! | 1 | block | number (8), then order, messages and fragments: sent again, whole, until acknowledged |
//! | 2 | message, in a block | stream (2), number within the stream (4), the message |
//! | 3 | fragment, in a block | stream (2), number (4), length of the message (4), offset (4), its bytes |
//! | 4 | packet | the packet |
//! | 5 | acknowledgement | greatest datagram number (8), its age in ns (4), cost granted in all (8), numbers before the greatest without a gap (2), then up to [`ACK_RANGES_MAX`] pairs: numbers missing (2) and received (2) |
//! | 6 | ping | none; requests an acknowledgement |
//! | 7 | probe | length of the datagram (2); requests an answer. Padding follows |
//! | 8 | answer | length of the largest probe that has arrived (2) |
//! | 9 | part of a block | number (8), length of the block (2), offset (2), its bytes: sent again until acknowledged |
//! | 10 | order, first in a block | messages of stream 0 that are complete before the block (4): it waits for them. Without it, it waits for none |
//! | 0x58 | close | none; the sender has ended the link |
//!
//! Datagrams with a block, a part, a packet or a ping are acknowledged. A lost block is sent again
//! in a new datagram. An acknowledgement repeats all that the window remembers, and the grant, so
//! that none need arrive; heartbeats are acknowledgements.
//!
//! # Length of datagrams
//!
//! Datagrams must not be fragmented: the caller's socket sets DF (`IP_PMTUDISC_PROBE`). A link
//! begins with datagrams of [`Config::mtu_base`] bytes, and probes larger ones (RFC 8899) up to
//! [`Config::mtu`]: a size passes when the peer answers, and does not after [`MTU_PROBES_MAX`]
//! losses, or when the system refuses the probe ([`PeerLink::handle_too_large`]). Every
//! [`MTU_RAISE_NS`] it tries larger sizes again.
//!
//! It falls back to `mtu_base` and searches again when the system refuses a datagram, when large
//! datagrams are lost for a round trip while others arrive, and after two probe timeouts in a row.
//! Blocks that were formed before are then sent in parts. A peer of an earlier program answers no
//! probe, so its blocks are never divided. [`LinkEvent::Mtu`] reports the end of a search.
//!
//! # Keys
//!
//! | derived from a secret | label |
//! |---|---|
//! | AES-256 key of the phase | `rivulet link key` |
//! | initialization vector of the phase | `rivulet link iv` |
//! | secret of the next phase | `rivulet link next` |
//! | connection id (of the first secret only) | `rivulet link id` |
//!
//! The derivation is HKDF-Expand with SHA-256 (RFC 5869 2.3), the label is its info. A nonce is the
//! vector XOR (key phase, 4 bytes | datagram number, 8 bytes).
//!
//! # Performance
//!
//! Instructions of both ends together, on one thread, with encryption and acknowledgements, by
//! `valgrind --tool=callgrind` of `target/release/deps/messages-* ITEM BYTES COUNT` after
//! `cargo bench -p link`, which prints rates:
//!
//! | item | instructions |
//! |---|---|
//! | message of 64 bytes | 860 |
//! | packet of 64 bytes | 820 |
//! | packet of 1,400 bytes | 11,000 |
//!
//! Most of these are AES-GCM; valgrind has no wide vector instructions, with which it takes fewer.
//!
//! Full datagrams make it cheap: 19 messages of 64 bytes share one of 1,452 bytes. Nothing is
//! allocated for messages that fit a datagram and arrive in order, nor for packets.
//!
//! # Limits
//!
//! | what | limit | beyond it |
//! |---|---|---|
//! | length of a message | [`MESSAGE_MAX`], less by [`Config::message_max`] | [`SendError::TooLarge`] |
//! | length of a packet | [`PeerLink::packet_max`] | [`PacketError::TooLarge`], counted |
//! | messages without acknowledgement | [`Config::send_buffer`] | [`SendError::Full`], counted; [`LinkEvent::Room`] |
//! | packets that wait to be sent | [`Config::packet_buffer`] | [`PacketError::Full`], counted |
//! | messages that the receiver holds | [`Config::receive_window`] | the sender waits |
//! | messages that arrive in fragments | the same, and one of [`Config::message_max`] more | [`DeadReason::Violation`] |
//! | packets that the receiver holds | [`Config::packet_buffer`] | discarded, counted |
//! | blocks after the oldest without acknowledgement | [`BLOCKS_MAX`] | wait |
//! | parts of a block | [`BLOCK_PARTS_MAX`] | [`Config::mtu`] is refused |
//! | bytes of blocks that arrive in parts | [`Config::receive_window`] | [`DeadReason::Violation`] |
//! | lost datagrams that may still arrive | [`LATE_MAX`] | the oldest ones' loss is final |
//! | lateness that counts as reordering | [`REORDERING_MAX_NS`], or a round trip | lost |
//! | datagrams in flight | [`IN_FLIGHT_MAX`], and the congestion window, [`CONGESTION_WINDOW_MAX`] | wait |
//! | reordering of datagrams | [`REPLAY_WINDOW`] | refused, counted; messages are sent again |
//! | ranges of an acknowledgement | [`ACK_RANGES_MAX`] | the oldest are left out |
//! | datagrams and bytes of a key | [`KEY_DATAGRAMS_MAX`], [`KEY_BYTES_MAX`] | the next key; after twice as many without the peer's confirmation [`DeadReason::KeyExhausted`] |
//! | forged datagrams | [`FORGED_MAX`] | [`DeadReason::Forgeries`] |

#![forbid(unsafe_code)]

mod acks;
mod config;
mod congestion;
mod counters;
mod datagram;
mod ended;
mod errors;
mod events;
mod flow_control;
mod frames;
mod keys;
mod life;
mod link;
mod mtu;
mod queue;
mod receiving;
mod recovery;
mod reordering;
mod replay;
mod rtt;
mod sending;
mod sent;
mod streams;

pub use acks::ACK_EVERY;
pub use config::{BUFFER_MAX, Config, LinkConfigError, MESSAGE_MAX, MTU_MIN};
pub use congestion::{CONGESTION_WINDOW_MAX, INITIAL_WINDOW_DATAGRAMS, LEAST_WINDOW_DATAGRAMS};
pub use counters::{Counters, RefusedDatagrams};
pub use datagram::{DATAGRAM_MAX, DATAGRAM_OVERHEAD, HEADER_LEN, VERSION, connection_of};
pub use ended::EndedLink;
pub use errors::{DatagramRefusal, PacketError, SendError};
pub use events::{DeadReason, LinkEvent};
pub use flow_control::{INITIAL_GRANT, PART_COST};
pub use frames::ACK_RANGES_MAX;
pub use keys::{
    FORGED_MAX, KEY_BYTES_MAX, KEY_DATAGRAMS_MAX, LinkKeys, PREVIOUS_KEY_NS, TAG_LEN, connection_id,
};
pub use link::{PeerLink, TRANSMIT_BYTES_MAX, TRANSMIT_DATAGRAMS_MAX, Transmit};
pub use mtu::{MTU_PROBES_MAX, MTU_RAISE_NS, MtuChange};
pub use receiving::StreamMessage;
pub use recovery::{IN_FLIGHT_MAX, PACKET_THRESHOLD, PROBE_DOUBLINGS_MAX};
pub use reordering::{LATE_MAX, REORDERING_MAX_NS};
pub use replay::REPLAY_WINDOW;
pub use rtt::GRANULARITY_NS;
pub use sending::{BLOCK_PARTS_MAX, BLOCKS_MAX};
pub use streams::ORDERED;
