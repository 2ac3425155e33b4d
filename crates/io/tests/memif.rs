//! Ports of shared memory against each other, and against malicious peers. `crates/cli/tests/live`
//! has other implementations.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use io::port::{Interface, PortSpec, TransmitBurst, memif};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recv, sendmsg, socket_with,
};

const SERVER: &str = "role=server";
const CLIENT: &str = "role=client";

/// Returns an abstract socket of this test.
fn spec(name: &str, keys: &str) -> PortSpec {
    format!("memif:@rivulet-io-{name}-{},{keys}", std::process::id()).parse().unwrap()
}

fn open(name: &str, keys: &str) -> Interface {
    Interface::open(&spec(name, keys)).unwrap()
}

/// Receives a batch.
fn receive(interface: &mut Interface) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    interface.receive(|frame| frames.push(frame.to_vec())).unwrap();
    frames
}

fn send(interface: &mut Interface, frames: &[Vec<u8>]) {
    let mut outbox = TransmitBurst::default();
    for frame in frames {
        outbox.push(frame);
    }
    interface.send(&mut outbox);
}

fn is_up(interface: &Interface) -> bool {
    interface.link().unwrap().is_up
}

/// Runs all interfaces until a condition holds; no frame may arrive.
fn until(interfaces: &mut [&mut Interface], what: &str, is_so: impl Fn(&[&mut Interface]) -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !is_so(interfaces) {
        assert!(Instant::now() < end, "waited in vain until {what}");
        for interface in &mut *interfaces {
            // As long as no server listens, there is an error.
            let _ = interface.reopen();
            let _ = interface.sockets();
            assert!(receive(interface).is_empty());
        }
    }
}

fn connected(name: &str) -> (Interface, Interface) {
    let mut server = open(name, SERVER);
    let mut client = open(name, CLIENT);
    until(&mut [&mut server, &mut client], "both are up", |all| all.iter().all(|end| is_up(end)));
    (server, client)
}

fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7) as u8).collect()
}

#[test]
fn frames_in_both_directions_are_counted() {
    let (mut server, mut client) = connected("both");
    assert_eq!((server.driver().name, client.mode()), ("memif", "memif"));
    assert_ne!(server.link().unwrap().address, client.link().unwrap().address);
    for lap in 0..100 {
        let there: Vec<_> = (0..lap % 65).map(|i| frame(60 + i * 20, lap)).collect();
        let back: Vec<_> = (0..64 - lap % 65).map(|i| frame(60 + i, lap + 1)).collect();
        send(&mut client, &there);
        send(&mut server, &back);
        assert_eq!(receive(&mut server), there);
        assert_eq!(receive(&mut client), back);
    }
    let (at_server, at_client) = (server.counters(), client.counters());
    assert_eq!((at_server.received, at_server.sent), (at_client.sent, at_client.received));
    assert_eq!(
        (at_server.received_bytes, at_server.sent_bytes),
        (at_client.sent_bytes, at_client.received_bytes)
    );
    assert!(at_client.sent > 1_000 && at_server.sent > 1_000);
}

#[test]
fn frames_that_do_not_fit_are_counted_and_lost() {
    let mut server = open("lost", "role=server,mtu=1400");
    send(&mut server, &[frame(60, 0), frame(60, 1)]);
    assert_eq!(server.counters().down, 2);
    let mut client = open("lost", "role=client,rsize=4,bsize=128,mtu=9000");
    until(&mut [&mut server, &mut client], "both are up", |all| all.iter().all(|end| is_up(end)));
    // A VLAN tag comes on top of the MTU.
    let mut tagged = frame(1_418, 0);
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    send(&mut server, &[frame(1_414, 0), frame(1_415, 0), tagged]);
    assert_eq!(server.counters().too_long, 1);
    // Of 16 buffers of 128 bytes each, the first frame takes 12.
    assert_eq!((server.counters().sent, server.counters().no_room), (1, 1));
    assert_eq!(receive(&mut client), [frame(1_414, 0)]);
    send(&mut client, &[frame(2_048, 0), frame(60, 0)]);
    assert_eq!(client.counters().no_room, 1);
    assert_eq!(receive(&mut server), [frame(2_048, 0)]);
}

