//! Ports by DPDK, on virtual devices that need no privilege: frames arrive and leave whole. Tests
//! in network namespaces are in `crates/cli/tests/live/dpdk.rs`.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use io::capture::{CaptureFormat, CaptureReader, CaptureRecord, CaptureWriter, FormatKind};
use io::port::{DRIVERS, DriverEntry, Interface, PortSpec, TransmitBurst, dpdk};
use packet::LinkType;
use rustix::thread::CapabilitySet;

/// Names a device, and begins DPDK for this process.
fn device(text: &str) -> PortSpec {
    static BEGIN: Once = Once::new();
    // Enough memory for all devices of this file.
    BEGIN.call_once(|| {
        let first = spec("net_null9");
        first.announce(16);
        drop(Interface::open(&first).unwrap());
    });
    spec(text)
}

fn spec(text: &str) -> PortSpec {
    format!("dpdk:{text}").parse().unwrap()
}

fn driver() -> &'static DriverEntry {
    DRIVERS.iter().find(|driver| driver.info.name == "dpdk").unwrap()
}

/// Runs a task on DPDK's thread, and returns that thread.
fn dpdk_thread() -> thread::ThreadId {
    let (sender, receiver) = std::sync::mpsc::channel();
    let task = move || {
        sender.send(thread::current().id()).unwrap();
        Ok(())
    };
    driver().on_own_threads(Box::new(task)).unwrap();
    receiver.recv().unwrap()
}

/// Returns a unique frame of this length.
fn frame(len: usize, seed: u8) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
    // Neither IP nor a VLAN tag.
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Receives until there are `count` frames.
fn received(interface: &mut Interface, count: usize) -> Vec<Vec<u8>> {
    let (mut frames, end) = (Vec::new(), Instant::now() + Duration::from_secs(90));
    while frames.len() < count && Instant::now() < end {
        interface.receive(|frame| frames.push(frame.to_vec())).unwrap();
    }
    frames
}

fn send(interface: &mut Interface, frames: &[Vec<u8>]) {
    let mut outbox = TransmitBurst::default();
    for frame in frames {
        outbox.push(frame);
    }
    interface.send(&mut outbox);
}

fn write(path: &Path, frames: &[Vec<u8>]) {
    let mut writer =
        CaptureWriter::create(path, CaptureFormat { kind: FormatKind::Pcap, gzip: false }).unwrap();
    for data in frames {
        let (wire_len, link_type) = (data.len() as u32, LinkType::Ethernet);
        writer.write(&CaptureRecord { timestamp_ns: 0, interface: 0, link_type, wire_len, data }).unwrap();
    }
    writer.finish().unwrap();
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    let (mut reader, mut frames) = (CaptureReader::open(path).unwrap(), Vec::new());
    while let Some(record) = reader.next().unwrap() {
        frames.push(record.data.to_vec());
    }
    frames
}

#[test]
fn frames_of_all_lengths_arrive_and_leave_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (came, left) = (dir.path().join("came.pcap"), dir.path().join("left.pcap"));
    // Frames of more than 2,048 bytes arrive in several segments, and are too long to leave again.
    let lens = [60, 61, 64, 590, 1_513, 1_514, 1_515, 2_048, 2_049, 4_500, 9_014];
    let frames: Vec<_> = (0..200).map(|i| frame(lens[i % lens.len()], i as u8)).collect();
    write(&came, &frames);

    let text = format!("net_pcap0,rx_pcap={},tx_pcap={}", came.display(), left.display());
    let mut interface = Interface::open(&device(&text)).unwrap();
    assert_eq!((interface.name(), interface.mode()), ("net_pcap0", "dpdk"));
    assert!(interface.is_polled() && interface.sockets().is_empty());
    let link = interface.link().unwrap();
    assert_eq!((link.is_up, link.mtu), (true, 1_500));
    assert!(received(&mut interface, frames.len()) == frames);
    send(&mut interface, &frames);
    let counters = interface.counters();
    drop(interface);

    let fit: Vec<_> = frames.iter().filter(|frame| frame.len() <= 1_514).collect();
    let bytes = |frames: &[&Vec<u8>]| frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    assert_eq!(
        (counters.received, counters.received_bytes),
        (200, bytes(&frames.iter().collect::<Vec<_>>()))
    );
    assert_eq!((counters.sent, counters.sent_bytes), (fit.len() as u64, bytes(&fit)));
    assert_eq!(counters.too_long, (frames.len() - fit.len()) as u64);
    assert_eq!((counters.no_room, counters.down, counters.unreadable, counters.missed), (0, 0, 0, 0));
    assert!(read(&left).iter().collect::<Vec<_>>() == fit);
}

