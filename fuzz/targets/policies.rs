//! Any packets through whole policies, three ways: NF by NF, on the fast path, and on units that
//! take turns at every packet. The same packets leave, with the same reports.

#![no_main]

use std::convert::Infallible;

use libfuzzer_sys::fuzz_target;
use nf::{Alert, Event, FlowReport};
use runtime::elastic::UnitsConfig;
use runtime::{Frame, Ingress, Output, Runner};
use packet::{LinkType, Packet};
use policy::Policy;
use protocol::dispatcher::Granularity;

const POLICIES: [&str; 5] = [
    "NAT n { external: [203.0.113.1] }; Firewall f { rules: \"allow out\\nreject in tcp\\ndeny in log\" }; Monitor m;
     pipelet { inside <-> n <-> f <-> m <-> outside; }",
    "LoadBalancer b { services: [{ name: web, vip: 198.18.0.1, servers: [
       { name: one, address: 198.51.100.11 }, { name: two, address: 198.51.100.12 }] }] }; Monitor m;
     pipelet { inside <-> b <-> m <-> outside; }",
    "Firewall f { rules: \"allow out\\nallow in udp\", tcp: strict }; Policer p { rate: 20kbps, burst: 2KB };
     pipelet { inside <-> f <-> p <-> outside; }",
    "UdpWhitelist w { protect: inside }; Dos d { protect: outside, packets: 5, syns: 1 }; Monitor m;
     pipelet { inside <-> w <-> d <-> m <-> outside; }",
    "Http h; Ids i { rules: \"alert tcp any any -> any any (content:\\\"GET\\\"; sid:1;)\", mode: prevent }; NAT n { external: [203.0.113.1] };
     pipelet { inside <-> h <-> i <-> n <-> outside; }",
];

/// The output of a run.
#[derive(Debug, Default, PartialEq)]
struct Sink {
    sent: Vec<(u16, u64, Vec<u8>)>,
    told: Vec<String>,
    /// Output caused by ends of flows: each table ends simultaneous flows in an order of its own.
    ends: Vec<String>,
}

impl Output for Sink {
    type Error = Infallible;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), Infallible> {
        self.sent.push((port, packet.meta().transit.timestamp_ns, packet.data().to_vec()));
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), Infallible> {
        let told = if alert.sequence == 0 { &mut self.ends } else { &mut self.told };
        told.push(format!("{function} {alert:?}"));
        Ok(())
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), Infallible> {
        let told = if event.sequence.is_none() { &mut self.ends } else { &mut self.told };
        told.push(format!("{function} {:?} {} {:?}", event.sequence, event.kind, event.key));
        Ok(())
    }

    fn flow(&mut self, report: &FlowReport, _now_ns: u64) -> Result<(), Infallible> {
        self.ends.push(format!("{report:?}"));
        Ok(())
    }
}

/// A packet, and the end of its batch.
struct Step<'a> {
    port: u16,
    timestamp_ns: u64,
    ends_batch: bool,
    data: &'a [u8],
}

// Input: a byte that chooses the policy, then steps: port and end of the batch, time that passes, a
// length, and that many bytes of an IP packet.
fuzz_target!(|data: &[u8]| {
    let [which, rest @ ..] = data else { return };
    let policy = POLICIES[usize::from(*which) % POLICIES.len()];
    let steps = steps(rest);
    let plain = run(policy, false, false, &steps);
    let fast = run(policy, true, false, &steps);
    assert_eq!(fast, plain, "the fast path differs");
    let units = run(policy, true, true, &steps);
    assert_eq!(units, plain, "units differ");
});

fn steps(mut rest: &[u8]) -> Vec<Step<'_>> {
    let (mut steps, mut timestamp_ns) = (Vec::new(), 1_700_000_000_000_000_000);
    while let [kind, step, length, bytes @ ..] = rest {
        let (data, after) = bytes.split_at(usize::from(*length).min(bytes.len()));
        rest = after;
        timestamp_ns += u64::from(step >> 4) << (2 * (step & 15));
        steps.push(Step { port: u16::from(kind & 1), timestamp_ns, ends_batch: kind & 2 != 0, data });
    }
    steps
}

fn run(policy: &str, consolidate: bool, on_units: bool, steps: &[Step<'_>]) -> Sink {
    let text = format!(
        "settings {{ flows: 64, consolidate: {consolidate} }} Port<0> inside; Port<1> outside;\n{policy}"
    );
    let policy = Policy::read("fuzzed", &text, &mut |_| Err("there are no files".to_owned()));
    let policy = policy.unwrap_or_else(|report| panic!("{}", report.render(policy::Colour::Off)));
    let assembly = runtime::assemble(&policy, &functions::registry(), 7, None);
    let assembly = assembly.unwrap_or_else(|wrong| panic!("{wrong:?}"));
    let mut runner = if on_units {
        let config = UnitsConfig {
            mode: Granularity::Packet,
            units_max: 4,
            capacity_bps: 20_000_000,
            ..UnitsConfig::as_published()
        };
        Runner::on_units(assembly, "fuzzed", config).unwrap()
    } else {
        Runner::new(assembly, "fuzzed")
    };
    let mut sink = Sink::default();
    for step in steps {
        let (timestamp_ns, data) = (step.timestamp_ns, step.data);
        let frame = Frame { timestamp_ns, link: LinkType::RawIp, wire_len: data.len() as u32, data };
        runner.receive(frame, Ingress::Port(step.port), &mut sink).unwrap();
        if step.ends_batch {
            runner.flush(&mut sink).unwrap();
        }
    }
    let report = runner.finish(&mut sink).unwrap();
    assert!(report.adds_up());
    sink.ends.sort();
    sink
}
