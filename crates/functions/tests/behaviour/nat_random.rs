//! Random traffic through a NAT, checked by an oracle that sees only packets in and out.

use std::net::Ipv4Addr;

use crate::nat_oracle::{Dependence, Oracle, Rules};
use crate::nat_support::*;
use packet::Side;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// A packet from an inside host to a server.
    Out { protocol: u8, host: u8, port: u8, server: u8, remote_port: u8, flags: u8 },
    /// A packet from a server to a known or unknown external endpoint.
    In { server: u8, remote_port: u8, known: u8, flags: u8 },
    /// A packet from an inside host to a known external endpoint.
    Hairpin { host: u8, port: u8, known: u8, flags: u8 },
    /// An ICMP error about an earlier output packet.
    Error { which: u8, len: u8, by_router: bool },
    /// An answer to an earlier output packet.
    Answer { which: u8, flags: u8 },
    /// A datagram in two fragments, possibly the later one first.
    Fragments { host: u8, port: u8, server: u8, late_first: bool },
    /// Time passes.
    Wait { seconds: u16 },
}

fn protocol() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(UDP), 2 => Just(TCP), 1 => Just(ICMP)]
}

fn flags() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(SYN), 2 => Just(ACK), 1 => Just(SYN | ACK), 1 => Just(FIN | ACK), 1 => Just(RST)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (protocol(), 0u8..5, 0u8..6, 0u8..3, 0u8..2, flags()).prop_map(
            |(protocol, host, port, server, remote_port, flags)| Step::Out {
                protocol, host, port, server, remote_port, flags,
            }
        ),
        4 => (0u8..3, 0u8..2, any::<u8>(), flags())
            .prop_map(|(server, remote_port, known, flags)| Step::In { server, remote_port, known, flags }),
        3 => (0u8..5, 0u8..6, any::<u8>(), flags())
            .prop_map(|(host, port, known, flags)| Step::Hairpin { host, port, known, flags }),
        2 => (any::<u8>(), 28u8..90, any::<bool>())
            .prop_map(|(which, len, by_router)| Step::Error { which, len, by_router }),
        4 => (any::<u8>(), flags()).prop_map(|(which, flags)| Step::Answer { which, flags }),
        1 => (0u8..5, 0u8..6, 0u8..3, any::<bool>())
            .prop_map(|(host, port, server, late_first)| Step::Fragments { host, port, server, late_first }),
        2 => prop_oneof![0u16..20, 50u16..70, 230u16..310, Just(8000)].prop_map(|seconds| Step::Wait { seconds }),
    ]
}

#[derive(Clone, Debug)]
struct Setting {
    mapping: Dependence,
    filtering: Dependence,
    selection: &'static str,
    arbitrary: bool,
    scarce: bool,
    blocks: bool,
}

fn dependence() -> impl Strategy<Value = Dependence> {
    prop_oneof![3 => Just(Dependence::Nothing), 1 => Just(Dependence::Address), 1 => Just(Dependence::Endpoint)]
}

fn setting() -> impl Strategy<Value = Setting> {
    let selection = prop_oneof![Just("preserve"), Just("random"), Just("sequential")];
    (
        dependence(),
        dependence(),
        selection,
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(mapping, filtering, selection, arbitrary, scarce, blocks)| Setting {
            mapping,
            filtering,
            selection,
            arbitrary,
            scarce,
            blocks,
        })
}

fn behaviour(dependence: Dependence) -> &'static str {
    match dependence {
        Dependence::Nothing => "endpoint_independent",
        Dependence::Address => "address_dependent",
        Dependence::Endpoint => "address_and_port_dependent",
    }
}

