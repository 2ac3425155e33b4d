//! Clamps the maximum segment size that TCP hosts announce, so that no segment is larger than the
//! path takes. See the README.

mod config;
#[cfg(test)]
mod tests;

use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, PacketView, Plan, Scaling,
    Setup, Verdict,
};
use packet::PacketClass;
use values::ConfigError;

pub use config::{Config, MTU_MIN, PathMtu, SEGMENT_MIN};

/// Clamps the maximum segment size.
pub struct MssClamp {
    /// Limits on packets of each side, for IPv4 and IPv6.
    limits: [[u16; 2]; 2],
}

nf::counters! {
    /// SYNs and SYN-ACKs, repeated ones included.
    syns: packets,
    /// SYNs with a lowered maximum segment size.
    syns_lowered: packets,
    /// SYNs without the option.
    syns_without_mss: packets,
    /// SYNs with a malformed option.
    syns_malformed: packets,
}

const SYN: u8 = 2;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "tcp-mss",
    aliases: &["TcpMss", "mss-clamp"],
    summary: "Clamps the maximum segment size of TCP connections to a limit or to the path's MTU",
    maturity: Maturity::Preview,
    state_version: 1,
    reads: &[Field::TcpFlags],
    payload: Access::Ignore,
    affinity: Affinity::None,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    consolidates: true,
    cycles_per_packet: 10,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for MssClamp {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = ();

    fn new(config: Config, _: &mut Setup) -> Result<MssClamp, ConfigError> {
        Ok(MssClamp { limits: config.limits()? })
    }

    #[inline(always)]
    fn process(&self, packet: &mut PacketView<'_>, (): &mut (), context: &mut Context<'_>) -> Verdict {
        if packet.meta().tcp_flags & SYN != 0 {
            self.clamp(packet, context);
        }
        Verdict::Forward
    }

    fn predict(&self, (): &(), _: &mut Plan<'_>) -> bool {
        true
    }

    /// Returns true: rules apply to no SYN, and nothing else is touched.
    fn predicts_uniformly(&self) -> bool {
        true
    }
}

impl MssClamp {
    #[inline(never)]
    fn clamp(&self, packet: &mut PacketView<'_>, context: &mut Context<'_>) {
        if !packet.meta().has_transport() || packet.meta().class == PacketClass::IcmpError {
            return;
        }
        let is_v6 = packet.meta().version == 6;
        let options = packet.clamp_mss(self.limits[context.side() as usize][usize::from(is_v6)]);
        context.count(COUNTERS.syns, 1);
        context.count(COUNTERS.syns_lowered, u64::from(options.lowered));
        context.count(COUNTERS.syns_without_mss, u64::from(!options.found && !options.malformed));
        context.count(COUNTERS.syns_malformed, u64::from(options.malformed));
    }
}
