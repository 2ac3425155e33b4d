//! Sends copies of packets to a collector, in VXLAN or ERSPAN. See the README.
//!
//! The copies leave directly: no other NF sees them. `encap` builds their headers.

mod config;
mod encap;

use nf::{
    Access, Affinity, Context, Descriptor, Maturity, NetworkFunction, NodeSharing, PacketView, Plan, Scaling,
    Setup, Shared, Verdict,
};
use packet::Side;
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use config::{
    CollectorSide, Config, MTU_MIN_V4, MTU_MIN_V6, MirrorProtocol, MirroredDirection, SESSION_MAX, SNAP_MIN,
    VNI_MAX,
};
use encap::{Encapsulation, MirroredFrame};

/// Sends copies of packets to a collector.
pub struct TrafficMirror {
    encapsulation: Encapsulation,
    selection: Selection,
    /// The side that copies leave by.
    towards: Side,
    /// True for each side with a copy of its packets.
    copies: [bool; 2],
}

/// Packets to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    /// One in this many, at random; 1: all.
    Sample(u32),
    /// The first packets of each flow, both directions together.
    First(u32),
}

/// Per-flow state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Packets selected so far, if their number per flow is limited.
    selected: u32,
}

nf::counters! {
    /// Copies sent.
    copies: packets,
    /// Bytes of the copied frames, without the headers around.
    copied_bytes: bytes,
    /// Copies cut to `mtu`.
    copies_truncated: packets,
    /// Copies not sent for lack of a buffer.
    copies_lost: packets,
    /// Packets from `source` to `collector`, which are not copied.
    packets_of_mirrors: packets,
}

/// Index of the meter table in the descriptor. Its only entry is the session's next number.
const SESSION: usize = 0;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "mirror",
    aliases: &["span", "tap"],
    summary: "Sends copies of packets to a collector: VXLAN, ERSPAN type II or III; sampled or cut if wanted",
    maturity: Maturity::Preview,
    state_version: 1,
    payload: Access::Read,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    shared: &[Shared::Meters("session")],
    across_nodes: NodeSharing::OneMachine("a session numbers its copies in one sequence"),
    counters: Counters::DECLARED,
    consolidates: true,
    cycles_per_packet: 500,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for TrafficMirror {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<TrafficMirror, ConfigError> {
        let encapsulation = Encapsulation::new(&config)?;
        setup.meters(u32::from(encapsulation.has_numbers()));
        let towards = config.side.side();
        setup.owns(Some(towards), encapsulation.source(), encapsulation.source());
        Ok(TrafficMirror {
            encapsulation,
            selection: config.selection()?,
            towards,
            copies: match config.direction {
                MirroredDirection::Both => [true, true],
                MirroredDirection::FromInside => [true, false],
                MirroredDirection::FromOutside => [false, true],
            },
        })
    }

    #[inline]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if self.copies[context.side() as usize] && self.selects(packet, state, context) {
            self.copy(packet, context);
        }
        Verdict::Forward
    }

    fn predict(&self, state: &State, plan: &mut Plan<'_>) -> bool {
        let is_done = matches!(self.selection, Selection::First(count) if state.selected >= count);
        is_done || !self.copies[plan.side as usize]
    }
}

impl TrafficMirror {
    /// Returns whether to copy the packet.
    #[inline]
    fn selects(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> bool {
        match self.selection {
            Selection::Sample(every) => {
                packet.mark_per_packet();
                every == 1 || context.random().is_multiple_of(u64::from(every))
            }
            Selection::First(count) if state.selected < count => {
                packet.mark_one_off();
                state.selected += 1;
                true
            }
            Selection::First(_) => false,
        }
    }

    /// Sends a copy of the packet.
    #[inline(never)]
    fn copy(&self, packet: &PacketView<'_>, context: &mut Context<'_>) {
        // Otherwise a copy that passes here on its way to the collector would be copied endlessly.
        if self.encapsulation.is_of_mirror(packet.outermost()) {
            return context.count(COUNTERS.packets_of_mirrors, 1);
        }
        let number = if self.encapsulation.has_numbers() { next_number(context) } else { 0 };
        let frame = MirroredFrame::of(packet);
        let (headers, cut) = self.encapsulation.headers(&frame, packet, number);
        let bytes = frame.bytes.get(..headers.frame_len).unwrap_or(frame.bytes);
        match context.emit(packet, self.towards, &[headers.bytes(), frame.link(), bytes]) {
            Ok(()) => {
                context.count(COUNTERS.copies, 1);
                context.count(COUNTERS.copied_bytes, bytes.len() as u64);
                context.count(COUNTERS.copies_truncated, u64::from(cut));
            }
            Err(_) => context.count(COUNTERS.copies_lost, 1),
        }
    }
}

/// Takes the next number of the session.
fn next_number(context: &mut Context<'_>) -> u32 {
    let now_ns = context.now_ns();
    // The table has room for its only key.
    let Some([next, ..]) = context.meters(SESSION).of(&[0; 4], now_ns, u64::MAX) else { return 0 };
    let number = *next as u32;
    *next = next.wrapping_add(1);
    number
}