impl Setting {
    fn config(&self) -> String {
        let (mapping, filtering) = (behaviour(self.mapping), behaviour(self.filtering));
        let pooling = if self.arbitrary { "arbitrary" } else { "paired" };
        let ports = if self.scarce { "1020-1027" } else { "1-65535" };
        let blocks = if self.blocks && !self.scarce { r#", "blocks": {"size": 64, "max": 4}"# } else { "" };
        let selection = self.selection;
        format!(
            r#"{{"external": ["203.0.113.1-203.0.113.2"], "when_full": "refuse_new", "mapping": "{mapping}", "filtering": "{filtering}",
                "pooling": "{pooling}", "ports": "{ports}", "port_selection": "{selection}"{blocks}}}"#
        )
    }

    fn rules(&self) -> Rules {
        Rules {
            external: [Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::new(203, 0, 113, 2)].into(),
            mapping: self.mapping,
            filtering: self.filtering,
            parity: !self.scarce,
            scarce: self.scarce,
            slack_ns: SECOND,
        }
    }
}

fn host(number: u8, port: u8, blocks: bool) -> End {
    // Even and odd, privileged and not; with blocks, which lie above, only unprivileged ports.
    let ports =
        if blocks { [1024, 5000, 5001, 5003, 40_000, 40_001] } else { [53, 600, 5000, 5001, 40_000, 40_001] };
    (Ipv4Addr::new(10, 0, 0, number + 1), ports[port as usize])
}

fn remote(server: u8, port: u8) -> End {
    (Ipv4Addr::new(192, 0, 2, server + 1), 80 + u16::from(port))
}

/// Sends steps through a NAT, shows all packets to the oracle, and keeps the inputs.
struct Play {
    bench: Bench,
    oracle: Oracle,
    blocks: bool,
    log: Vec<(u64, Side, Vec<u8>)>,
    out: Vec<(Side, Vec<u8>)>,
    id: u16,
}

impl Play {
    fn new(setting: &Setting) -> Play {
        let bench = Bench::new(&setting.config());
        let oracle = Oracle::new(setting.rules());
        let blocks = setting.blocks && !setting.scarce;
        Play { bench, oracle, blocks, log: Vec::new(), out: Vec::new(), id: 0 }
    }

    fn send(&mut self, side: Side, bytes: &[u8]) {
        self.bench.now_ns += 1_000;
        self.log.push((self.bench.now_ns, side, bytes.to_vec()));
        let fate = self.bench.send(side, bytes);
        let out = match &fate {
            Fate::Out(side, bytes) => Some((*side, bytes.as_slice())),
            _ => None,
        };
        self.oracle.saw(self.bench.now_ns, side, bytes, out);
        if let Fate::Out(side, bytes) = fate {
            self.out.push((side, bytes));
        }
    }

