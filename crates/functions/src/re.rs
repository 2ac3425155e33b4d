//! Redundancy elimination (E31): what two sites send to each other again and again goes over the
//! link between them once. See the README.
//!
//! Rabin fingerprints choose which parts of payloads are remembered, `shim` is what stands for a
//! payload that is not sent whole, `outwards` and `inwards` make and undo it, and `report` is what
//! one end tells the other.

mod config;
mod inwards;
mod outline;
mod outwards;
mod report;
mod shim;

use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, PacketView, PayloadCache,
    Scaling, Setup, Shared, Verdict,
};
use packet::{PacketClass, Side};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use config::{CACHE_MAX, CACHE_MIN, Config, NETWORKS_MAX, PROTOCOL_MIN, SAMPLE_MAX, SAMPLE_MIN};
pub use outline::PAYLOAD_MAX;
pub use report::{HELLO_INTERVAL_NS, MISSING_MAX, TELL_INTERVAL_NS};
pub use shim::TOKENS_MAX;

pub use crate::rabin::{SAMPLES_MAX, WINDOW_MAX, WINDOW_MIN};

use crate::networks::IpNetwork;
use crate::rabin::{Rabin, Sample};
use outline::Outline;
use shim::Token;

/// Bytes of the shortest payload that takes part.
pub const PAYLOAD_MIN: usize = 64;

/// One end of a link.
pub struct Re {
    rabin: Rabin,
    local: Vec<IpNetwork>,
    remote: Vec<IpNetwork>,
    protocol: u8,
    /// What both ends must have in common, as reports tell it.
    parameters: [u8; 2],
    patience_ns: u64,
}

/// What is remembered of each flow, of its TCP segments towards the other site. What the ends have
/// in common is not here: it belongs to no flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// The sequence number behind all that was sent.
    end: u32,
    /// 1: there is one.
    is_known: u32,
}

/// Numbers of the counters in the descriptor.
mod counter {
    pub const ENCODED: usize = 0;
    pub const REGIONS: usize = 1;
    pub const SAVED: usize = 2;
    pub const PLAIN: usize = 3;
    pub const SENT_AGAIN: usize = 4;
    pub const UNHEARD: usize = 5;
    pub const DECODED: usize = 6;
    pub const RESTORED: usize = 7;
    pub const MISSED: usize = 8;
    pub const REPORTS_SENT: usize = 9;
    pub const REPORTS_HEARD: usize = 10;
    pub const FORGOTTEN: usize = 11;
    pub const STRANGE: usize = 12;
    pub const OTHERS: usize = 13;
}

/// The tables of contents: what went to the other site, and what came from there.
const SENT: usize = 0;
const RECEIVED: usize = 1;

/// The table of meters.
const METERS: usize = 0;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "re",
    aliases: &["redundancy-elimination", "RedundancyElimination", "wan-optimizer"],
    summary: "One end of a link between two sites: what was sent before is replaced by references to it, and restored at the other end",
    maturity: Maturity::Preview,
    state_version: 1,
    attributes: &[],
    reads: &[Field::SourceAddress, Field::DestinationAddress, Field::Protocol, Field::TcpFlags],
    writes: &[Field::Encapsulation, Field::Protocol],
    payload: Access::Write,
    stream: false,
    affinity: Affinity::Flow,
    // Both ends keep the same payloads: one of each, in the order in which they come.
    scaling: Scaling::Single,
    shared: &[
        Shared::Counter("packets-encoded"),
        Shared::Counter("regions"),
        Shared::Counter("bytes-saved"),
        Shared::Counter("packets-plain"),
        Shared::Counter("sent-again"),
        Shared::Counter("unheard"),
        Shared::Counter("packets-decoded"),
        Shared::Counter("bytes-restored"),
        Shared::Counter("references-missed"),
        Shared::Counter("reports-sent"),
        Shared::Counter("reports-heard"),
        Shared::Counter("payloads-forgotten"),
        Shared::Counter("reports-strange"),
        Shared::Counter("packets_others"),
        Shared::Meters("acquaintance"),
        Shared::PayloadCache("sent"),
        Shared::PayloadCache("received"),
    ],
    map: None,
    buffers: None,
    keeps_flows: false,
    recomputes: false,
    changes_flows: true,
    consolidates: false,
    cycles_per_packet: 12_000,
};

impl NetworkFunction for Re {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Re, ConfigError> {
        let [local, remote] = config.check()?;
        setup.meters(report::METERS);
        // At most 4 GiB, on a machine of 64 bits. Half as many fingerprints again as are expected:
        // they come unevenly.
        let bytes = config.cache.0 as usize;
        let fingerprints = bytes / usize::from(config.sample) * 3 / 2;
        setup.payload_cache(bytes, fingerprints);
        setup.payload_cache(bytes, fingerprints);
        Ok(Re {
            rabin: Rabin::new(config.window.into(), config.sample.into()),
            local,
            remote,
            protocol: config.protocol,
            parameters: [config.window, config.sample.trailing_zeros() as u8],
            patience_ns: config.patience.0,
        })
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let is_inside = context.side() == Side::Inside;
        let (from, to) = if is_inside { (&self.local, &self.remote) } else { (&self.remote, &self.local) };
        let outline = Outline::of(packet.outermost()).filter(|outline| {
            let is_in = |networks: &[IpNetwork], addr| networks.iter().any(|network| network.contains(addr));
            packet.meta().class != PacketClass::NotIp
                && is_in(from, outline.source)
                && is_in(to, outline.destination)
        });
        let Some(outline) = outline else {
            context.count(counter::OTHERS, 1);
            return Verdict::Forward;
        };
        let mut scratch: Box<Scratch> = context.take_scratch();
        let done = if is_inside {
            self.send(&outline, packet, &mut scratch, state, context)
        } else {
            self.receive(&outline, packet, &mut scratch, context)
        };
        context.give_scratch(scratch);
        done.map_or_else(Verdict::Drop, |()| Verdict::Forward)
    }
}

/// What a packet is worked on with.
struct Scratch {
    samples: Vec<Sample>,
    tokens: Vec<Token>,
    missing: Vec<u64>,
    payload: Vec<u8>,
}

impl Default for Scratch {
    /// With all the room that is ever needed.
    fn default() -> Scratch {
        Scratch {
            samples: Vec::with_capacity(SAMPLES_MAX),
            tokens: Vec::with_capacity(TOKENS_MAX),
            missing: Vec::with_capacity(MISSING_MAX),
            payload: Vec::with_capacity(PAYLOAD_MAX),
        }
    }
}

/// Keeps a payload with the fingerprints that were chosen of it, as the other end does.
#[inline]
fn keep(contents: &mut PayloadCache, payload: &[u8], samples: &[Sample]) {
    let Some(kept) = contents.keep(payload) else { return };
    for sample in samples {
        contents.note(sample.fingerprint, kept, sample.at);
    }
}
