//! Network interfaces of this machine, through packet sockets (`AF_PACKET`): frames in and out as they are on a wire.
//!
//! An [`Interface`] takes all that comes in by a network interface and sends through it, whatever kind it is: a card, a
//! veth, a TAP, a bridge. The interface's own configuration stays as it is, but for promiscuous mode, which ends with it.
//! What senders and the kernel leave to cards is done here: open checksums are completed, frames of several segments
//! are cut, and VLAN tags that were taken out are put back.

mod offload;
mod sys;

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use sys::Link;

/// What an interface has done, in frames and bytes as on a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received, each segment counted.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that the kernel dropped, as they came faster than they were taken.
    pub missed: u64,
    /// Frames longer than 65,543 bytes, or that do not fit what the kernel says of them.
    pub unreadable: u64,
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames not sent: longer than the interface takes.
    pub too_long: u64,
    /// Frames not sent: the interface had no room for more.
    pub no_room: u64,
    /// Frames not sent: the interface was down or gone.
    pub down: u64,
}

impl Counters {
    /// Where a frame is counted that was not sent.
    fn of_unsent(&mut self, error: &Error) -> &mut u64 {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => &mut self.too_long,
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => &mut self.no_room,
            _ => &mut self.down,
        }
    }
}

/// What anybody may know of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its link.
    pub link: Link,
    /// Whether the system has an IPv4 address there.
    pub has_ipv4: bool,
    /// Whether the system has an IPv6 address there that is not link-local.
    pub has_ipv6: bool,
}

/// What the interface with this name is like; it takes no capability.
///
/// # Errors
/// If there is none.
pub fn facts(name: &str) -> Result<Facts> {
    let socket = OwnedFd::from(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?);
    let link = sys::link(&socket, name)?;
    // Lines of address, number, prefix length, scope, flags and name; of scope 0, which is global (proc(5)).
    let addresses = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let has_ipv6 = addresses.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(3) == Some(&"00") && fields.get(5) == Some(&name)
    });
    Ok(Facts { link, has_ipv4: sys::has_ipv4(&socket, name), has_ipv6 })
}

/// A network interface, opened to receive and send.
pub struct Interface {
    name: String,
    number: u32,
    socket: OwnedFd,
    inbox: sys::Inbox,
    /// A segment that is cut off a frame.
    segment: Vec<u8>,
    counters: Counters,
}

/// Frames that are to be sent together.
#[derive(Debug, Default)]
pub struct Outbox {
    /// One behind the other.
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

impl Outbox {
    /// Puts a frame behind the others; what is there of it may be changed.
    pub fn push(&mut self, frame: &[u8]) -> &mut [u8] {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        self.lens.push(frame.len());
        &mut self.bytes[at..]
    }

    /// Takes the last frame away again.
    pub fn pop(&mut self) {
        let len = self.lens.pop().unwrap_or(0);
        self.bytes.truncate(self.bytes.len() - len);
    }
}

impl Interface {
    /// Opens the interface with this name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::PermissionDenied`] without the capability `CAP_NET_RAW`,
    /// [`ErrorKind::Unsupported`] if it is not an Ethernet, and others of the system.
    pub fn open(name: &str) -> Result<Interface> {
        let Some(number) = sys::interface_number(name) else {
            return Err(Error::new(ErrorKind::NotFound, "there is no such interface"));
        };
        let socket = sys::open(number)?;
        if sys::link(&socket, name)?.address.is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "it is not an Ethernet"));
        }
        Ok(Interface {
            name: name.to_owned(),
            number,
            socket,
            inbox: sys::Inbox::new(),
            segment: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it has done so far.
    pub fn counters(&mut self) -> Counters {
        self.counters.missed += sys::take_drops(&self.socket).unwrap_or(0);
        self.counters
    }

    /// What its link is like now.
    ///
    /// # Errors
    /// If it is gone.
    pub fn link(&self) -> Result<Link> {
        sys::link(&self.socket, &self.name)
    }

    /// Opens it anew if the interface that had this name is gone, and another one has it now; counters go on. Whether so.
    ///
    /// # Errors
    /// Those of [`Interface::open`], as long as there is none.
    pub fn reopen(&mut self) -> Result<bool> {
        if sys::interface_number(&self.name) == Some(self.number) {
            return Ok(false);
        }
        let mut new = Interface::open(&self.name)?;
        new.counters = self.counters();
        *self = new;
        Ok(true)
    }

    /// Hands the frames over that have come, up to 64 of them as the kernel counts; without them, none, at once.
    ///
    /// # Errors
    /// [`ErrorKind::NetworkDown`] when the interface went down or is gone, and others of the system.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8])) -> Result<()> {
        let count = match self.inbox.receive(&self.socket) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                // One that is cut in a way which the kernel cannot tell of: it is lost.
                self.counters.unreadable += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for at in 0..count {
            let counters = &mut self.counters;
            let told = offload::plain(self.inbox.frame(at), &mut self.segment, |frame| {
                counters.received += 1;
                counters.received_bytes += frame.len() as u64;
                each(frame);
            });
            self.counters.unreadable += u64::from(told.is_err());
        }
        Ok(())
    }

    /// Sends what is in the outbox, and empties it. What the interface does not take is counted, and lost: as on a wire,
    /// senders notice.
    pub fn send(&mut self, outbox: &mut Outbox) {
        let (mut bytes, mut lens) = (&outbox.bytes[..], &outbox.lens[..]);
        let mut has_waited = false;
        while !lens.is_empty() {
            let gone = match sys::send(&self.socket, bytes, lens) {
                Ok(sent) => {
                    self.counters.sent += sent as u64;
                    self.counters.sent_bytes += lens[..sent].iter().sum::<usize>() as u64;
                    sent
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => 0,
                    ErrorKind::WouldBlock if !has_waited => {
                        has_waited = true;
                        self.wait_for_room();
                        0
                    }
                    _ => {
                        *self.counters.of_unsent(&error) += 1;
                        1
                    }
                },
            };
            bytes = &bytes[lens[..gone].iter().sum::<usize>()..];
            lens = &lens[gone..];
        }
        outbox.bytes.clear();
        outbox.lens.clear();
    }

    /// Gives the interface a moment to send what it has.
    #[cold]
    fn wait_for_room(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // Whatever comes of it, the frames are tried again.
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&MOMENT));
    }
}

impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
