//! Costs of passing work between threads: `cargo bench -p runtime --bench threads`.
//!
//! - *ring hop*: half the round-trip time of a packet's entry through a ring to another thread.
//!   Next to it, the same for a single word: the machine's own latency, which depends on the
//!   placement of its cores.
//! - *state transfer*: time from a pull to the arrival of the state, for a flow with packets that
//!   alternate between two units.
//! - *throughput*: the same packets, a million per second, on one thread and with units on other
//!   threads. Rounds are interleaved.
//!
//! Spinning threads need a core each; with fewer cores this measures the scheduler.
#![allow(clippy::unwrap_used)] // A measurement fails by panicking.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use io::traffic::{FrameRate, Generator, TrafficProfile};
use nf::{Alert, Event, FlowReport};
use packet::{LinkType, Packet};
use policy::Policy;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;
use runtime::transport::{Maker, RING};
use runtime::{Assembly, Frame, Ingress, Output, Report, Runner};

/// A packet's entry in a ring: time, stamp and buffer.
type Item = [u64; 13];

const ROUNDS: usize = 7;

fn main() {
    // As a test it only has to run.
    let is_test = std::env::args().all(|argument| argument != "--bench");
    let scale = if is_test { 100 } else { 1 };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores");
    for _ in 0..if is_test { 1 } else { ROUNDS } {
        let (ring, word) = (ring_hop(50_000 / scale), word_hop(50_000 / scale));
        println!("ring hop: {ring} ns (median), a bare word's: {word} ns");
    }
    let units = state_transfer(20_000 / scale as u64).units.unwrap();
    let (pulls, len) = (units.pull_ns.unwrap(), units.state_bytes / units.states_moved);
    println!("state transfer: {} ns (median), {} ns (p99), of {len} bytes", pulls["p50"], pulls["p99"]);
    for (name, units) in [("one unit", 1), ("two units", 2)] {
        let (mut alone, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..if is_test { 1 } else { ROUNDS } {
            alone.push(ns_per_packet(Runner::new(nat(), "nat"), 400_000 / scale as u64));
            threads.push(ns_per_packet(
                on_threads(nat, config(Granularity::Flow, units)),
                400_000 / scale as u64,
            ));
        }
        let (alone, threads) = (median(alone), median(threads));
        println!(
            "throughput, {name}: {threads} ns for a packet, {alone} ns on one thread: {:.2} times",
            threads as f64 / alone as f64
        );
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn ring_hop(count: usize) -> u64 {
    let (mut there, mut from_here) = rtrb::RingBuffer::<Item>::new(RING);
    let (mut back, mut from_there) = rtrb::RingBuffer::<Item>::new(RING);
    let echo = std::thread::spawn(move || {
        for _ in 0..count {
            let item = take(&mut from_here);
            back.push(item).unwrap();
        }
    });
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let start = Instant::now();
        there.push([number as u64; 13]).unwrap();
        assert_eq!(take(&mut from_there)[0], number as u64);
        times.push(start.elapsed().as_nanos() as u64 / 2);
    }
    echo.join().unwrap();
    median(times)
}

fn word_hop(count: usize) -> u64 {
    let word = Arc::new(AtomicU64::new(0));
    // Even numbers are this thread's to raise, odd ones the other's.
    let raise = |word: &AtomicU64, from: u64| {
        while word.load(Ordering::Acquire) != from {
            std::hint::spin_loop();
        }
        word.store(from + 1, Ordering::Release);
    };
    let echo = std::thread::spawn({
        let word = Arc::clone(&word);
        move || (0..count as u64).for_each(|number| raise(&word, 2 * number + 1))
    });
    let mut times = Vec::with_capacity(count);
    for number in 0..count as u64 {
        let start = Instant::now();
        raise(&word, 2 * number);
        while word.load(Ordering::Acquire) != 2 * number + 2 {
            std::hint::spin_loop();
        }
        times.push(start.elapsed().as_nanos() as u64 / 2);
    }
    echo.join().unwrap();
    median(times)
}

fn take(ring: &mut rtrb::Consumer<Item>) -> Item {
    loop {
        for _ in 0..10_000 {
            if let Ok(item) = ring.pop() {
                return item;
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

fn config(mode: Granularity, units: u16) -> UnitsConfig {
    UnitsConfig { mode, units_min: units, units_max: units, ..UnitsConfig::default() }
}

fn on_threads(assemble: fn() -> Assembly, config: UnitsConfig) -> Runner {
    let make: Maker = Arc::new(move || Ok(assemble().graph));
    Runner::on_threads(assemble(), "bench", config, make).unwrap()
}

fn assembly(text: &str) -> Assembly {
    let policy = Policy::read("bench", text, &mut |_| Err(String::new()));
    let policy = policy.map_err(|report| report.render(policy::Colour::Off)).unwrap();
    runtime::assemble(&policy, &functions::registry(), 1, None).map_err(|wrong| format!("{wrong:?}")).unwrap()
}

fn nat() -> Assembly {
    let nat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/nat.rvl");
    assembly(&std::fs::read_to_string(nat).unwrap())
}

fn monitor() -> Assembly {
    assembly("Port<0> a; Port<1> b; Monitor m {}; pipelet { a <-> m <-> b; }")
}

/// Packets of one flow; each goes to the other unit.
fn state_transfer(packets: u64) -> Report {
    let mut runner = on_threads(monitor, config(Granularity::Packet, 2));
    let profile =
        TrafficProfile { packets: Some(packets), flows: 1, replies: false, ..TrafficProfile::default() };
    let mut generator = Generator::new(&profile).unwrap();
    while let Some(frame) = generator.next() {
        receive(&mut runner, frame.timestamp_ns, frame.data);
        runner.settle(&mut Sink).unwrap();
    }
    runner.finish(&mut Sink).unwrap()
}

fn ns_per_packet(mut runner: Runner, packets: u64) -> u64 {
    let rate = FrameRate::PacketsPerSecond(1e6);
    let profile = TrafficProfile {
        packets: Some(packets),
        flows: 1_000,
        rate,
        replies: false,
        ..TrafficProfile::default()
    };
    let mut generator = Generator::new(&profile).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = generator.next() {
        frames.push((frame.timestamp_ns, frame.data.to_vec()));
    }
    let start = Instant::now();
    for (timestamp_ns, data) in &frames {
        receive(&mut runner, *timestamp_ns, data);
    }
    runner.settle(&mut Sink).unwrap();
    let took_ns = start.elapsed().as_nanos() as u64 / packets;
    runner.finish(&mut Sink).unwrap();
    took_ns
}

fn receive(runner: &mut Runner, timestamp_ns: u64, data: &[u8]) {
    let frame = Frame { timestamp_ns, link: LinkType::Ethernet, wire_len: data.len() as u32, data };
    runner.receive(frame, Ingress::Port(0), &mut Sink).unwrap();
}

/// Discards all output.
struct Sink;

impl Output for Sink {
    type Error = std::convert::Infallible;

    fn packet(&mut self, _port: u16, _packet: &Packet) -> Result<(), Self::Error> {
        Ok(())
    }

    fn alert(&mut self, _function: &str, _alert: &Alert) -> Result<(), Self::Error> {
        Ok(())
    }

    fn event(&mut self, _function: &str, _event: Event<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    fn flow(&mut self, _report: &FlowReport, _now_ns: u64) -> Result<(), Self::Error> {
        Ok(())
    }
}
