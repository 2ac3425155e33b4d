//! Y6: what comes of a consolidated chain is what comes of the plain one. Compared, not timed.

use io::traffic::{Attacks, FlowLength, Profile, Protocols, Rate};
use packet::split_mix;

use super::rounds::{Rounds, point};
use super::{Experiment, Measured};
use crate::chart::{Axis, Chart, Mark, Series};
use crate::paths::{Functions, Path, Player, Shortcut, Step, Tape, Witness, differing};
use crate::runs::{Lab, Length};
use crate::table::{Kind, Metric, Unit};
use crate::verdict::{Claim, Finding};

/// What is asked of consolidation (B4).
pub const Y6: Experiment = Experiment {
    id: "Y6",
    title: "Consolidated is the chain",
    published: "B4: the result equals the original chain's (no figures)",
    workload: "chains of 1 to 6 random functions, conversations by TCP, UDP and ICMP with resets, fragments, IPv6 and malformed packets, in batches of \
               1 to 70 packets of a dozen flows, with commands in between; each played through the plain chain, too",
    matches: &[Claim {
        text: "no packet differs, and no alert, report, counter, shared state, or record of a flow",
        test: |f| {
            let [packets, states] =
                ["packets that differ", "runs whose state differs"].map(|metric| f.get(OURS, metric));
            let (packets, states) = (packets?, states?);
            let all = f.get(OURS, "packets")?.values.iter().sum::<f64>();
            let why = format!(
                "{} packets, {} states of runs differ, of {all} packets",
                packets.median, states.median
            );
            Ok(Finding::new(packets.is_at_most(0.0) && states.is_at_most(0.0), why))
        },
    }],
    beats: &[],
    real: &[],
    measure,
};

const METRICS: [Metric; 5] = [
    Metric { name: "runs", unit: Unit::Count },
    Metric { name: "packets", unit: Unit::Count },
    Metric { name: "followed", unit: Unit::Share },
    Metric { name: "packets that differ", unit: Unit::Count },
    Metric { name: "runs whose state differs", unit: Unit::Count },
];

const OURS: &str = "consolidated";
const SYNTHESIS: &str = "synthesis";

/// Functions: what a policy says of them, and commands.
type Function = (&'static str, &'static str, &'static [&'static str]);

const FUNCTIONS: &[Function] = &[
    ("NAT", "external: [198.51.100.7]", &["drain 198.51.100.7", "resume 198.51.100.7"]),
    ("NAT", "external: [198.51.100.1-198.51.100.2], filtering: address-and-port-dependent", &[]),
    (
        "LB",
        "services: [ { name: web, vip: 198.18.0.1, servers: [{ name: one, address: 172.16.0.1 }, { name: two, address: 172.16.0.2, weight: 2 }] } ]",
        &["server one down", "server one up", "server two drain", "weight two 1", "server two up"],
    ),
    (
        "LB",
        "services: [ { name: dns, vip: 198.18.0.1, protocol: udp, servers: [{ name: far, address: 172.16.1.1 }, { name: near, address: 172.16.1.2 }] } ]",
        &["server far down", "server far up"],
    ),
    (
        "Firewall",
        "rules: \"allow out\\nallow in udp\"",
        &["rule 1 disable", "rule 1 enable", "default allow"],
    ),
    (
        "Firewall",
        "rules: \"deny out tcp to any port 53\\nallow\", tcp: strict",
        &["rule 1 disable", "rule 1 enable"],
    ),
    ("Firewall", "rules: \"allow\", stateful: false, default: reject", &["rule 1 disable", "rule 1 enable"]),
    ("Monitor", "active_timeout: 20ms", &[]),
    ("Monitor", "sample: 2", &[]),
    ("Policer", "rate: 20kbps, yellow: { remark: af12 }, burst: 2KB, excess_burst: 2KB", &["rate 100kbps"]),
    ("Whitelist", "protect: inside", &[]),
    ("HTTP", "methods: [GET, POST], anomalies: alert", &[]),
];

/// Packets of a run.
const PACKETS: u64 = 400;

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut measured = Rounds::default();
    let runs = match lab.length() {
        Length::Smoke => 5,
        Length::Quick => 100,
        Length::Full => 150,
    };
    for seed in 1..=u64::from(lab.seeds()) {
        match compare(runs, seed) {
            Ok([ours, synthesis]) => {
                measured.add(OURS, Kind::Faithful, &ours);
                measured.add(SYNTHESIS, Kind::Baseline, &synthesis);
            }
            Err(why) => measured.fail(OURS, Kind::Faithful, why),
        }
    }
    let table = measured.table("what is other than with the plain chain", &METRICS);
    let series = |metric: &str| {
        let rows = (0..).zip([OURS, SYNTHESIS]);
        let points = rows.filter_map(|(place, row)| point(&table, row, metric, f64::from(place)));
        Series::new(metric, Mark::Bars, points)
    };
    let chart = Chart {
        title: "what differs from the plain chain".to_owned(),
        x: Axis::names("way", [OURS, SYNTHESIS]),
        y: Axis::linear("packets"),
        series: vec![series("packets that differ")],
    };
    Measured { tables: vec![table], charts: vec![chart], notes: notes() }
}