    fn make(&self, protocol: u8, from: End, to: End, flags: u8) -> Vec<u8> {
        match protocol {
            TCP => tcp(from, to, flags, b"segment"),
            ICMP => query(if flags == SYN { 8 } else { 0 }, to.1, from.0, to.0),
            _ => udp(from, to, b"datagram"),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait { seconds } => {
                // A few milliseconds more, so that no deadline falls between packets of one batch.
                self.bench.wait(u64::from(seconds));
                self.bench.now_ns += 7_000_000;
            }
            Step::Out { protocol, host: number, port, server, remote_port, flags } => {
                let (from, to) = (host(number, port, self.blocks), remote(server, remote_port));
                let bytes = match protocol {
                    ICMP => query(8, from.1, from.0, to.0),
                    _ => self.make(protocol, from, to, flags),
                };
                self.send(Side::Inside, &bytes);
            }
            Step::In { server, remote_port, known, flags } => {
                let externals = self.oracle.externals();
                let (protocol, to) = match externals.get(known as usize % (externals.len() + 1)) {
                    Some(&known) => known,
                    None => (UDP, (Ipv4Addr::new(203, 0, 113, 1), 3333)),
                };
                let bytes = self.make(protocol, remote(server, remote_port), to, flags);
                self.send(Side::Outside, &bytes);
            }
            Step::Hairpin { host: number, port, known, flags } => {
                let externals = self.oracle.externals();
                let Some(&(protocol, to)) = externals.get(known as usize % (externals.len() + 1)) else {
                    return;
                };
                let bytes = self.make(protocol, host(number, port, self.blocks), to, flags);
                self.send(Side::Inside, &bytes);
            }
            Step::Error { which, len, by_router } => {
                let Some((side, quoted)) = self.pick(which) else { return };
                let seen = see(&quoted);
                let router = if side == Side::Inside { "10.0.0.254" } else { "198.51.100.254" };
                let sender = if by_router { end(router).0 } else { seen.destination.0 };
                let bytes = error(3, 4, sender, seen.source.0, &quoted, len.into());
                self.send(side, &bytes);
            }
            Step::Answer { which, flags } => {
                let Some((side, sent)) = self.pick(which) else { return };
                let seen = see(&sent);
                let mut from = seen.destination;
                if seen.protocol == ICMP {
                    from.1 = seen.source.1;
                }
                let bytes = match seen.protocol {
                    ICMP => query(0, seen.source.1, from.0, seen.source.0),
                    protocol => self.make(protocol, from, seen.source, flags),
                };
                self.send(side, &bytes);
            }
            Step::Fragments { host: number, port, server, late_first } => {
                let (from, to) = (host(number, port, self.blocks), remote(server, 0));
                self.id += 1;
                let body = udp_body(from, to, &[7; 40]);
                let first = ipv4(UDP, from.0, to.0, self.id, 0x2000, &body[..24]);
                let later = ipv4(UDP, from.0, to.0, self.id, 3, &body[24..]);
                if late_first {
                    self.late_fragment_first(&first, &later);
                } else {
                    self.send(Side::Inside, &first);
                    self.send(Side::Inside, &later);
                }
            }
        }
    }

    /// Sends the later fragment first: it is held, and leaves after the first fragment.
    fn late_fragment_first(&mut self, first: &[u8], later: &[u8]) {
        self.log.push((self.bench.now_ns, Side::Inside, later.to_vec()));
        assert_eq!(self.bench.send(Side::Inside, later), Fate::Held);
        self.bench.now_ns += 1_000;
        self.log.push((self.bench.now_ns, Side::Inside, first.to_vec()));
        self.bench.expire();
        let out = self.bench.send_all(Side::Inside, first);
        for (bytes, out) in [first, later].iter().zip(&out) {
            self.oracle.saw(self.bench.now_ns, Side::Inside, bytes, Some((out.0, &out.1)));
        }
        if out.is_empty() {
            self.oracle.saw(self.bench.now_ns, Side::Inside, first, None);
        }
        self.out.extend(out);
    }

    /// Returns an output packet that is neither a fragment nor an error.
    fn pick(&self, which: u8) -> Option<(Side, Vec<u8>)> {
        let recent = &self.out[self.out.len().saturating_sub(20)..];
        let (side, bytes) = recent.get(which as usize % recent.len().max(1))?;
        let seen = see(bytes);
        (seen.fragment == 0 && seen.quoted.is_none()).then(|| (*side, bytes.clone()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_traffic_is_translated_as_the_oracle_says(
        setting in setting(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut play = Play::new(&setting);
        for step in &steps {
            play.step(step);
        }
        // After all flows have expired, nothing is held.
        play.bench.wait(8000);
        play.bench.expire();
        prop_assert_eq!(play.bench.ports_in_use(), 0);
        for pool in &play.bench.graph.stages()[0].shared().pools {
            prop_assert_eq!(pool.in_use(), 0, "{}", pool.name());
        }
        // The same packets in large batches yield the same bytes.
        let mut batched = Bench::new(&setting.config());
        let mut out = Vec::new();
        for together in play.log.chunk_by(|a, b| b.0 - a.0 < 1_000_000) {
            for batch in together.chunks(32) {
                batched.now_ns = batch[0].0;
                batched.expire();
                out.extend(batched.batch(batch));
            }
        }
        prop_assert_eq!(out, play.out);
    }
}
