//! Ways for packets through the same functions, to be measured one against another: a chain that
//! consolidates or does not, each function on its own, and what others put in the place of a chain.

mod assemble;
mod functions;
mod player;
mod series;
mod shortcut;

pub use conformance::Tape;
use graph::Graph;
use packet::{Packet, PacketPool};

pub use assemble::{Functions, compiled};
pub use functions::Fused;
pub use player::{Player, Sent, differing};
pub use series::Series;
pub use shortcut::Shortcut;

/// A way for packets through functions.
pub trait Path {
    /// Processes packets in order. Adds packets that leave to `out`, with their egress side in
    /// their metadata.
    fn process(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut PacketPool);

    /// Discards the functions' output other than packets.
    fn clear(&mut self) {}

    /// All flows end, and are forgotten.
    fn end_flows(&mut self, _pool: &mut PacketPool) {}

    /// An operator's command to a function, counted from the inside.
    ///
    /// # Errors
    /// If the function does not understand it.
    fn command(&mut self, _function: usize, command: &str) -> Result<(), String> {
        Err(format!("nobody is there for `{command}`"))
    }

    /// Packets that did not have to walk through the functions.
    fn followed(&self) -> u64 {
        0
    }
}

impl Path for Box<Graph> {
    #[inline]
    fn process(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        Graph::process(self, batch, out, pool);
    }

    fn clear(&mut self) {
        let effects = self.effects_mut();
        effects.reports.clear();
        effects.alerts.clear();
        effects.events.clear();
    }

    fn end_flows(&mut self, pool: &mut PacketPool) {
        while !self.finish(pool) {
            self.clear();
        }
        self.clear();
    }

    fn command(&mut self, function: usize, command: &str) -> Result<(), String> {
        let stage = self.stage_mut(function).ok_or_else(|| format!("there is no function {function}"))?;
        stage.control(command).map_err(|error| error.to_string())
    }

    fn followed(&self) -> u64 {
        self.report().fast_path().packets
    }
}
