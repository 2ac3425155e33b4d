//! Ports: network interfaces of this machine, with frames as they are on a wire.
//!
//! An [`Interface`] receives and sends by one of the drivers below, which a [`PortSpec`] names. The
//! configuration of an existing interface is not changed, except for promiscuous mode and an XDP
//! program; both end with the [`Interface`].
//!
//! Work that senders and the kernel leave to cards is done here: open checksums are completed,
//! frames of several segments are cut, and VLAN tags that the kernel took out are put back. On the
//! way out, consecutive TCP segments are joined where the kernel can cut them again.

pub mod dpdk;
mod driver;
mod ethtool;
mod join;
mod link;
mod link_monitor;
pub mod memif;
#[cfg(not(fuzzing))]
mod offload;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod offload;
mod open_checksum;
pub mod packet;
mod registry;
mod spec;
mod sys;
pub mod tap;
pub mod xdp;

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use ::packet::wire::{EtherType, ethernet, vlan};

use registry::registry;
use serde::Serialize;
use telemetry::{Family, Kind, MetricUnit, record};

pub use driver::{Driver, DriverInfo, DriverLimit, PortPart, Readiness, Refreshed, SystemCall, ThreadTask};
pub use link::LinkState;
pub use link_monitor::LinkMonitor;
pub use registry::DriverEntry;
pub use spec::{Fallback, PortSpec, PortSpecError};

registry! {
    xdp::XdpPort,
    packet::PacketPort,
    tap::TapPort,
    memif::MemifPort,
    dpdk::DpdkPort,
}

/// Frames that an interface did not receive or send.
static FRAMES_LOST: Family = Family {
    name: "interface_frames_lost",
    kind: Kind::Counter,
    unit: MetricUnit::Own,
    help: "Frames that the kernel or the interface did not take, by reason.",
    outer_labels: &["interface"],
    label: Some("reason"),
    known: &[],
};

record! {
    /// Frames and bytes of an interface, as on a wire.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    pub struct Counters [interface] {
        /// Frames received by an interface, each segment counted.
        pub received: u64 = counter("interface_frames_received"),
        /// Bytes received by an interface.
        pub received_bytes: u64 = counter("interface_bytes_received"),
        /// Frames with a completed open checksum, counted before segmentation.
        pub completed: u64 = counter("interface_frames_completed"),
        /// Frames that the kernel or a device dropped because they arrived too fast.
        pub missed: u64 = part(FRAMES_LOST, "missed"),
        /// Frames longer than 65,557 bytes (with packet sockets only the first ones), inconsistent
        /// with the kernel's description, or found damaged by a DPDK device.
        pub unreadable: u64 = part(FRAMES_LOST, "unreadable"),
        /// Frames sent by an interface.
        pub sent: u64 = counter("interface_frames_sent"),
        /// Bytes sent by an interface.
        pub sent_bytes: u64 = counter("interface_bytes_sent"),
        /// Frames not sent: longer than the interface takes.
        pub too_long: u64 = part(FRAMES_LOST, "too_long"),
        /// Frames not sent: the interface had no room.
        pub no_room: u64 = part(FRAMES_LOST, "no_room"),
        /// Frames not sent: the interface was down or gone.
        pub down: u64 = part(FRAMES_LOST, "down"),
    }
}

impl Counters {
    fn received(&mut self, frame: &[u8]) {
        self.received += 1;
        self.received_bytes += frame.len() as u64;
    }
}

/// State of an existing network interface, which needs no capability to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceStatus {
    /// Its link.
    pub link: LinkState,
    /// The system has an IPv4 address there.
    pub has_ipv4: bool,
    /// The system has an IPv6 address there that is not link-local.
    pub has_ipv6: bool,
    /// The driver that `auto` tries first.
    pub driver: &'static str,
    /// Why `auto` does not use the fastest driver, if that is known without opening.
    pub fallback: Option<Fallback>,
}

/// Returns the status of the interface with this name.
///
/// # Errors
/// If there is none.
pub fn interface_status(name: &str) -> Result<InterfaceStatus> {
    let socket = OwnedFd::from(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?);
    let link = link::link(&socket, name)?;
    let spec: PortSpec = name.parse().map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
    let (info, fallback) = spec.preferred()?;
    let (has_ipv4, has_ipv6) = (link::has_ipv4(&socket, name), link::has_ipv6(name));
    Ok(InterfaceStatus { link, has_ipv4, has_ipv6, driver: info.name, fallback })
}

/// Returns the drivers of these interfaces, each once.
pub fn drivers_in_use<'a>(interfaces: impl Iterator<Item = &'a Interface>) -> Vec<&'static DriverEntry> {
    let used: Vec<_> = interfaces.map(|interface| interface.driver().name).collect();
    DRIVERS.iter().filter(|entry| used.contains(&entry.info.name)).collect()
}

/// A network interface, opened to receive and send; or one part of it, for a thread of its own.
pub struct Interface {
    spec: PortSpec,
    port: OpenPort,
    fallback: Option<Fallback>,
    counters: Counters,
    part: PortPart,
    shared: Arc<Mutex<PortShared>>,
}

/// Frames that will be sent together.
#[derive(Debug, Default)]
pub struct TransmitBurst {
    /// One frame after the other.
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

impl TransmitBurst {
    /// Appends a frame, and returns the copy, which may be changed.
    pub fn push(&mut self, frame: &[u8]) -> &mut [u8] {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        self.lens.push(frame.len());
        &mut self.bytes[at..]
    }

