//! Network interfaces of this machine: frames in and out as they are on a wire.
//!
//! An [`Interface`] takes all that comes in by a network interface and sends through it, whatever
//! kind it is: a card, a veth, a bridge. The interface's own configuration stays as it is, but for
//! promiscuous mode and an XDP program, which end with it. There are two ways, of which the rest of
//! the system knows no more than their names: AF_XDP is the faster one, packet sockets are for
//! every interface. A third one is to be an interface: a TAP device, at whose other end the
//! machine's own stack is; a fourth one, memory shared with another process, goes without the
//! kernel; and so does a fifth one, in programs that are built with it, DPDK. What senders and the
//! kernel leave to cards is done here: open checksums are completed, frames of several segments are
//! cut, and VLAN tags that were taken out are put back. On the way out, segments that follow each
//! other are left to be cut again, where there is a way to say so.

mod dpdk;
mod ethtool;
mod join;
mod link;
mod memif;
mod news;
#[cfg(not(fuzzing))]
mod offload;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod offload;
mod open_checksum;
mod packet_socket;
mod sys;
mod tap;
mod xdp;

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use packet::wire::{EtherType, ethernet, vlan};

use dpdk::Dpdk;
use ethtool::Driver;
use memif::Memif;
use packet_socket::PacketSocket;
use tap::Tap;
use xdp::{Attachment, Program, Xdp};

pub use dpdk::{
    DPDK_BUFFERS, DPDK_MEMORY_MIB, DPDK_RING, Device as DpdkDevice, begin as begin_dpdk,
    has_huge_pages as dpdk_has_huge_pages, on_thread as on_dpdk_thread, version as dpdk_version,
};
pub use link::Link;
pub use memif::{
    CALL_MS_MAX as MEMIF_CALL_MAX_MS, CALLS_LATER as MEMIF_CALLS_LATER, Config as MemifConfig,
    ConfigError as MemifConfigError, PAUSE_MS as MEMIF_PAUSE_MS, REGION_BYTES_MAX as MEMIF_REGION_MAX_BYTES,
    REGIONS_MAX as MEMIF_REGIONS_MAX, Role as MemifRole,
};
pub use news::LinkNews;
pub use tap::why_not as why_no_tap;
pub use xdp::{CALLS_LATER as BPF_CALLS_LATER, QUEUE_MAX, QUEUE_MIN, QUEUES_MAX, SENDING_MAX, WAITING_MAX};

/// By which way frames are to come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// AF_XDP where nothing is lost by it, else packet sockets.
    #[default]
    Auto,
    /// AF_XDP, or none.
    Xdp,
    /// Packet sockets.
    PacketSocket,
}

/// By which way frames come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// A packet socket.
    PacketSocket,
    /// AF_XDP in the interface's driver; the card has its frames in memory that is shared.
    XdpDriverZeroCopy,
    /// AF_XDP in the interface's driver; the kernel copies frames.
    XdpDriverCopy,
    /// AF_XDP in the kernel, behind the interface's driver.
    XdpGenericCopy,
    /// The other end of a TAP device.
    Tap,
    /// A device of DPDK's.
    Dpdk,
    /// Memory that is shared with another process.
    Memif,
}

impl Io {
    /// As reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Io::PacketSocket => "packet-socket",
            Io::XdpDriverZeroCopy => "xdp-driver-zero-copy",
            Io::XdpDriverCopy => "xdp-driver-copy",
            Io::XdpGenericCopy => "xdp-generic-copy",
            Io::Tap => "tap",
            Io::Dpdk => "dpdk",
            Io::Memif => "memif",
        }
    }

    /// Whether it is AF_XDP, in one of its ways.
    pub const fn is_xdp(self) -> bool {
        matches!(self, Io::XdpDriverZeroCopy | Io::XdpDriverCopy | Io::XdpGenericCopy)
    }
}

/// What an interface has done, in frames and bytes as on a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received, each segment counted.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that came with checksums which their sender had left open, and which were completed;
    /// each before it was cut.
    pub completed: u64,
    /// Frames that the kernel, or a device, dropped, as they came faster than they were taken.
    pub missed: u64,
    /// Frames longer than 65,543 bytes, that do not fit what the kernel says of them, or that a
    /// device of DPDK's found damaged.
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
    fn received(&mut self, frame: &[u8]) {
        self.received += 1;
        self.received_bytes += frame.len() as u64;
    }
}

