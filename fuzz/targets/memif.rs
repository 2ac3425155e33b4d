//! A peer of a shared-memory port that sends any message and writes anything into the memory: the
//! port continues or closes, and each outgoing frame is accounted for.

#![no_main]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use io::port::{Interface, TransmitBurst};
use libfuzzer_sys::fuzz_target;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with,
};

const MEMORY: u64 = 8_192;
const COOKIE: u32 = 0x03e3_1f20;

static COUNT: AtomicU64 = AtomicU64::new(0);

struct Peer(OwnedFd);

impl Peer {
    fn say(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        let files = [file.unwrap_or(self.0.as_fd())];
        if file.is_some() {
            beside.push(SendAncillaryMessage::ScmRights(&files));
        }
        let _ =
            sendmsg(&self.0, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// A message of this kind with these fields.
fn message(kind: u16, fields: &[u8]) -> [u8; 128] {
    let mut message = [0; 128];
    message[..2].copy_from_slice(&kind.to_ne_bytes());
    message[2..].iter_mut().zip(fields).for_each(|(to, from)| *to = *from);
    message
}

/// Lets the port continue, as its driver does.
fn go_on(port: &mut Interface, sent: &mut u64) {
    let _ = port.sockets();
    let _ = port.receive(|frame| assert!(!frame.is_empty()));
    let mut outbox = TransmitBurst::default();
    for len in [60, 300] {
        outbox.push(&vec![7; len]);
        *sent += 1;
    }
    port.send(&mut outbox);
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, mut rest)) = data.split_first() else { return };
    let name = format!("rivulet-fuzz-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let mut port = Interface::open(&format!("memif:@{name}").parse().expect("a socket")).expect("a name of its own");
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let peer = Peer(socket.expect("a socket"));
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a short name");
    connect(&peer.0, &address).expect("it listens");
    let memory = memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
    ftruncate(&memory, MEMORY).expect("memory");
    fcntl_add_seals(&memory, SealFlags::SHRINK).expect("memory");
    let bell = eventfd(0, EventfdFlags::NONBLOCK).expect("a bell");
    let mut sent = 0;

    if mode & 1 != 0 {
        // As a client does, with rings of 2 to 16 descriptors.
        let log2 = 1 + (mode >> 1 & 3);
        let ring = |to_server: u16, offset: u32| {
            [&to_server.to_ne_bytes()[..], &[0; 4], &offset.to_ne_bytes(), &[log2, 0, 0]].concat()
        };
        for offset in [0, 1_024] {
            let _ = rustix::io::pwrite(&memory, &COOKIE.to_ne_bytes(), offset);
        }
        let region = [&[0; 2][..], &MEMORY.to_ne_bytes()].concat();
        go_on(&mut port, &mut sent);
        for (kind, fields, file) in [
            (3, vec![0, 2], None),
            (4, region, Some(memory.as_fd())),
            (5, ring(1, 0), Some(bell.as_fd())),
            (5, ring(0, 1_024), Some(bell.as_fd())),
            (6, Vec::new(), None),
        ] {
            peer.say(&message(kind, &fields), file);
            go_on(&mut port, &mut sent);
        }
        assert!(port.link().is_ok_and(|link| link.is_up), "nothing was wrong so far");
    }
    while let [kind, at, len, bytes @ ..] = rest {
        let (these, behind) = bytes.split_at(usize::from(*len).min(bytes.len()));
        rest = behind;
        match kind % 4 {
            // Contents of the memory.
            0 | 1 => {
                let _ =
                    rustix::io::pwrite(&memory, these, u64::from(*at) * if kind & 4 == 0 { 2 } else { 16 });
            }
            2 => {
                let file = [None, Some(memory.as_fd()), Some(bell.as_fd()), Some(peer.0.as_fd())]
                    [usize::from(at & 3)];
                peer.say(&message(u16::from(at >> 2) % 10, these), file);
            }
            _ => peer.say(these, None),
        }
        go_on(&mut port, &mut sent);
    }
    let counted = port.counters();
    assert_eq!(sent, counted.sent + counted.no_room + counted.too_long + counted.down);
});
