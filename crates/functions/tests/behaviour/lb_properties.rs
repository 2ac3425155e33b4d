//! The load balancer under arbitrary traffic and arbitrary changes of its servers, compared with a
//! small model.

use std::collections::{BTreeMap, BTreeSet};

use crate::lb_support::*;
use packet::Side::{self, Inside, Outside};
use proptest::prelude::*;
use serde_json::{Value, json};

const VIP: &str = "203.0.113.80:443";
const SERVERS: u8 = 5;

#[derive(Clone, Debug)]
enum Step {
    /// A client sends to the service.
    Ask { client: u16, flags: u8, len: usize },
    /// The client's server, according to the model, answers.
    Answer { client: u16, len: usize },
    /// A packet that belongs to no service.
    Other { client: u16 },
    /// An operator's command.
    Command { server: u8, status: &'static str },
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop::sample::select(vec![SYN, ACK, ACK, ACK]);
    prop_oneof![
        6 => (0u16..40, flags, 0usize..30).prop_map(|(client, flags, len)| Step::Ask { client, flags, len }),
        4 => (0u16..40, 0usize..30).prop_map(|(client, len)| Step::Answer { client, len }),
        1 => (0u16..40).prop_map(|client| Step::Other { client }),
        1 => (1..=SERVERS, prop::sample::select(vec!["up", "down", "drain"]))
            .prop_map(|(server, status)| Step::Command { server, status }),
    ]
}

fn config(mode: &str, on_down: &str) -> Value {
    let port = if mode == "nat" { json!(8443) } else { Value::Null };
    let servers: Vec<_> = (1..=SERVERS)
        .map(|i| json!({ "name": format!("s{i}"), "address": format!("10.0.0.{i}"), "port": port, "weight": i }))
        .collect();
    json!({ "tunnel": { "source4": "192.0.2.0/24" },
            "services": [{ "name": "web", "vip": "203.0.113.80", "port": 443, "mode": mode, "on_down": on_down,
                           "table_size": 251, "servers": servers }] })
}

fn client(i: u16) -> String {
    format!("198.51.100.{}:{}", i % 7, 20_000 + i)
}

/// State visible from outside: the status of servers, and the server seen by each client.
#[derive(Default)]
struct Model {
    status: BTreeMap<u8, &'static str>,
    server: BTreeMap<u16, u8>,
    /// Clients with a SYN that no server has acknowledged: answers here do not acknowledge it.
    unanswered: BTreeSet<u16>,
}

impl Model {
    fn status(&self, server: u8) -> &'static str {
        self.status.get(&server).copied().unwrap_or("up")
    }