/// What anybody may know of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its link.
    pub link: Link,
    /// Whether the system has an IPv4 address there.
    pub has_ipv4: bool,
    /// Whether the system has an IPv6 address there that is not link-local.
    pub has_ipv6: bool,
    /// Why [`Choice::Auto`] does not take AF_XDP there, as far as can be told without trying.
    pub why_not_xdp: Option<String>,
}

/// What the interface with this name is like; it takes no capability.
///
/// # Errors
/// If there is none.
pub fn facts(name: &str) -> Result<Facts> {
    let socket = OwnedFd::from(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?);
    let link = link::link(&socket, name)?;
    let (has_ipv4, has_ipv6) = (link::has_ipv4(&socket, name), link::has_ipv6(name));
    let why_not_xdp = why_not_xdp(&socket, name)
        .or_else(|| xdp::Shape::of(&socket, name).err().map(|error| error.to_string()));
    Ok(Facts { link, has_ipv4, has_ipv6, why_not_xdp })
}

/// Why no interface of this machine can be opened by AF_XDP, whatever it is like and whoever asks;
/// none if that is not so.
pub fn why_no_xdp_at_all() -> Option<String> {
    let error = xdp::probe().err()?;
    // That only others may is not the machine's fault.
    (error.kind() != ErrorKind::PermissionDenied).then(|| format!("the kernel has no such sockets: {error}"))
}

/// Why an interface is not for AF_XDP unless that is asked for: what would be lost there, or cut
/// off.
fn why_not_xdp(socket: &OwnedFd, name: &str) -> Option<String> {
    if link::has_ipv4(socket, name) || link::has_ipv6(name) {
        return Some("the system has addresses there, and would hear nothing".to_owned());
    }
    match ethtool::driver(socket, name) {
        Driver::Device => ethtool::takes_tags(socket, name)
            .then(|| format!("it takes VLAN tags out of frames (`ethtool -K {name} rxvlan off`)")),
        // At the other end of a veth what a card is to do is left to one that is not there: tags as
        // well as segments.
        Driver::Virtual if std::path::Path::new("/proc/net/vlan").exists() => {
            Some("VLAN tags of this machine's own interfaces for VLANs would be lost".to_owned())
        }
        Driver::Virtual => ethtool::takes_segments(socket, name).then(|| {
            format!("this machine's own TCP would come cut into segments (`ethtool -K {name} tso off`)")
        }),
    }
}

/// A network interface, opened to receive and send; or a part of it, which has a part of what
/// comes.
pub struct Interface {
    name: String,
    number: u32,
    choice: Choice,
    way: Way,
    why_not_xdp: Option<Error>,
    counters: Counters,
    part: usize,
    parts: Arc<Parts>,
}

/// All parts of an interface.
struct Parts {
    count: usize,
    opened: Mutex<Opened>,
}

/// What those parts of an interface have in common that are open.
#[derive(Default)]
struct Opened {
    /// The interface's number. Another one of the same name has another one.
    number: u32,
    /// The group of their packet sockets, among which the kernel shares out what comes.
    group: Option<u16>,
    /// The program, for as long as a part has it at work.
    attached: Weak<Attachment>,
    /// The program, which was loaded once.
    program: Option<Arc<Program>>,
}

enum Way {
    PacketSocket(PacketSocket),
    Xdp(Box<Xdp>),
    Tap(Tap),
    Dpdk(Box<Dpdk>),
    Memif(Box<Memif>),
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

    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        self.lens.iter().map(move |&len| rest.split_off(..len).unwrap_or_default())
    }
}

impl Interface {
    /// Opens the interface with this name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::PermissionDenied`] without the
    /// capability `CAP_NET_RAW`, [`ErrorKind::Unsupported`] if it is not an Ethernet, or not for
    /// AF_XDP where that was chosen, and others of the system.
    pub fn open(name: &str, choice: Choice) -> Result<Interface> {
        let parts = Arc::new(Parts { count: 1, opened: Mutex::default() });
        Interface::open_part(name, choice, 0, &parts)
    }

    /// Opens the interface with this name in so many parts, each for a thread of its own. What
    /// comes is shared out among them: by packet sockets, connection by connection, as the kernel's
    /// hash of addresses and ports says, which is the same for both directions; by AF_XDP, receive
    /// queue by receive queue. A part without a queue of its own receives nothing, and sends by a
    /// packet socket.
    ///
    /// # Errors
    /// As of [`Interface::open`].
    pub fn open_parts(name: &str, choice: Choice, count: usize) -> Result<Vec<Interface>> {
        let open = |choice| {
            let parts = Arc::new(Parts { count, opened: Mutex::default() });
            (0..count)
                .map(|part| Interface::open_part(name, choice, part, &parts))
                .collect::<Result<Vec<_>>>()
        };
        let mut opened = open(choice)?;
        let without = opened.iter().find_map(|part| part.why_not_xdp.as_ref()).map(said);
        if let (true, Some(why)) = (opened.iter().any(|part| part.io() != Io::PacketSocket), without) {
            // All go one way.
            drop(opened);
            opened = open(Choice::PacketSocket)?;
            opened.iter_mut().for_each(|part| part.choice = choice);
            opened.iter_mut().take(1).for_each(|part| part.why_not_xdp = Some(said(&why)));
        }
        Ok(opened)
    }

