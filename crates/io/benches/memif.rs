//! Rate of a port of shared memory between two processes: the best and the median of many short
//! rounds for each direction and length, because a round with another program on a core means
//! nothing. The receiver counts; frames without room are lost. Then the time of both ends on one
//! core, in batches of 64, as CPU time of the thread.
#![allow(clippy::unwrap_used)] // A bench fails by panicking.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use io::port::{Interface, TransmitBurst};

const ROUNDS: usize = 151;
const ROUND: Duration = Duration::from_millis(20);
const BATCH: usize = 64;

/// Environment variable of the other process: the socket, its role, and the length of frames.
const OTHER: &str = "RIVULET_MEMIF_BENCH";

fn main() {
    if let Ok(said) = std::env::var(OTHER) {
        let mut words = said.split(' ');
        let mut next = || words.next().unwrap_or_default().to_owned();
        let (socket, role, len) = (next(), next(), next());
        return send(&mut open(&socket, &role), len.parse().unwrap());
    }
    println!(
        "{:>6}  {:>5}  {:>9}  {:>6}  {:>8}  {:>9}",
        "sender", "bytes", "Mframes/s", "Gbit/s", "ns/frame", "middle ns"
    );
    for (role, other) in [("server", "client"), ("client", "server")] {
        for len in [64, 512, 1_514] {
            let (best, middle) = rates(role, other, len);
            let gbit = best * len as f64 * 8.0 / 1e9;
            let (ns, middle) = (1e9 / best, 1e9 / middle);
            println!("{other:>6}  {len:>5}  {:>9.2}  {gbit:>6.1}  {ns:>8.1}  {middle:>9.1}", best / 1e6);
        }
    }
    for len in [64, 512, 1_514] {
        println!("both ends on one core, {len} bytes: {:.1} ns/frame", both_ns(len));
    }
}

/// Opens one end.
fn end(socket: &str, role: &str) -> Interface {
    Interface::open(&format!("memif:{socket},role={role}").parse().unwrap()).unwrap()
}

/// Opens one end, and waits until it is connected.
fn open(socket: &str, role: &str) -> Interface {
    let mut interface = end(socket, role);
    while !interface.link().unwrap().is_up {
        let _ = interface.reopen();
        let _ = interface.receive(|_| {});
    }
    interface
}

/// Sends without pause, until the other end is gone.
fn send(interface: &mut Interface, len: usize) {
    let frame = vec![0x55; len];
    let mut outbox = TransmitBurst::default();
    while interface.link().unwrap().is_up {
        for _ in 0..BATCH {
            outbox.push(&frame);
        }
        interface.send(&mut outbox);
        let _ = interface.receive(|_| {});
    }
}

/// Returns the frames per second from another process: in the best round, and in the median.
fn rates(role: &str, other: &str, len: usize) -> (f64, f64) {
    let socket = format!("@rivulet-bench-{}-{other}-{len}", std::process::id());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(OTHER, format!("{socket} {other} {len}")).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut interface = open(&socket, role);
    let mut rates: Vec<f64> = (0..ROUNDS).map(|_| round(&mut interface)).collect();
    drop(interface);
    child.wait().unwrap();
    rates.sort_by(f64::total_cmp);
    (rates[ROUNDS - 1], rates[ROUNDS / 2])
}

fn round(interface: &mut Interface) -> f64 {
    let (began, mut frames, mut bytes) = (Instant::now(), 0u64, 0usize);
    while began.elapsed() < ROUND {
        for _ in 0..64 {
            let received = interface.receive(|frame| {
                frames += 1;
                bytes += usize::from(frame[0]) + frame.len();
            });
            received.unwrap();
        }
    }
    std::hint::black_box(bytes);
    frames as f64 / began.elapsed().as_secs_f64()
}

/// Returns the time per frame of both ends on one core, without cache misses between cores.
fn both_ns(len: usize) -> f64 {
    const BATCHES: usize = 20_000;
    let socket = format!("@rivulet-bench-{}-both-{len}", std::process::id());
    let mut server = end(&socket, "server");
    let mut client = end(&socket, "client");
    while !(server.link().unwrap().is_up && client.link().unwrap().is_up) {
        for end in [&mut server, &mut client] {
            let _ = end.sockets();
            let _ = end.receive(|_| {});
        }
    }
    let frame = vec![0x55; len];
    let mut outbox = TransmitBurst::default();
    let best = (0..5).map(|_| {
        let (before, mut frames) = (ran_ns(), 0);
        for _ in 0..BATCHES {
            for _ in 0..BATCH {
                outbox.push(&frame);
            }
            client.send(&mut outbox);
            server.receive(|frame| frames += usize::from(frame.len() == len)).unwrap();
        }
        assert_eq!(frames, BATCH * BATCHES);
        (ran_ns() - before) as f64 / frames as f64
    });
    best.fold(f64::INFINITY, f64::min)
}

/// Returns the CPU time of this thread.
fn ran_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}