#[test]
fn frames_without_room_in_a_device_are_counted() {
    let mut interface = Interface::open(&device("net_ring0")).unwrap();
    let room = usize::from(dpdk::RING) - 1;
    let frames: Vec<_> = (0..room + 100).map(|i| frame(60 + i % 1_000, i as u8)).collect();
    send(&mut interface, &frames);
    assert!(received(&mut interface, room) == frames[..room]);
    let counters = interface.counters();
    assert_eq!((counters.sent, counters.no_room), (room as u64, 100));
    // There is room again.
    send(&mut interface, &frames[..100]);
    assert!(received(&mut interface, 100) == frames[..100]);
}

#[test]
fn open_checksums_are_completed() {
    // UDP over IPv4 with the pseudo-header's sum in its field.
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0x66, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2]);
    let pseudo = packet::checksum::pseudo_header_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, 12);
    let open = !packet::checksum::finish(pseudo);
    frame.extend([0, 1, 0, 2, 0, 12]);
    frame.extend(open.to_be_bytes());
    frame.extend(*b"abcd");
    let mut interface = Interface::open(&device("net_ring1")).unwrap();
    send(&mut interface, std::slice::from_ref(&frame));
    let came = received(&mut interface, 1).remove(0);
    assert_ne!(came, frame);
    let sum = pseudo + packet::checksum::sum(&came[34..]);
    assert!(packet::checksum::verify(sum));
    assert_eq!(interface.counters().completed, 1);
}

#[test]
fn each_part_has_a_queue_while_there_are_some() {
    // A device with many queues, each with an endless supply of frames of 64 bytes.
    let parts = Interface::open_parts(&device("net_null0"), 3).unwrap();
    let work = |mut part: Interface| {
        assert!(part.is_polled());
        let came = received(&mut part, 1_000);
        assert!(came.len() >= 1_000 && came.iter().all(|frame| frame.len() == 64));
        send(&mut part, &came);
        let counters = part.counters();
        assert_eq!((counters.received, counters.sent), (came.len() as u64, came.len() as u64));
    };
    thread::scope(|scope| parts.into_iter().for_each(|part| drop(scope.spawn(move || work(part)))));

    // A device with a single queue: the first part receives, all send.
    let dir = tempfile::tempdir().unwrap();
    let frames: Vec<_> = (0..3).map(|i| frame(100, i)).collect();
    let (came, left) = (dir.path().join("came.pcap"), dir.path().join("left.pcap"));
    write(&came, &frames);
    let text = format!("net_pcap1,rx_pcap={},tx_pcap={}", came.display(), left.display());
    let mut parts = Interface::open_parts(&device(&text), 3).unwrap();
    assert_eq!(parts.iter().map(Interface::is_polled).collect::<Vec<_>>(), [true, false, false]);
    assert!(received(&mut parts[0], 3) == frames);
    for (part, frame) in parts.iter_mut().zip(&frames) {
        part.receive(|_| panic!("it has no queue, or nothing more comes")).unwrap();
        send(part, std::slice::from_ref(frame));
    }
    drop(parts);
    assert!(read(&left) == frames);
}

#[test]
fn a_device_belongs_to_one_port_and_ends_with_it() {
    let null = device("net_null1");
    let first = Interface::open(&null).unwrap();
    let error = Interface::open(&null).err().unwrap();
    assert!(error.to_string().contains("already"), "{error}");
    drop(first);
    drop(Interface::open(&null).unwrap());
}

#[test]
fn missing_devices_are_reported() {
    let error = Interface::open(&device("nothing0")).err().unwrap();
    assert!(error.to_string().contains("no driver"), "{error}");
    let error = Interface::open(&device("net_pcap7,nothing=0")).err().unwrap();
    assert!(error.to_string().contains("DPDK"), "{error}");
    device("net_null0");
    let error = Interface::open(&spec("ff:1f.7")).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("0000:ff:1f.7"), "{error}");
}

#[test]
fn dpdk_has_its_own_thread_and_keeps_our_affinity() {
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    device("net_null0");
    let after = rustix::thread::sched_getaffinity(None).unwrap();
    assert!(before == after);
    let own = dpdk_thread();
    assert_ne!(own, thread::current().id());
    assert_eq!(dpdk_thread(), own);
    assert!(driver().check(CapabilitySet::empty()).found.starts_with("DPDK "));
}