    fn open_part(name: &str, choice: Choice, part: usize, parts: &Arc<Parts>) -> Result<Interface> {
        let Some(number) = link::interface_number(name) else {
            return Err(Error::new(ErrorKind::NotFound, "there is no such interface"));
        };
        let socket = packet_socket::promiscuous(number)?;
        let link = link::link(&socket, name)?;
        if link.address.is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "it is not an Ethernet"));
        }
        let mut opened = parts.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.number != number {
            *opened = Opened { number, program: opened.program.take(), ..Opened::default() };
        }
        let xdp = match (choice, why_not_xdp(&socket, name)) {
            (Choice::PacketSocket, _) => None,
            (Choice::Auto, Some(why)) => Some(Err(Error::new(ErrorKind::Unsupported, why))),
            _ => Some(Xdp::open(number, name, (part, parts.count), &mut opened)),
        };
        let (way, why_not_xdp) = match xdp {
            Some(Ok(xdp)) => (Way::Xdp(Box::new(xdp)), None),
            Some(Err(error)) if choice == Choice::Xdp => return Err(error),
            other => {
                let group = (parts.count > 1).then_some(&mut opened.group);
                (Way::PacketSocket(PacketSocket::open(number, link.mtu, group)?), other.and_then(Result::err))
            }
        };
        Ok(Interface {
            name: name.to_owned(),
            number,
            choice,
            way,
            why_not_xdp,
            counters: Counters::default(),
            part,
            parts: Arc::clone(parts),
        })
    }

    /// Makes a TAP device with this name, set up, which is there as long as this is open; or takes
    /// over the one that is there, which stays, and is left as it is. What the system sends by it
    /// comes here, and what is sent here comes to the system.
    ///
    /// The link of this end has an Ethernet address of its own: the device's, with one bit changed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without `/dev/net/tun`, [`ErrorKind::PermissionDenied`] without the
    /// capability `CAP_NET_ADMIN` if the device is not there, or is another user's; if it is no TAP
    /// device, has several queues, or another program has it; and others of the system.
    pub fn tap(name: &str) -> Result<Interface> {
        let tap = Interface::tap_parts(name, 1)?.pop();
        tap.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "an interface has a part at least"))
    }

    /// The same in so many parts, each for a thread of its own: what comes is all the first one's,
    /// in the order in which it came, and all send.
    ///
    /// # Errors
    /// As of [`Interface::tap`].
    pub fn tap_parts(name: &str, count: usize) -> Result<Vec<Interface>> {
        let (first, number) = Tap::open(name)?;
        let others: Vec<Tap> = (1..count).map(|_| first.sender()).collect::<Result<_>>()?;
        let parts = Arc::new(Parts { count, opened: Mutex::default() });
        let part = |(part, tap)| Interface {
            name: name.to_owned(),
            number,
            choice: Choice::default(),
            way: Way::Tap(tap),
            why_not_xdp: None,
            counters: Counters::default(),
            part,
            parts: Arc::clone(&parts),
        };
        Ok([first].into_iter().chain(others).enumerate().map(part).collect())
    }

    /// Opens one end of an interface of shared memory (memif, version 2), whose other end is in
    /// another process: a switch such as VPP, a program on DPDK, or another one like this. Its link
    /// is up while that is connected.
    ///
    /// # Errors
    /// A server's: [`ErrorKind::AddrInUse`] if another program listens at its socket,
    /// [`ErrorKind::AlreadyExists`] if there is something else; [`ErrorKind::PermissionDenied`] if
    /// it may not, or a client may not call; and others of the system. That nobody listens yet is
    /// none.
    pub fn memif(config: &MemifConfig) -> Result<Interface> {
        let memif = Interface::memif_parts(config, 1)?.pop();
        memif.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "an interface has a part at least"))
    }

    /// The same in so many parts, each for a thread of its own: what comes is all the first one's,
    /// in the order in which it came, and all send.
    ///
    /// # Errors
    /// As of [`Interface::memif`].
    pub fn memif_parts(config: &MemifConfig, count: usize) -> Result<Vec<Interface>> {
        let parts = Arc::new(Parts { count, opened: Mutex::default() });
        let part = |(part, memif)| Interface {
            name: config.name(),
            number: 0,
            choice: Choice::default(),
            way: Way::Memif(Box::new(memif)),
            why_not_xdp: None,
            counters: Counters::default(),
            part,
            parts: Arc::clone(&parts),
        };
        Ok(Memif::open_parts(config, count)?.into_iter().enumerate().map(part).collect())
    }

    /// Opens a device of DPDK's: a card, which a driver gives to programs, or a virtual device,
    /// which is made. DPDK is begun, if [`begin_dpdk`] has not begun it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this was built without the feature `dpdk`,
    /// [`ErrorKind::NotFound`] if there is no such card, and what DPDK says.
    pub fn dpdk(device: &DpdkDevice) -> Result<Interface> {
        let dpdk = Interface::dpdk_parts(device, 1)?.pop();
        dpdk.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "an interface has a part at least"))
    }

    /// The same in so many parts, each for a thread of its own with a pair of queues, among which
    /// the device shares out what comes. Parts beyond the number of its queues receive nothing, and
    /// send by the others'.
    ///
    /// # Errors
    /// As of [`Interface::dpdk`].
    pub fn dpdk_parts(device: &DpdkDevice, count: usize) -> Result<Vec<Interface>> {
        let opened = Dpdk::open_parts(device, count)?;
        let parts = Arc::new(Parts { count, opened: Mutex::default() });
        let part = |(part, dpdk): (usize, Dpdk)| Interface {
            name: dpdk.name().to_owned(),
            number: 0,
            choice: Choice::default(),
            way: Way::Dpdk(Box::new(dpdk)),
            why_not_xdp: None,
            counters: Counters::default(),
            part,
            parts: Arc::clone(&parts),
        };
        Ok(opened.into_iter().enumerate().map(part).collect())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// By which way its frames come and go.
    pub fn io(&self) -> Io {
        match &self.way {
            Way::PacketSocket(_) => Io::PacketSocket,
            Way::Xdp(xdp) => xdp.io(),
            Way::Tap(_) => Io::Tap,
            Way::Dpdk(_) => Io::Dpdk,
            Way::Memif(_) => Io::Memif,
        }
    }

    /// Why [`Choice::Auto`] took packet sockets, if it did.
    pub fn why_not_xdp(&self) -> Option<&Error> {
        self.why_not_xdp.as_ref()
    }

    /// What it has done so far.
    pub fn counters(&mut self) -> Counters {
        self.counters.missed += match &mut self.way {
            Way::PacketSocket(socket) => socket.take_missed(),
            Way::Xdp(xdp) => xdp.take_missed(),
            Way::Tap(tap) => tap.take_missed(&self.name, self.number),
            Way::Dpdk(dpdk) => dpdk.take_missed(&mut self.counters),
            // What finds no room, the other end counts.
            Way::Memif(_) => 0,
        };
        self.counters
    }

    /// What its link is like now.
    ///
    /// # Errors
    /// If it is gone.
    pub fn link(&self) -> Result<Link> {
        let socket = match &self.way {
            Way::PacketSocket(socket) => socket.socket(),
            Way::Xdp(xdp) => xdp.socket(),
            Way::Tap(tap) => return tap.link(&self.name, self.number),
            Way::Dpdk(dpdk) => return dpdk.link(),
            Way::Memif(memif) => return Ok(memif.link()),
        };
        link::link(socket, &self.name)
    }

    /// Sees to it that it is open: anew, if the interface that had this name is gone, and another
    /// one has it now; counters go on. Whether so.
    ///
    /// # Errors
    /// Those of [`Interface::open`], as long as there is none. A TAP device that is gone is not
    /// made anew: it is taken over when somebody else has made it. A client of shared memory calls
    /// its server, and connects when that answers. A device of DPDK's that is gone stays away.
    pub fn reopen(&mut self) -> Result<bool> {
        match &mut self.way {
            Way::Tap(tap) => return tap.reopen(&self.name, &mut self.number),
            Way::Dpdk(dpdk) => return dpdk.look().map(|()| false),
            Way::Memif(memif) => return memif.reopen().map(|()| false),
            Way::PacketSocket(_) | Way::Xdp(_) => {}
        }
        if link::interface_number(&self.name) == Some(self.number) {
            if let Ok(link) = self.link() {
                match &mut self.way {
                    Way::PacketSocket(socket) => socket.set_mtu(link.mtu),
                    Way::Xdp(xdp) => xdp.set_link(link),
                    Way::Tap(_) | Way::Memif(_) | Way::Dpdk(_) => {}
                }
            }
            return Ok(false);
        }
        let mut new = Interface::open_part(&self.name, self.choice, self.part, &self.parts)?;
        new.counters = self.counters();
        *self = new;
        Ok(true)
    }

    /// Hands the frames over that have come, up to 64 of them as the kernel counts, of each queue;
    /// without them, none, at once.
    ///
    /// # Errors
    /// [`ErrorKind::NetworkDown`] when the interface went down or is gone, and others of the
    /// system.
    pub fn receive(&mut self, each: impl FnMut(&[u8])) -> Result<()> {
        match &mut self.way {
            Way::PacketSocket(socket) => socket.receive(&mut self.counters, each),
            Way::Xdp(xdp) => {
                xdp.receive(&mut self.counters, each);
                Ok(())
            }
            Way::Tap(tap) => tap.receive(&mut self.counters, each),
            Way::Dpdk(dpdk) => dpdk.receive(&mut self.counters, each),
            Way::Memif(memif) => {
                memif.receive(&mut self.counters, each);
                Ok(())
            }
        }
    }

    /// Sends what is in the outbox, and empties it. What the interface does not take is counted,
    /// and lost: as on a wire, senders notice.
    pub fn send(&mut self, outbox: &mut Outbox) {
        match &mut self.way {
            Way::PacketSocket(socket) => socket.send(outbox, &mut self.counters),
            Way::Xdp(xdp) => xdp.send(outbox, &mut self.counters),
            Way::Tap(tap) => tap.send(outbox, &mut self.counters),
            Way::Dpdk(dpdk) => dpdk.send(outbox, &mut self.counters),
            Way::Memif(memif) => memif.send(outbox, &mut self.counters),
        }
        outbox.bytes.clear();
        outbox.lens.clear();
    }

    /// What can be waited for: one of them has something when a frame has come; but see
    /// [`Interface::is_polled`].
    pub fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        match &self.way {
            Way::PacketSocket(socket) => vec![socket.socket().as_fd()],
            Way::Xdp(xdp) => xdp.sockets().collect(),
            Way::Tap(tap) => tap.socket().into_iter().collect(),
            Way::Dpdk(_) => Vec::new(),
            Way::Memif(memif) => memif.sockets(),
        }
    }

    /// Whether its link has come up or gone down since this was last asked, as far as it knows that
    /// by itself, and the kernel does not tell.
    pub fn take_news(&mut self) -> bool {
        match &mut self.way {
            Way::Memif(memif) => memif.take_news(),
            _ => false,
        }
    }

    /// What is to be said of that: who has connected, or why it is over.
    pub fn take_why(&mut self) -> Option<String> {
        match &mut self.way {
            Way::Memif(memif) => memif.take_why(),
            _ => None,
        }
    }

    /// Whether frames come that cannot be waited for: it has to be asked.
    pub fn is_polled(&self) -> bool {
        matches!(&self.way, Way::Dpdk(dpdk) if dpdk.receives())
    }
}