#[test]
fn a_lost_peer_is_reported_and_may_reconnect() {
    let (mut server, mut client) = connected("gone");
    send(&mut client, &[frame(60, 0)]);
    drop(client);
    // Its last frame may be lost with it; the link goes down.
    until_down(&mut server);
    let why = server.take_reason().unwrap();
    assert_eq!(why, "the other end: interface closed");
    send(&mut server, &[frame(60, 1)]);
    assert_eq!(server.counters().down, 1);
    let mut client = open("gone", CLIENT);
    until(&mut [&mut server, &mut client], "both are up again", |all| all.iter().all(|end| is_up(end)));
    assert!(server.take_link_change() && !server.take_link_change());
    send(&mut server, &[frame(60, 2)]);
    assert_eq!(receive(&mut client), [frame(60, 2)]);
    let before = client.counters();

    drop(server);
    until_down(&mut client);
    assert!(!client.reopen().unwrap(), "it waits before it calls");
    std::thread::sleep(Duration::from_millis(memif::PAUSE_MS));
    assert_eq!(client.reopen().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let mut server = open("gone", SERVER);
    until(&mut [&mut server, &mut client], "both are up once more", |all| all.iter().all(|end| is_up(end)));
    assert_eq!(client.counters(), before, "counters go on");
    send(&mut client, &[frame(60, 3)]);
    assert_eq!(receive(&mut server), [frame(60, 3)]);
}

fn until_down(interface: &mut Interface) {
    let end = Instant::now() + Duration::from_secs(90);
    while is_up(interface) {
        assert!(Instant::now() < end);
        let _ = interface.sockets();
        receive(interface);
    }
}

#[test]
fn a_sleeping_end_is_woken_by_a_frame_and_by_the_end_of_the_peer() {
    let (mut server, mut client) = connected("woken");
    let is_woken = |interface: &Interface| {
        let waits: Vec<_> = interface.sockets();
        let mut waits: Vec<_> = waits.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let moment = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut waits, Some(&moment)).unwrap() > 0
    };
    for _ in 0..3 {
        assert!(!is_woken(&server) && !is_woken(&client));
        send(&mut client, &[frame(60, 0)]);
        send(&mut server, &[frame(60, 1)]);
        assert!(is_woken(&server) && is_woken(&client));
        assert_eq!((receive(&mut server).len(), receive(&mut client).len()), (1, 1));
    }
    // Frames that arrived before it slept wake it, too.
    send(&mut client, &[frame(60, 0)]);
    receive(&mut server);
    send(&mut client, &[frame(60, 0)]);
    assert!(is_woken(&server));
    receive(&mut server);
    drop(client);
    assert!(is_woken(&server));
    receive(&mut server);
    assert!(!is_up(&server));
}

#[test]
fn all_parts_send_and_the_first_one_receives() {
    let mut parts = Interface::open_parts(&spec("parts", SERVER), 3).unwrap();
    let mut client = open("parts", CLIENT);
    let [first, others @ ..] = &mut parts[..] else { panic!("there are three") };
    until(&mut [first, &mut client], "both are up", |all| all.iter().all(|end| is_up(end)));
    for (number, part) in others.iter_mut().enumerate() {
        assert!(is_up(part) && part.sockets().is_empty());
        send(part, &[frame(60, number)]);
    }
    assert_eq!(receive(&mut client), [frame(60, 0), frame(60, 1)]);
    send(&mut client, &[frame(60, 2)]);
    assert!(others.iter_mut().all(|part| receive(part).is_empty()));
    assert_eq!(receive(first), [frame(60, 2)]);
}

/// A peer that sends arbitrary messages.
struct Stranger(OwnedFd);

impl Stranger {
    fn call(name: &str) -> Stranger {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let name = format!("rivulet-io-{name}-{}", std::process::id());
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        Stranger(socket)
    }

