//! Packets that turn back: what comes out is the same on one thread, on units that hand flows over,
//! on threads and on workers.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod support;

use std::sync::Arc;

use packet::Endpoint;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;
use runtime::shards::parts;
use runtime::transport::Maker;
use runtime::{Assembly, Report, Runner};

use support::packets::{frame, udp, v4};
use support::{Arriving, Sink, assembly_of, by_flow, counted, play, receive};

const CLIENTS: u16 = 12;
const SERVER: Endpoint = Endpoint::new(packet::Addr::from_v4_bytes([10, 0, 0, 20]), 53);

/// The firewall stands inside of the NAT, and judges each pass of a hairpin.
fn assemble() -> Assembly {
    assembly_of(
        "hairpins.rvl",
        r#"Port<0> inside; Port<1> outside;
        Firewall guard { rules: "allow out\nallow in udp from 203.0.113.1 to 10.0.0.20 port 53", default: deny };
        NAT translate {
          external: [203.0.113.1], inside: [10.0.0.0/8],
          forwards: [{ protocol: udp, external: "203.0.113.1:53", internal: "10.0.0.20:53" },
                     { protocol: udp, external: "203.0.113.1:54", internal: "10.0.0.20:54" }],
        };
        Monitor m;
        pipelet { inside <-> m <-> guard <-> translate <-> outside; }
        settings { seed: 7 };"#,
    )
}

/// Questions to the server's external address, allowed ones and others, and its answers.
fn frames() -> Vec<Arriving> {
    let mut runner = Runner::new(assemble(), "hairpins");
    let (mut frames, mut sink) = (Vec::new(), Sink::default());
    let mut say = |frames: &mut Vec<Arriving>, network: &[u8]| {
        let timestamp_ns = 1_700_000_000_000_000_000 + frames.len() as u64 * 100_000;
        let arriving = Arriving { timestamp_ns, port: 0, data: frame(network) };
        receive(&mut runner, &arriving, &mut sink);
        runner.flush(&mut sink).unwrap();
        frames.push(arriving);
        sink.sent.pop()
    };
    for round in 0..20 {
        for client in 0..CLIENTS {
            let from = v4(10, 0, 1, client as u8, 1000 + client);
            let to = v4(203, 0, 113, 1, if client % 3 == 0 { 54 } else { 53 });
            let came = say(&mut frames, &udp(from, to, &[round; 20]));
            if let Some((port, _, data)) = came {
                assert_eq!((port, &data[30..34]), (0, &[10, 0, 0, 20][..]));
                let mapped = v4(203, 0, 113, 1, u16::from_be_bytes([data[34], data[35]]));
                say(&mut frames, &udp(SERVER, mapped, &[round; 30])).unwrap();
            }
        }
    }
    frames
}

fn check(way: &str, (got, report): &(Sink, Report), (expected, single): &(Sink, Report)) {
    assert_eq!(by_flow(got), by_flow(expected), "{way}");
    assert_eq!(counted(report), counted(single), "{way}");
    assert!(report.adds_up(), "{way}");
}

#[test]
fn hairpins_are_the_same_however_the_policy_runs() {
    let frames = frames();
    let single = play(Runner::new(assemble(), "single"), &frames);
    let denied = single.1.drops["firewall-default"];
    assert_eq!(denied, u64::from(CLIENTS / 3) * 20, "the second pass of those to port 54");
    assert_eq!(single.1.packets_out, u64::from(CLIENTS - CLIENTS / 3) * 40);
    for mode in [
        Granularity::Flowlet,
        Granularity::Packet,
        Granularity::Rss { buckets: 64, every_ns: Some(1_000_000) },
    ] {
        let config = UnitsConfig {
            mode,
            units_min: 2,
            units_max: 4,
            capacity_bps: 1_000_000,
            ..UnitsConfig::as_published()
        };
        let on_units = play(Runner::on_units(assemble(), "units", config).unwrap(), &frames);
        check(&format!("units {mode:?}"), &on_units, &single);
        let make: Maker = Arc::new(|| Ok(assemble().graph));
        let on_threads = Runner::on_threads(assemble(), "threads", config, make).unwrap();
        let on_threads = play(on_threads, &frames);
        check(&format!("threads {mode:?}"), &on_threads, &single);
        if mode == Granularity::Packet {
            let moved = on_threads.1.units.as_ref().unwrap().states_moved;
            assert!(moved > 20, "{moved} flows went from unit to unit");
        }
    }
    let parts = parts((0..3).map(|_| assemble()).collect(), "workers").unwrap();
    let mut runners: Vec<Runner> = parts.into_iter().map(Runner::of_part).collect();
    let mut sink = Sink::default();
    for (number, arriving) in frames.iter().enumerate() {
        receive(&mut runners[number % 3], arriving, &mut sink);
        runners.iter_mut().for_each(|runner| runner.flush(&mut sink).unwrap());
        while runners.iter().any(Runner::has_pending) {
            runners.iter_mut().for_each(|runner| runner.flush(&mut sink).unwrap());
        }
    }
    let mut reports: Vec<Report> =
        runners.into_iter().rev().map(|mut runner| runner.finish(&mut sink).unwrap()).collect();
    let mut all = reports.pop().unwrap();
    reports.into_iter().for_each(|report| all.add_worker(&report));
    check("workers", &(sink, all), &single);
}