/// Where the network header begins, behind Ethernet and VLAN tags, and what it is.
fn network(frame: &[u8]) -> Option<(usize, EtherType)> {
    let header = ethernet::Frame::new_checked(frame).ok()?;
    let mut tags = vlan::Tags::new(header.ethertype()?, &frame[ethernet::HEADER_LEN..]);
    tags.by_ref().try_for_each(|tag| tag.map(|_| ())).ok()?;
    Some((frame.len() - tags.payload().len(), tags.ethertype()))
}

/// The same error once more.
fn said(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

/// Gives an interface a moment to send what it has.
#[cold]
fn wait_for_room(socket: impl AsFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // Whatever comes of it, the frames are tried again.
    let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&MOMENT));
}

/// Whether a frame is longer than a wire takes that carries packets of this length; a VLAN tag
/// comes on top.
fn is_too_long(frame: &[u8], mtu: usize) -> bool {
    let over = frame.len().saturating_sub(mtu + ethernet::HEADER_LEN);
    let is_tagged = || frame.get(12..14) == Some(&EtherType::VLAN.0.to_be_bytes()[..]);
    over > packet::wire::vlan::HEADER_LEN || over > 0 && !is_tagged()
}

/// Where a frame is counted that was not sent.
fn of_unsent<'a>(counters: &'a mut Counters, error: &Error) -> &'a mut u64 {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => &mut counters.too_long,
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => &mut counters.no_room,
        _ => &mut counters.down,
    }
}