    fn any_up(&self) -> bool {
        (1..=SERVERS).any(|server| self.status(server) == "up")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn connections_keep_their_server_and_all_checksums_are_right(
        steps in prop::collection::vec(step(), 1..150),
        on_down in prop::sample::select(vec!["move", "finish", "reset"]),
    ) {
        let mut bench = Bench::new(&config("nat", on_down));
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Command { server, status } => {
                    bench.control(&format!("server s{server} {status}"));
                    model.status.insert(server, status);
                }
                Step::Other { client: i } => {
                    let other = udp(&client(i), "203.0.113.80:443", b"not TCP");
                    prop_assert_eq!(bench.pass(&other), other.frame());
                }
                Step::Answer { client: i, len } => {
                    let Some(&server) = model.server.get(&i) else { continue };
                    let payload = vec![i as u8; len];
                    let answer = tcp(&format!("10.0.0.{server}:8443"), &client(i), ACK, &payload);
                    let lost = model.status(server) == "down" && on_down == "reset";
                    let out = bench.batch(&[(Outside, answer.frame())]);
                    let wanted = tcp(VIP, &client(i), ACK, &payload).frame();
                    prop_assert_eq!(out, if lost { vec![] } else { vec![(Inside, wanted)] });
                }
                Step::Ask { client: i, flags, len } => {
                    let payload = vec![i as u8; len];
                    let out = bench.batch(&[(Inside, tcp(&client(i), VIP, flags, &payload).frame())]);
                    let sent = out.iter().find(|(side, _)| *side == Outside).map(|(_, frame)| frame);
                    let had = model.server.get(&i).copied();
                    let begins = flags == SYN && model.unanswered.contains(&i);
                    let keeps =
                        had.filter(|&s| model.status(s) != "down" || on_down == "finish" && !begins);
                    let ended =
                        had.is_some_and(|s| model.status(s) == "down") && on_down == "reset" && !begins;
                    let Some(frame) = sent else {
                        prop_assert!(ended || (keeps.is_none() && !model.any_up()));
                        continue;
                    };
                    prop_assert!(!ended);
                    let server = frame[33];
                    prop_assert!(keeps.is_none_or(|kept| kept == server), "{:?} {}", keeps, server);
                    prop_assert!(keeps.is_some() || model.status(server) == "up");
                    let wanted = tcp(&client(i), &format!("10.0.0.{server}:8443"), flags, &payload);
                    prop_assert_eq!(frame, &wanted.frame());
                    if had.is_none() && flags == SYN {
                        model.unanswered.insert(i);
                    }
                    model.server.insert(i, server);
                }
            }
        }
        let counters = |what: &str| {
            (1..=SERVERS).map(|s| bench.counter(&format!("web/s{s}.{what}"))).sum::<u64>()
        };
        prop_assert_eq!(counters("connections") - counters("ended"), model.server.len() as u64);
    }

    #[test]
    fn output_does_not_depend_on_batches(
        steps in prop::collection::vec(step(), 1..200),
        mode in prop::sample::select(vec!["nat", "ipip", "gue"]),
        on_down in prop::sample::select(vec!["move", "finish", "reset"]),
    ) {
        let run = |size: usize| {
            let mut bench = Bench::new(&config(mode, on_down));
            let (mut waiting, mut out) = (Vec::<(Side, Vec<u8>)>::new(), Vec::new());
            for step in &steps {
                match step {
                    Step::Command { server, status } => {
                        out.extend(bench.batch(&std::mem::take(&mut waiting)));
                        bench.control(&format!("server s{server} {status}"));
                    }
                    Step::Ask { client: i, flags, len } => {
                        waiting.push((Inside, tcp(&client(*i), VIP, *flags, &vec![1; *len]).frame()));
                    }
                    // After a move, the flow of an old server's packet depends on whether the move
                    // has left the graph.
                    Step::Answer { .. } if on_down == "move" => {}
                    Step::Answer { client: i, len } => {
                        let server = format!("10.0.0.{}:8443", i % u16::from(SERVERS) + 1);
                        waiting.push((Outside, tcp(&server, &client(*i), ACK, &vec![2; *len]).frame()));
                    }
                    Step::Other { client: i } => {
                        waiting.push((Inside, udp(&client(*i), VIP, b"not TCP").frame()));
                    }
                }
                if waiting.len() >= size {
                    out.extend(bench.batch(&std::mem::take(&mut waiting)));
                }
            }
            out.extend(bench.batch(&waiting));
            let shared = bench.graph.stages()[0].shared();
            (out, shared.counters.clone(), bench.graph.counters())
        };
        let single = run(1);
        prop_assert!(single == run(32));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..20),
        mode in prop::sample::select(vec!["nat", "ipip", "gue"]),
    ) {
        // Bytes that begin like packets to the service, of all protocols, reach more code than
        // random bytes.
        let mut bench = Bench::new(&config(mode, "move"));
        for (i, noise) in frames.into_iter().enumerate() {
            let mut packet = tcp(&client(i as u16), VIP, ACK, &noise).may_fragment();
            if let [protocol, flags, rest @ ..] = &noise[..] {
                packet.protocol = [1, 6, 17, 132, *protocol][usize::from(*flags) % 5];
                packet.more = flags & 0x80 != 0;
                packet.body = rest.to_vec();
            }
            bench.batch(&[(Inside, packet.frame()), (Inside, noise)]);
        }
    }
}