    fn say(&self, kind: u16, fields: &[u8], file: Option<BorrowedFd<'_>>) {
        let mut bytes = [0; 128];
        bytes[..2].copy_from_slice(&kind.to_ne_bytes());
        bytes[2..2 + fields.len()].copy_from_slice(fields);
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        let files = [file.unwrap_or(self.0.as_fd())];
        if file.is_some() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(&files)));
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL).unwrap();
    }

    /// Runs the server, and returns its next message: kind, and reason if it is a disconnect.
    fn hear(&self, server: &mut Interface) -> (u16, String) {
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            let _ = server.sockets();
            receive(server);
            let mut bytes = [0; 128];
            let flags = rustix::net::RecvFlags::DONTWAIT;
            match recv(&self.0, &mut bytes, flags) {
                Ok((128, _)) => {
                    let kind = u16::from_ne_bytes([bytes[0], bytes[1]]);
                    let said = bytes[6..102].iter().take_while(|&&byte| byte != 0);
                    return (kind, said.map(|&byte| byte as char).collect());
                }
                Ok(_) => return (0, String::new()),
                Err(_) => assert!(Instant::now() < end, "nothing is said"),
            }
        }
    }

    /// Sends a client's whole handshake, with `bytes` of memory after two rings of eight
    /// descriptors.
    fn connect(name: &str, server: &mut Interface, rings: &[u8; 512]) -> (Stranger, OwnedFd) {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memory, 4_096).unwrap();
        fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
        rustix::io::pwrite(&memory, rings, 0).unwrap();
        let stranger = Stranger::call(name);
        assert_eq!(stranger.hear(server).0, HELLO);
        let ring = |flags: u16, offset: u32| {
            [&flags.to_ne_bytes()[..], &[0; 4], &offset.to_ne_bytes(), &[3, 0, 0]].concat()
        };
        let bell = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut region = vec![0; 2];
        region.extend(4_096u64.to_ne_bytes());
        let mut init = vec![0, 2];
        init.extend([0; 60]);
        for (kind, fields, file) in [
            (INIT, init, None),
            (ADD_REGION, region, Some(memory.try_clone().unwrap())),
            (ADD_RING, ring(1, 0), Some(bell())),
            (ADD_RING, ring(0, 256), Some(bell())),
        ] {
            stranger.say(kind, &fields, file.as_ref().map(AsFd::as_fd));
            assert_eq!(stranger.hear(server), (ACK, String::new()));
        }
        stranger.say(CONNECT, b"test", None);
        assert_eq!(stranger.hear(server).0, CONNECTED);
        (stranger, memory)
    }
}

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// Returns two empty rings of eight descriptors.
fn rings() -> [u8; 512] {
    let mut rings = [0; 512];
    for at in [0, 256] {
        rings[at..at + 4].copy_from_slice(&0x03e3_1f20u32.to_ne_bytes());
    }
    rings
}

