//! Everything that can be seen of a chain from outside, to be compared with another one's (B4).

use chain::Chain;
use nf::record::Header;
use nf::stage::Stage;
use packet::{Packet, Pool, Side};

use super::Tape;

/// What happens between packets.
#[derive(Clone, Debug)]
pub enum Step {
    /// So many packets are handed over at once.
    Batch(usize),
    /// A command goes to a function, which may refuse it.
    Command(usize, &'static str),
}

/// Everything that a run leaves.
pub struct Witness {
    /// Packets: their numbers in the order of arrival, sides, and bytes.
    pub sent: Vec<(u64, Side, Vec<u8>)>,
    /// Alerts in order, and how many events there were with them; then what was counted, by chain and functions, what flows share, and flow
    /// reports, whose order is not told.
    told: Vec<String>,
    /// Records of flows that live. Where a function keeps streams or growing buffers, records name blocks that any other could be in the place of: of these
    /// there are the headers.
    flows: Vec<(u32, Vec<u8>)>,
}

impl Witness {
    /// Plays a tape through a chain, step by step; what is left of it in the end.
    pub fn of(chain: &mut Chain, tape: &Tape, steps: &[Step]) -> Witness {
        let mut pool = Pool::new(512);
        let (mut batch, mut out) = (Vec::new(), Vec::new());
        let (mut sent, mut told, mut reports, mut events) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut at = 0;
        for step in steps {
            match *step {
                Step::Command(function, command) => {
                    // Both chains refuse what one of them does.
                    let refused = chain.stage_mut(function).map(|stage| stage.control(command).is_err());
                    told.push(format!("{command}: {refused:?}"));
                }
                Step::Batch(len) => {
                    let part = at..(at + len).min(tape.len());
                    at = part.end;
                    batch.extend(
                        tape.arrivals(part).iter().filter_map(|arrival| tape.packet(arrival, &mut pool)),
                    );
                    chain.process(&mut batch, &mut out, &mut pool);
                }
            }
            for packet in out.drain(..) {
                sent.push(bytes(&packet));
                pool.give(packet);
            }
            let effects = chain.effects_mut();
            told.extend(effects.alerts.drain(..).map(|alert| format!("{alert:?}")));
            events += effects.events.iter().count();
            effects.events.clear();
            reports.extend(effects.reports.drain(..).map(|report| format!("{report:?}")));
        }
        reports.sort();
        told.push(format!("{events} events, {:?}", chain.counters()));
        told.extend(chain.stages().iter().map(|stage| shared(&**stage)));
        told.extend(reports);
        Witness { sent, told, flows: flows(chain) }
    }

    /// Packets that are other than those of another run, or in one of them only.
    pub fn other_packets(&self, other: &Witness) -> u64 {
        let differing = self.sent.iter().zip(&other.sent).filter(|(ours, theirs)| ours != theirs).count();
        (differing + self.sent.len().abs_diff(other.sent.len())) as u64
    }

    /// Whether all that is not packets is the same.
    pub fn same_state(&self, other: &Witness) -> bool {
        self.told == other.told && self.flows == other.flows
    }
}

fn bytes(packet: &Packet) -> (u64, Side, Vec<u8>) {
    let transit = &packet.meta().transit;
    (transit.sequence, transit.side, packet.data().to_vec())
}

fn flows(chain: &Chain) -> Vec<(u32, Vec<u8>)> {
    let descriptors = || chain.stages().iter().map(|stage| stage.descriptor());
    let has_blocks = descriptors().any(|descriptor| descriptor.stream || descriptor.buffers.is_some());
    let records = chain.records();
    let live = records.used().filter(|&record| records.header(record).has(Header::FLAG_LIVE));
    let bytes = live.map(|record| {
        let bytes = records.bytes(record).unwrap_or_default();
        let len = if has_blocks { size_of::<Header>() } else { bytes.len() };
        (record, bytes[..len.min(bytes.len())].to_vec())
    });
    bytes.collect()
}

fn shared(stage: &dyn Stage) -> String {
    let (counters, shared) = (stage.counters(), stage.shared());
    let sets: Vec<usize> = shared.sets.iter().map(|set| set.len()).collect();
    let pools: Vec<_> =
        shared.pools.iter().map(|pool| (pool.in_use(), pool.peak(), pool.exhausted())).collect();
    let meters: Vec<_> =
        shared.meters.iter().map(|meters| (meters.in_use(), meters.forgotten(), meters.refused())).collect();
    let contents: Vec<_> =
        shared.contents.iter().map(|contents| (contents.kept_bytes(), contents.displaced())).collect();
    let groups: Vec<_> = shared.groups.iter().map(|group| &group.values).collect();
    let counters = (counters.packets, counters.bytes, counters.drops);
    format!("{counters:?} {:?} {groups:?} {sets:?} {pools:?} {meters:?} {contents:?}", shared.counters)
}
