//! Paths in series.

use packet::{Packet, PacketPool, Side};

use super::Path;

/// Paths in series, the first one inside: each sees packets as the previous one left them, without
/// its metadata.
///
/// Packets that a path turns back or generates leave at once, so such paths must be alone.
pub struct Series {
    paths: Vec<Box<dyn Path>>,
    /// Packets before and after one of them.
    before: Vec<Packet>,
    behind: Vec<Packet>,
}

impl Series {
    /// These, from the inside to the outside.
    pub fn new(paths: Vec<Box<dyn Path>>) -> Series {
        Series { paths, before: Vec::new(), behind: Vec::new() }
    }

    /// Takes the packets in `before`, which all entered by this side, through.
    fn pass(&mut self, side: Side, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let count = self.paths.len();
        for step in 0..count {
            let at = if side == Side::Inside { step } else { count - 1 - step };
            self.paths[at].process(&mut self.before, &mut self.behind, pool);
            if step + 1 == count {
                out.append(&mut self.behind);
                return;
            }
            for mut packet in self.behind.drain(..) {
                let leaves_by = &mut packet.meta_mut().transit.side;
                if *leaves_by == side {
                    out.push(packet);
                } else {
                    *leaves_by = side;
                    self.before.push(packet);
                }
            }
        }
    }
}

impl Path for Series {
    fn process(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        while let Some(first) = batch.first() {
            let side = first.meta().transit.side;
            let len = batch.iter().take_while(|packet| packet.meta().transit.side == side).count();
            self.before.extend(batch.drain(..len));
            self.pass(side, out, pool);
        }
    }

    fn clear(&mut self) {
        self.paths.iter_mut().for_each(|path| path.clear());
    }

    fn end_flows(&mut self, pool: &mut PacketPool) {
        self.paths.iter_mut().for_each(|path| path.end_flows(pool));
    }

    fn command(&mut self, function: usize, command: &str) -> Result<(), String> {
        let path = self.paths.get_mut(function).ok_or_else(|| format!("there is no function {function}"))?;
        path.command(0, command)
    }

    fn followed(&self) -> u64 {
        self.paths.iter().map(|path| path.followed()).sum()
    }
}