#[test]
fn garbage_is_refused_with_a_reason_and_other_peers_may_connect() {
    let mut server = open("garbage", SERVER);
    for (kind, fields, why) in [
        (0, &[][..], "unknown message"),
        (CONNECT, &[], "unexpected message"),
        (77, &[1, 2, 3], "unknown message"),
        (INIT, &[9, 9], "unknown version"),
        (INIT, &[0, 2, 5], "there is no interface 5 here"),
    ] {
        let stranger = Stranger::call("garbage");
        assert_eq!(stranger.hear(&mut server).0, HELLO);
        stranger.say(kind, fields, None);
        assert_eq!(stranger.hear(&mut server), (DISCONNECT, why.to_owned()));
        assert_eq!(server.take_reason(), Some(format!("refused: {why}")));
        assert!(!is_up(&server));
    }
    // The same reason is not reported twice.
    let stranger = Stranger::call("garbage");
    assert_eq!(stranger.hear(&mut server).0, HELLO);
    stranger.say(INIT, &[0, 2, 5], None);
    assert_eq!(stranger.hear(&mut server), (DISCONNECT, "there is no interface 5 here".to_owned()));
    assert_eq!(server.take_reason(), None);
    // One byte is no message.
    let stranger = Stranger::call("garbage");
    assert_eq!(stranger.hear(&mut server).0, HELLO);
    rustix::net::send(&stranger.0, &[1], SendFlags::NOSIGNAL).unwrap();
    assert_eq!(stranger.hear(&mut server), (DISCONNECT, "invalid message size".to_owned()));
    // A silent peer is dropped soon.
    let silent = Stranger::call("garbage");
    assert_eq!(silent.hear(&mut server).0, HELLO);
    assert_eq!(silent.hear(&mut server), (DISCONNECT, "it sends nothing".to_owned()));

    let mut client = open("garbage", CLIENT);
    until(&mut [&mut server, &mut client], "both are up", |all| all.iter().all(|end| is_up(end)));
    // A peer is connected already.
    let mut other = open("garbage", CLIENT);
    let _ = server.sockets();
    receive(&mut server);
    let _ = receive(&mut other);
    assert_eq!(other.take_reason(), Some("the other end: already connected".to_owned()));
    assert!(!is_up(&other) && other.take_link_change());
    let third = Stranger::call("garbage");
    assert_eq!(third.hear(&mut server), (DISCONNECT, "already connected".to_owned()));
    send(&mut client, &[frame(60, 0)]);
    assert_eq!(receive(&mut server), [frame(60, 0)]);
}

#[test]
fn malicious_memory_only_ends_the_connection() {
    let mut server = open("harm", SERVER);
    let (head, tail_back) = (6, 256 + 6);
    let descriptor = |region: u16, len: u32, offset: u32| {
        [&[0, 0][..], &region.to_ne_bytes(), &len.to_ne_bytes(), &offset.to_ne_bytes(), &[0; 4]].concat()
    };
    let harms: [(usize, u16, Option<Vec<u8>>, &str); 5] = [
        (head, 9, None, "an index of its ring is out of range"),
        (head, 1, Some(descriptor(0, 60, 4_090)), "a buffer is outside of its memory"),
        (head, 1, Some(descriptor(0, u32::MAX, u32::MAX)), ""),
        (head, 1, Some(descriptor(3, 60, 0)), "a buffer is outside of its memory"),
        (tail_back, 60_000, None, "an index of its ring is out of range"),
    ];
    for (at, number, first, why) in harms {
        let (stranger, memory) = Stranger::connect("harm", &mut server, &rings());
        assert!(is_up(&server));
        let _ = server.take_reason();
        if let Some(first) = first {
            rustix::io::pwrite(&memory, &first, 128).unwrap();
        }
        rustix::io::pwrite(&memory, &number.to_ne_bytes(), at as u64).unwrap();
        let before = server.counters();
        receive(&mut server);
        send(&mut server, &[frame(60, 0)]);
        if why.is_empty() {
            // A frame that long is unreadable, wherever it is.
            assert_eq!(server.counters().unreadable, before.unreadable + 1);
            drop(stranger);
            until_down(&mut server);
            continue;
        }
        assert_eq!(stranger.hear(&mut server), (DISCONNECT, why.to_owned()));
        assert_eq!(server.take_reason(), Some(format!("refused: {why}")));
        assert_eq!(server.counters().received, before.received);
    }
    // It cannot be truncated while it is in use.
    let (_stranger, memory) = Stranger::connect("harm", &mut server, &rings());
    assert!(ftruncate(&memory, 0).is_err());
}

#[test]
fn a_socket_in_use_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let open =
        |path: &std::path::Path| Interface::open(&format!("memif:{}", path.display()).parse().unwrap());
    let server = open(&path).unwrap();
    let error = |path: &std::path::Path| open(path).err().unwrap();
    assert_eq!(error(&path).kind(), ErrorKind::AddrInUse);
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert_eq!(error(&dir.path().join("file")).kind(), ErrorKind::AlreadyExists);
    assert_eq!(error(&dir.path().join("none/a.sock")).kind(), ErrorKind::NotFound);
    drop(server);
    assert!(!path.exists());
}
