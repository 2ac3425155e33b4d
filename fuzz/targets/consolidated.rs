//! Any packets, in any batches, with commands in between, through graphs of NFs with a fast path.
//! The fast path has the output and the state of the slow path (B4), also with commuting state
//! functions in another order (B18).
//!
//! Input: a byte for each of up to four NFs, ended by one that names none; a byte of options; then
//! packets as for the target `graph`. The upper bits of the side's byte mark the end of a batch and
//! a following command.

#![no_main]

use graph::{Beside, Options, Piece, SideBySide, WhenFull};
use libfuzzer_sys::fuzz_target;
use nf::stage::Stage;
use nf::{Registry, Setup};
use packet::Side;

#[path = "../../crates/graph/tests/support"]
#[allow(dead_code)]
mod support {
    pub mod bench;
    pub mod packets;
}

use support::bench::{Arrival, Bench, Outcome};

const FLOWS: u32 = 32;
const FUNCTIONS_MAX: usize = 4;
const PACKETS_MAX: usize = 100;
const START_NS: u64 = 1_700_000_000_000_000_000;

/// NFs, their configurations and commands. Pools and sets are small: they are set up for every
/// input, and must run out.
const FUNCTIONS: [(&str, &str, &[&str]); 11] = [
    (
        "nat",
        r#"{"external": ["198.51.100.7"], "ports": "1-1024"}"#,
        &["drain 198.51.100.7", "resume 198.51.100.7"],
    ),
    (
        "nat",
        r#"{"external": ["198.51.100.1-198.51.100.2"], "ports": "40-60", "filtering": "address_and_port_dependent"}"#,
        &[],
    ),
    (
        "lb",
        r#"{"services": [{"name": "web", "vip": "198.18.0.1", "servers": [
            {"name": "one", "address": "198.51.100.11"}, {"name": "two", "address": "198.51.100.12", "weight": 2}]}]}"#,
        &["server one down", "server one up", "server two drain", "server two up"],
    ),
    (
        "firewall",
        r#"{"rules": "allow out\nallow in udp"}"#,
        &["rule 1 disable", "rule 1 enable", "default allow"],
    ),
    ("monitor", r#"{"active_timeout": "20ms"}"#, &[]),
    ("policer", r#"{"rate": "20kbps", "burst": "2KB"}"#, &["rate 100kbps"]),
    ("whitelist", r#"{"protect": "inside", "capacity": 8}"#, &[]),
    ("dos", r#"{"protect": "outside", "packets": 5, "syns": 1, "connections": 2}"#, &[]),
    ("dos", r#"{"flow_rate": "3pps", "flow_burst": 2, "alert_every": 0}"#, &[]),
    (
        "tunnel",
        r#"{"protocol": "gre", "local": "192.0.2.5", "remote": "192.0.2.4", "mtu": 1350, "others": "pass"}"#,
        &[],
    ),
    (
        "tunnel",
        r#"{"protocol": "geneve", "vni": 7, "local": "192.0.2.5", "remote": "192.0.2.4",
            "local_mac": "02:00:00:00:00:01", "remote_mac": "02:00:00:00:00:02"}"#,
        &[],
    ),
];

/// A packet, the end of its batch, and the command that follows: the NF, and its command.
struct Step {
    arrival: Arrival,
    ends_batch: bool,
    command: Option<(usize, usize)>,
}

fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let mut functions = vec![];
    while let [byte, rest @ ..] = data {
        data = rest;
        let index = usize::from(*byte);
        if index >= FUNCTIONS.len() || functions.len() == FUNCTIONS_MAX {
            break;
        }
        functions.push(index);
    }
    let [options, rest @ ..] = data else { return };
    if functions.is_empty() {
        return;
    }
    let steps = steps(rest);
    let options = graph_options(*options);
    let walked = run(&functions, Options { consolidate: false, ..options }, false, &steps);
    for beside in [false, true] {
        let followed = run(&functions, Options { consolidate: true, ..options }, beside, &steps);
        assert!(followed == walked, "{functions:?}, beside: {beside}\n{followed:#?}\n{walked:#?}");
    }
});

fn graph_options(bits: u8) -> Options {
    Options {
        flows_max: if bits & 1 != 0 { 3 } else { FLOWS },
        when_full: if bits & 2 != 0 { WhenFull::RefuseNew } else { WhenFull::EvictOldest },
        inner: bits & 4 != 0,
        ..Options::default()
    }
}

/// Runs the other side first.
struct Swapped;

impl Beside for Swapped {
    fn run(&mut self, here: &mut Piece<'_>, there: &mut Piece<'_>) {
        there();
        here();
    }
}

fn run(functions: &[usize], options: Options, beside: bool, steps: &[Step]) -> Outcome {
    let registry: Registry<serde_json::Value> = functions::registry();
    let stage = |&index: &usize| -> Box<dyn Stage> {
        let (name, config, _) = FUNCTIONS[index];
        let config = serde_json::from_str(config).unwrap();
        let mut setup = Setup::new(7, FLOWS);
        setup.inner = true; // Tunnels need it, even where they are never reached.
        registry.find(name).unwrap().make(&config, setup).unwrap()
    };
    let mut bench = Bench::new(functions.iter().map(stage).collect(), options);
    if beside {
        let how = SideBySide { runner: Box::new(Swapped), clock_ns: || 0, group_ns: 0, packet_ns: 0 };
        bench.graph.run_side_by_side(how).unwrap();
    }
    let mut batch = vec![];
    for step in steps {
        batch.push(step.arrival.clone());
        if step.ends_batch || step.command.is_some() {
            bench.batch(&std::mem::take(&mut batch));
        }
        let Some((at, which)) = step.command else { continue };
        let at = at % functions.len();
        let commands = FUNCTIONS[functions[at]].2;
        if !commands.is_empty() {
            let _ = bench.graph.stage_mut(at).unwrap().control(commands[which % commands.len()]);
        }
    }
    bench.batch(&batch);
    bench.outcome()
}

/// Limited by the number of buffers of the bench.
fn steps(mut bytes: &[u8]) -> Vec<Step> {
    let (mut at_ns, mut steps) = (START_NS, vec![]);
    while let [high, low, flags, len, rest @ ..] = bytes {
        let (network, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        if network.is_empty() || steps.len() == PACKETS_MAX {
            break;
        }
        // The step's top bits are its scale: nanoseconds to minutes, or backwards.
        let step = u64::from(*low) << (u32::from(*high & 15) * 2);
        at_ns = if high & 0x80 != 0 { at_ns.saturating_sub(step) } else { at_ns.saturating_add(step) };
        let side = if flags & 1 == 0 { Side::Inside } else { Side::Outside };
        let arrival = Arrival { at_ns, side, network: network.to_vec() };
        let which = usize::from(flags >> 4);
        steps.push(Step {
            arrival,
            ends_batch: flags & 2 != 0,
            command: (flags & 12 == 12).then_some((which & 3, which >> 2)),
        });
        bytes = rest;
    }
    steps
}