    /// Removes the last frame.
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
    /// Opens a port.
    ///
    /// # Errors
    /// Those of the driver: see its module. [`ErrorKind::NotFound`] if there is no such interface,
    /// [`ErrorKind::PermissionDenied`] without its capabilities, [`ErrorKind::Unsupported`] if the
    /// driver cannot open it, and others of the system.
    pub fn open(spec: &PortSpec) -> Result<Interface> {
        let part = Interface::open_parts(spec, 1)?.pop();
        part.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a port has one part at least"))
    }

    /// Opens a port in several parts, each for a thread of its own. Its driver shares out received
    /// frames among the parts; all parts can send. All parts have the same driver.
    ///
    /// # Errors
    /// As [`Interface::open`].
    pub fn open_parts(spec: &PortSpec, count: usize) -> Result<Vec<Interface>> {
        let shared = Arc::new(Mutex::new(PortShared::default()));
        let (ports, fallback) = spec.open_first(|choice| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let open = |index| choice.open(PortPart { index, count }, &mut shared);
            (0..count).map(open).collect::<Result<Vec<_>>>()
        })?;
        let part = |(index, port)| Interface {
            spec: spec.clone(),
            port,
            fallback: fallback.clone(),
            counters: Counters::default(),
            part: PortPart { index, count },
            shared: Arc::clone(&shared),
        };
        Ok(ports.into_iter().enumerate().map(part).collect())
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        self.spec.name()
    }

    /// Returns facts about the driver in use.
    pub fn driver(&self) -> &'static DriverInfo {
        self.port.info()
    }

    /// Returns the driver and its mode, as reports show it: one of [`DriverInfo::modes`].
    pub fn mode(&self) -> &'static str {
        self.port.mode()
    }

    /// Returns why a preferred driver is not in use.
    pub fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }

    /// Returns the counters since it was opened first.
    pub fn counters(&mut self) -> Counters {
        self.port.count_lost(&mut self.counters);
        self.counters
    }

    /// Returns the current state of the link.
    ///
    /// # Errors
    /// If the interface is gone.
    pub fn link(&self) -> Result<LinkState> {
        self.port.link()
    }

    /// Opens the interface again if it is gone and another one has its name now; counters continue.
    /// Returns whether that happened.
    ///
    /// # Errors
    /// Those of [`Interface::open`], while no interface has the name. A removed TAP device is not
    /// created again: it is taken over when another program has created it. A client of shared
    /// memory calls its server, and connects when that answers. A removed DPDK device stays closed.
    pub fn reopen(&mut self) -> Result<bool> {
        match self.port.refresh()? {
            Refreshed::Unchanged => return Ok(false),
            Refreshed::Replaced => return Ok(true),
            Refreshed::Gone => {}
        }
        let (port, fallback) = self.spec.open_first(|choice| {
            choice.open(self.part, &mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
        })?;
        self.port.count_lost(&mut self.counters);
        (self.port, self.fallback) = (port, fallback);
        Ok(true)
    }

    /// Hands over a burst of received frames, up to 64 of each queue as the kernel counts them.
    /// Returns at once if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::NetworkDown`] when the interface went down or is gone, and others of the
    /// system.
    pub fn receive(&mut self, each: impl FnMut(&[u8])) -> Result<()> {
        self.port.receive(&mut self.counters, each)
    }

    /// Sends the frames of the burst, and empties it. Frames that the interface does not take are
    /// counted and lost: as on a wire, senders notice.
    pub fn send(&mut self, burst: &mut TransmitBurst) {
        self.port.send(burst, &mut self.counters);
        burst.bytes.clear();
        burst.lens.clear();
    }

    /// Returns file descriptors. One becomes readable when a frame arrives, unless
    /// [`Interface::is_polled`].
    pub fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        self.port.sockets()
    }

    /// Returns whether the link changed since the last call, if the driver alone knows, and not the
    /// kernel.
    pub fn take_link_change(&mut self) -> bool {
        self.port.take_link_change()
    }

    /// Returns the reason of that change, once: the peer that connected, or why the connection
    /// ended.
    pub fn take_reason(&mut self) -> Option<String> {
        self.port.take_reason()
    }

    /// Returns whether frames arrive without a notification, so that the interface must be polled.
    pub fn is_polled(&self) -> bool {
        self.port.is_polled()
    }
}

/// Returns the offset and type of the network header, after Ethernet and VLAN tags.
fn network(frame: &[u8]) -> Option<(usize, EtherType)> {
    let header = ethernet::Frame::new_checked(frame).ok()?;
    let mut tags = vlan::Tags::new(header.ethertype()?, &frame[ethernet::HEADER_LEN..]);
    tags.by_ref().try_for_each(|tag| tag.map(|_| ())).ok()?;
    Some((frame.len() - tags.payload().len(), tags.ethertype()))
}

/// Waits up to a millisecond until the interface can send again.
#[cold]
fn wait_for_room(socket: impl AsFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // Whatever the result, the frames are tried again.
    let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&MOMENT));
}

/// Returns whether a frame is longer than a wire for packets of `mtu` bytes takes. A VLAN tag comes
/// on top.
fn is_too_long(frame: &[u8], mtu: usize) -> bool {
    let over = frame.len().saturating_sub(mtu + ethernet::HEADER_LEN);
    let is_tagged = || frame.get(12..14) == Some(&EtherType::VLAN.0.to_be_bytes()[..]);
    over > vlan::HEADER_LEN || over > 0 && !is_tagged()
}

/// Returns the counter for a frame that was not sent.
fn of_unsent<'a>(counters: &'a mut Counters, error: &Error) -> &'a mut u64 {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => &mut counters.too_long,
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => &mut counters.no_room,
        _ => &mut counters.down,
    }
}
