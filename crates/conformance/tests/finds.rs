//! Correct functions pass, and faulty ones are found.

use conformance::{CompareError, CompareOptions, FunctionSpec, Tape, built_in, compare};
use graph::{Graph, Options};
use io::traffic::FlowLength;
use nf::{
    Access, Affinity, Context, Descriptor, Maturity, NetworkFunction, PacketView, Scaling, Setup, Verdict,
};
use packet::{Direction, DropReason, PacketPool, Side};
use serde::Deserialize;
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Drops all packets of a flow after the first n, and does not declare that it must see every
/// packet for that.
struct Forgetful {
    packets_max: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    packets_max: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Seen(u32);

impl NetworkFunction for Forgetful {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "forgetful",
        summary: "Counts packets only where it sees them.",
        maturity: Maturity::Experimental,
        state_version: 1,
        payload: Access::Ignore,
        affinity: Affinity::Flow,
        scaling: Scaling::Servers,
        consolidates: true,
        cycles_per_packet: 10,
        ..Descriptor::DEFAULT
    };
    type Config = Config;
    type State = Seen;

    fn new(config: Config, setup: &mut Setup) -> Result<Forgetful, ConfigError> {
        if config.packets_max > setup.flows_max {
            return Err(ConfigError::new("more packets than flows"));
        }
        Ok(Forgetful { packets_max: config.packets_max })
    }

    fn process(&self, _: &mut PacketView<'_>, seen: &mut Seen, _: &mut Context<'_>) -> Verdict {
        seen.0 += 1;
        if seen.0 > self.packets_max { Verdict::Drop(DropReason::Function) } else { Verdict::Forward }
    }
}

fn registry() -> nf::Registry<serde_json::Value> {
    let mut registry = functions::registry();
    registry.add(nf::loader!(Forgetful), "");
    registry
}

#[test]
fn the_functions_that_there_are_are_right() {
    let mut heard = 0;
    let options = CompareOptions { packets: 20_000, ..CompareOptions::default() };
    let totals = compare(&registry(), &[], &options, |totals| heard = totals.packets).unwrap();
    assert!(totals.packets >= 20_000 && heard == totals.packets, "{totals:?}");
    assert!(totals.followed > 500 && totals.commands > 20 && totals.moves > 20, "{totals:?}");
    assert_eq!(
        compare(&registry(), &[], &options, |_| {}).unwrap(),
        totals,
        "the same seed, the same trials"
    );
}

/// Frames that are not IP pass only if all functions agree, also copies that no packet visits.
#[test]
fn commands_reach_copies_beside() {
    let is_it = |subject: &FunctionSpec| subject.name == "firewall" && !subject.commands.is_empty();
    let firewalls: Vec<_> = built_in().into_iter().filter(is_it).collect();
    let options = CompareOptions { packets: 150_000, seed: 2, neighbours: Vec::new() };
    compare(&registry(), &firewalls, &options, |_| {}).unwrap();
}

/// Hosts send to each other by the addresses that a NAT gave them, and are answered.
#[test]
fn traffic_has_hairpins() {
    let nat = || {
        let config = serde_json::from_str(r#"{ "external": ["203.0.113.1"] }"#).unwrap();
        let stage = registry().find("nat").unwrap().make(&config, Setup::new(7, 256)).unwrap();
        Graph::new(vec![stage], Options::default()).unwrap()
    };
    let talk = Tape::conversations(2_000, 12, FlowLength::Fixed(20), 0.0).unwrap();
    assert_eq!(hairpins(&talk.translated(&mut nat()), &mut nat()), [0, 0]);
    let [turned, replies] = hairpins(&talk.translated_with_hairpins(&mut nat(), 7), &mut nat());
    assert!(turned > 100 && replies > 20, "{turned} {replies}");
}

/// Counts packets from inside that a graph turns back, and of these, replies.
fn hairpins(tape: &Tape, graph: &mut Graph) -> [usize; 2] {
    let (mut pool, mut out, mut counts) = (PacketPool::new(8), Vec::new(), [0; 2]);
    for arrival in tape.arrivals(0..tape.len()).iter().filter(|arrival| arrival.side == Side::Inside) {
        let Some(packet) = tape.packet(arrival, &mut pool) else { continue };
        graph.process(&mut vec![packet], &mut out, &mut pool);
        for packet in out.drain(..) {
            let transit = packet.meta().transit;
            counts[0] += usize::from(transit.side == Side::Inside);
            let is_reply = transit.direction == Direction::Reply;
            counts[1] += usize::from(transit.side == Side::Inside && is_reply);
            pool.give(packet);
        }
    }
    counts
}

#[test]
fn every_built_in_function_is_in_the_registry_and_all_but_those_alone_in_chains_are_built_in() {
    let names: Vec<_> = built_in().into_iter().map(|subject| subject.name).collect();
    let registry = registry();
    assert!(names.iter().all(|name| registry.find(name).is_some()));
    for entry in registry.entries() {
        let descriptor = entry.descriptor;
        let is_in = names.iter().any(|name| name == descriptor.name);
        assert_eq!(is_in, !descriptor.changes_flows && descriptor.name != "forgetful", "{}", descriptor.name);
    }
}

#[test]
fn a_function_that_forgets_to_tell_is_found_in_a_small_graph() {
    let subject = FunctionSpec::new("forgetful", r#"{ "packets_max": 6 }"#).unwrap();
    let Err(CompareError::Different(found)) =
        compare(&registry(), &[subject], &CompareOptions::default(), |_| {})
    else {
        panic!("nothing was found");
    };
    assert!(found.functions.iter().any(|function| function == r#"forgetful {"packets_max":6}"#), "{found}");
    assert!(found.functions.len() <= 2, "a rule takes two: {found}");
    assert!(found.steps.iter().all(|step| step.contains("packet")), "neither commands nor moves: {found}");
    assert!(found.to_string().contains("plain: "), "{found}");
}

#[test]
fn what_cannot_be_set_up_says_so() {
    let config = |config| vec![FunctionSpec::new("forgetful", config).unwrap()];
    let unknown = vec![FunctionSpec::new("unheard-of", "{}").unwrap()];
    for (subjects, expected) in [
        (config("{}"), "missing field `packets_max`"),
        (config(r#"{ "packets_max": "many" }"#), "invalid type"),
        // It can stand alone, where there is room for many flows, but not in graphs that are drawn,
        // which have room for few.
        (config(r#"{ "packets_max": 1000 }"#), "1000 graphs in a row cannot be set up"),
        (unknown, "there is no network function `unheard-of`; there are: nat"),
    ] {
        let failure = compare(&registry(), &subjects, &CompareOptions::default(), |_| {}).unwrap_err();
        assert!(failure.to_string().contains(expected), "{failure}");
    }
}