/// A chain, what is played to it, and when.
struct Run {
    functions: Functions,
    tape: Tape,
    steps: Vec<Step>,
}

impl Run {
    fn new(seed: &mut u64) -> Result<Run, String> {
        let mut draw = |below: usize| split_mix(seed) as usize % below;
        let picked: Vec<&Function> = (0..1 + draw(6)).map(|_| &FUNCTIONS[draw(FUNCTIONS.len())]).collect();
        // Now and then so few that flows have to go for others.
        let flows_max = if draw(4) == 0 { 5 } else { 512 };
        let functions = picked
            .iter()
            .fold(Functions::new(flows_max), |functions, (name, config, _)| functions.with(name, *config));
        let profile = Profile {
            packets: Some(PACKETS),
            flows: 12,
            flow_length: FlowLength::Geometric(8.0),
            protocols: Protocols { tcp: 0.6, udp: 0.3, icmp: 0.05, fragments: 0.05 },
            ipv6_share: 0.1,
            reset_share: 0.3,
            rate: Rate::PacketsPerSecond(400.0),
            attacks: Attacks { malformed: 0.02, ..Attacks::default() },
            ..Tape::talk(draw(usize::MAX) as u64)
        };
        let tape = Tape::generated(&profile)?.translated(&mut functions.chain(false)?);
        let (mut steps, mut at) = (Vec::new(), 0);
        while at < tape.len() {
            let len = 1 + draw(70);
            steps.push(Step::Batch(len));
            at += len;
            let function = draw(picked.len());
            let commands = picked[function].2;
            if draw(4) == 0 && !commands.is_empty() {
                steps.push(Step::Command(function, commands[draw(commands.len())]));
            }
        }
        Ok(Run { functions, tape, steps })
    }
}

/// Plays so many runs through both chains, and through a synthesis, which knows of no events: the values of both rows.
fn compare(runs: u32, seed: u64) -> Result<[[f64; 5]; 2], String> {
    let mut seed = seed << 32;
    let mut rows = [[f64::from(runs), 0.0, 0.0, 0.0, 0.0], [f64::from(runs), 0.0, 0.0, 0.0, f64::NAN]];
    for _ in 0..runs {
        let Run { functions, tape, steps } = Run::new(&mut seed)?;
        let plain = Witness::of(&mut *functions.chain(false)?, &tape, &steps);
        let mut chain = functions.chain(true)?;
        let consolidated = Witness::of(&mut chain, &tape, &steps);
        let mut synthesis = Shortcut::synthesis(functions.chain(false)?);
        let differ =
            [consolidated.other_packets(&plain), other_packets(&mut synthesis, &tape, &steps, &plain)];
        for ((row, followed), differ) in
            rows.iter_mut().zip([chain.followed(), synthesis.followed()]).zip(differ)
        {
            row[1] += tape.len() as f64;
            row[2] += followed as f64;
            row[3] += differ as f64;
        }
        rows[0][4] += f64::from(u8::from(!consolidated.same_state(&plain)));
    }
    rows.iter_mut().for_each(|row| row[2] /= row[1]);
    Ok(rows)
}

/// Packets in which another way differs from the plain chain.
fn other_packets(path: &mut dyn Path, tape: &Tape, steps: &[Step], plain: &Witness) -> u64 {
    let mut sent = Vec::new();
    let mut at = 0;
    for step in steps {
        match *step {
            // What a function refuses it refuses in the plain chain, too.
            Step::Command(function, command) => drop(path.command(function, command)),
            Step::Batch(len) => {
                let mut player = Player::new(len);
                sent.extend(player.sent(path, tape, at..(at + len).min(tape.len())).into_iter().flatten());
                at += len;
            }
        }
    }
    let expected = plain.sent.iter().map(|(_, side, bytes)| (*side, bytes.clone())).collect();
    differing(&[sent], &[expected])
}

fn notes() -> Vec<String> {
    [
        "nothing is timed: the same seeds give the same figures, but for batches nothing depends on the machine",
        "functions: NAT, load balancer, firewall (with and without state, strict, rejecting), monitor, policer, whitelist, HTTP; commands take servers, rules and addresses out and \
         put them back. Packets from the outside answer what left the plain chain; flows end by FIN and RST, and, where only 5 have room, for others",
        "compared: packets, their order, sides and bytes; alerts in order; numbers of events; all counters, sets, pools and meters; flow reports; and the bytes of all records of \
         flows, or their headers where functions keep growing buffers",
        "synthesis: a table of header actions, learned as packets come, that knows of no events and no state: the comparison finds what it does otherwise",
        "identifiers of flows cannot collide here: a rule is its flow's record's own",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_differs_and_a_table_without_events_does() {
        let [ours, synthesis] = compare(30, 7).unwrap();
        assert_eq!((ours[3], ours[4]), (0.0, 0.0));
        assert!(ours[2] > 0.1, "{} took the fast path", ours[2]);
        assert!(synthesis[3] > 0.0, "the comparison finds differences");
    }
}
