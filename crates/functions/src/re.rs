//! Redundancy elimination (E31): bytes that two sites send each other repeatedly cross the link
//! between them once. See the README.
//!
//! Rabin fingerprints select the parts of payloads to remember. `shim` is the encoded form of a
//! payload, `outwards` encodes and `inwards` decodes, and `report` is the feedback from one end to
//! the other.

mod config;
mod inwards;
mod outline;
mod outwards;
mod report;
mod shim;

use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, NodeSharing, PacketView,
    PayloadCache, Scaling, Setup, Shared, Verdict,
};
use packet::{PacketClass, Side};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use config::{CACHE_MAX, CACHE_MIN, Config, NETWORKS_MAX, PROTOCOL_MIN, SAMPLE_MAX, SAMPLE_MIN};
pub use outline::PAYLOAD_MAX;
pub use report::{HELLO_INTERVAL_NS, MISSING_MAX, REPORT_INTERVAL_NS};
pub use shim::TOKENS_MAX;

pub use crate::rabin::{SAMPLES_MAX, WINDOW_MAX, WINDOW_MIN};

use crate::networks::IpNetwork;
use crate::rabin::{Rabin, Sample};
use outline::PacketOutline;
use shim::CacheReference;

/// Minimum bytes of a payload that is encoded or cached.
pub const PAYLOAD_MIN: usize = 64;

/// One end of a link.
pub struct Re {
    rabin: Rabin,
    local: Vec<IpNetwork>,
    remote: Vec<IpNetwork>,
    protocol: u8,
    /// The parameters that both ends must share, as in reports.
    parameters: [u8; 2],
    patience_ns: u64,
}

/// The state of a flow: its TCP segments to the other site. The state that the ends share belongs
/// to no flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// The sequence number after the last byte sent.
    end: u32,
    /// 1 if `end` is known.
    is_known: u32,
}

nf::counters! {
    /// Packets that got shorter.
    packets_encoded: packets,
    /// Regions replaced by tokens.
    regions: regions,
    /// Bytes saved.
    bytes_saved: bytes,
    /// Packets to the other site that went unchanged.
    packets_plain: packets,
    /// Packets of `packets_plain` that were repeated TCP segments or SYNs.
    retransmissions: packets,
    /// Packets of `packets_plain` sent while the other end was not heard.
    payloads_unconfirmed: packets,
    /// Packets restored.
    packets_decoded: packets,
    /// Bytes of restored regions.
    bytes_restored: bytes,
    /// Tokens that led nowhere.
    references_missed: tokens,
    /// Reports to the other end.
    reports_sent: reports,
    /// Reports from the other end.
    reports_received: reports,
    /// Payloads forgotten because of reports.
    payloads_evicted: payloads,
    /// Reports of an end with another `window` or `sample`.
    reports_invalid: reports,
    /// Packets that are not between the sites.
    packets_others: packets,
}

/// The content tables: sent to the other site, and received from it.
const SENT: usize = 0;
const RECEIVED: usize = 1;

/// The meter table.
const METERS: usize = 0;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "re",
    aliases: &["redundancy-elimination", "RedundancyElimination", "wan-optimizer"],
    summary: "One end of a link between two sites: replaces repeated bytes by references, restored at the other end",
    maturity: Maturity::Preview,
    state_version: 1,
    reads: &[Field::SourceAddress, Field::DestinationAddress, Field::Protocol, Field::TcpFlags],
    writes: &[Field::Encapsulation, Field::Protocol],
    payload: Access::Write,
    affinity: Affinity::Flow,
    // Both ends must cache the same payloads in the same order, so there is one instance.
    scaling: Scaling::Single,
    counters: Counters::DECLARED,
    shared: &[Shared::Meters("acquaintance"), Shared::PayloadCache("sent"), Shared::PayloadCache("received")],
    across_nodes: NodeSharing::OneMachine("both ends cache the same payloads in one order"),
    changes_flows: true,
    cycles_per_packet: 12_000,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Re {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Re, ConfigError> {
        let [local, remote] = config.check()?;
        setup.meters(report::METERS);
        // At most 4 GiB, on a 64-bit machine. Half as many fingerprints again as expected, because
        // they are unevenly spread.
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
        let outline = PacketOutline::of(packet.outermost()).filter(|outline| {
            let is_in = |networks: &[IpNetwork], addr| networks.iter().any(|network| network.contains(addr));
            packet.meta().class != PacketClass::NotIp
                && is_in(from, outline.source)
                && is_in(to, outline.destination)
        });
        let Some(outline) = outline else {
            context.count(COUNTERS.packets_others, 1);
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

/// Scratch memory for a packet.
struct Scratch {
    samples: Vec<Sample>,
    tokens: Vec<CacheReference>,
    missing: Vec<u64>,
    payload: Vec<u8>,
}

impl Default for Scratch {
    /// Allocates the maximum that is ever needed.
    fn default() -> Scratch {
        Scratch {
            samples: Vec::with_capacity(SAMPLES_MAX),
            tokens: Vec::with_capacity(TOKENS_MAX),
            missing: Vec::with_capacity(MISSING_MAX),
            payload: Vec::with_capacity(PAYLOAD_MAX),
        }
    }
}

/// Caches a payload with its selected fingerprints, as the other end does.
#[inline]
fn keep(contents: &mut PayloadCache, payload: &[u8], samples: &[Sample]) {
    let Some(kept) = contents.keep(payload) else { return };
    for sample in samples {
        contents.note(sample.fingerprint, kept, sample.at);
    }
}
