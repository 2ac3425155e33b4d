//! The driver `xdp`: AF_XDP sockets, one for each receive queue, with frames in memory that is
//! shared with the kernel, past its stack.
//!
//! Frames arrive as the sender's stack or the card left them, without metadata. So some interfaces
//! do not suit, see [`XdpPort`]. Open checksums are detected and completed.

mod memory;
mod program;
mod queue;
mod ring;
mod socket;

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};

use packet::wire::{ethernet, vlan};
use rustix::thread::CapabilitySet;

use super::driver::{Driver, DriverInfo, PortPart, Readiness, Refreshed, SystemCall, limits};
use super::ethtool::{self, InterfaceKind};
use super::link::{self, LinkState};
use super::packet::{PacketSocket, ethernet as open_ethernet, interface_name};
use super::{Counters, TransmitBurst, is_too_long, open_checksum};

use program::{Mode, Program, ProgramLink};
use queue::{Queue, Sent};
use socket::Sizes;

/// Receive queues of an interface.
pub const QUEUES_MAX: u32 = 64;

/// Received frames that may wait, in all queues together; each queue has [`QUEUE_MIN`] to
/// [`QUEUE_MAX`].
pub const WAITING_MAX: u32 = 16_384;

/// The least number of received frames that may wait in a queue.
pub const QUEUE_MIN: u32 = 256;

/// Received frames that may wait in a queue.
pub const QUEUE_MAX: u32 = 4_096;

/// Sent frames that may wait.
pub const SENDING_MAX: u32 = 2_048;

/// Bytes that the kernel keeps free before a received frame.
const KERNEL_ROOM: usize = 256;

/// Bytes of the room of a frame: the smallest that suffices for the interface's MTU.
const ROOMS: [usize; 2] = [2_048, 4_096];

/// Largest MTU of the other end of a veth that runs an XDP program, with pages of 4 KiB.
const VETH_MTU_MAX: u32 = 3_506;

/// One part of an interface, by AF_XDP.
pub struct XdpPort {
    name: String,
    interface: u32,
    /// Keeps the interface in promiscuous mode, and answers questions about it.
    promiscuous: OwnedFd,
    attached: Arc<Attachment>,
    queues: Vec<Queue>,
    /// Sends for a part without a queue.
    sender: Option<PacketSocket>,
    mtu: usize,
}

/// The program that runs on an interface, for all parts.
struct Attachment {
    program: Arc<Program>,
    mode: Mode,
    _attached: ProgramLink,
}

/// State that all parts of an interface share.
#[derive(Default)]
pub struct XdpShared {
    /// The interface's number. Another interface of the same name has another one.
    interface: u32,
    /// Attached for as long as a part is open.
    attached: Weak<Attachment>,
    /// Loaded once.
    program: Option<Arc<Program>>,
}

impl Driver for XdpPort {
    const INFO: DriverInfo = DriverInfo {
        name: "xdp",
        syntax: "xdp:INTERFACE",
        example: "xdp:eth0",
        peer: "a card; veth with small packets",
        is_for_interfaces: true,
        modes: &["xdp_driver_zero_copy", "xdp_driver_copy", "xdp_generic_copy"],
        capabilities: CapabilitySet::NET_RAW
            .union(CapabilitySet::NET_ADMIN)
            .union(CapabilitySet::BPF)
            .union(CapabilitySet::IPC_LOCK),
        capabilities_kept: CapabilitySet::NET_RAW.union(CapabilitySet::IPC_LOCK),
        // An interface that returns runs the program that was loaded before.
        system_calls: &[
            SystemCall::only("bpf", libc::SYS_bpf, 0, program::MAP_UPDATE as u32),
            SystemCall::only("bpf", libc::SYS_bpf, 0, program::LINK_CREATE as u32),
        ],
        limits: limits![QUEUES_MAX, QUEUE_MIN, QUEUE_MAX, WAITING_MAX, SENDING_MAX],
    };

    /// The interface's name.
    type Spec = String;
    type Shared = XdpShared;

    fn parse(text: &str) -> std::result::Result<String, String> {
        interface_name(text)
    }

    fn name(name: &String) -> String {
        name.clone()
    }

    fn mtu(name: &String) -> Option<u32> {
        link::mtu(name)
    }

    fn check(held: CapabilitySet) -> Readiness {
        let may_load = held.contains(CapabilitySet::NET_ADMIN)
            && (held.contains(CapabilitySet::BPF) || held.contains(CapabilitySet::SYS_ADMIN));
        let missing = match socket::probe() {
            // Missing privileges are not the machine's fault.
            Err(error) if error.kind() != ErrorKind::PermissionDenied => {
                format!("the kernel has no AF_XDP sockets: {error}")
            }
            _ if !may_load => "the capabilities CAP_BPF and CAP_NET_ADMIN are missing".to_owned(),
            _ => return Readiness::ready("AF_XDP is available"),
        };
        Readiness::missing(missing, "packet sockets are used instead, which are slower")
    }

    /// Checks that nothing is lost or cut at the interface, and that its frames fit.
    fn suits(name: &String) -> Result<()> {
        let socket = OwnedFd::from(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?);
        match obstacle(&socket, name) {
            Some(reason) => Err(unfit(reason)),
            None => Shape::of(&socket, name).map(drop),
        }
    }

    /// Opens the interface. Of several parts, each has every `count`th receive queue.
    ///
    /// # Errors
    /// With the reason: the interface's frames do not fit, it has too many queues, a privilege is
    /// missing, or its driver has no support. A virtual interface without driver support is
    /// refused: frames of several segments arrive there, and AF_XDP does not report that they must
    /// be cut.
    fn open(name: &String, part: PortPart, shared: &mut XdpShared) -> Result<XdpPort> {
        let (interface, _, promiscuous) = open_ethernet(name)?;
        if shared.interface != interface {
            *shared = XdpShared { interface, program: shared.program.take(), ..XdpShared::default() };
        }
        let Shape { mtu, room, queues: count } = Shape::of(&promiscuous, name)?;
        let attached = match shared.attached.upgrade() {
            Some(attached) => attached,
            None => {
                let program = match &shared.program {
                    Some(program) => Arc::clone(program),
                    None => Arc::new(Program::load(QUEUES_MAX).map_err(|error| match error.kind() {
                        ErrorKind::PermissionDenied => {
                            Error::new(error.kind(), "the capabilities CAP_BPF and CAP_NET_ADMIN are missing")
                        }
                        _ => explain("the kernel does not take the program", &error),
                    })?),
                };
                shared.program = Some(Arc::clone(&program));
                let (attached, mode) = attach(&program, interface, ethtool::kind(&promiscuous, name))?;
                Arc::new(Attachment { program, mode, _attached: attached })
            }
        };
        shared.attached = Arc::downgrade(&attached);
        let receive = (WAITING_MAX / count).clamp(QUEUE_MIN, QUEUE_MAX).next_power_of_two();
        let first = part.index as u32;
        let open = |number| {
            // The first queue of each part sends.
            let send = if number == first { SENDING_MAX } else { 1 };
            let sizes = Sizes { receive, send };
            let queue = Queue::open(interface, number, sizes, room, attached.mode == Mode::Driver)
                .map_err(|error| explain(&format!("no socket for receive queue {number}"), &error))?;
            attached
                .program
                .add_socket(number, &queue)
                .map_err(|error| explain("the program does not take a socket", &error))?;
            Ok(queue)
        };
        let queues = (first..count).step_by(part.count).map(open).collect::<Result<Vec<_>>>()?;
        let sender =
            queues.is_empty().then(|| PacketSocket::open_to_send(interface, mtu as u32)).transpose()?;
        Ok(XdpPort { name: name.clone(), interface, promiscuous, attached, queues, sender, mtu })
    }

    fn mode(&self) -> &'static str {
        let is_shared = !self.queues.is_empty() && self.queues.iter().all(Queue::is_shared);
        match (self.attached.mode, is_shared) {
            (Mode::Driver, true) => "xdp_driver_zero_copy",
            (Mode::Driver, false) => "xdp_driver_copy",
            (Mode::Generic, _) => "xdp_generic_copy",
        }
    }

    fn link(&self) -> Result<LinkState> {
        link::link(&self.promiscuous, &self.name)
    }

    fn refresh(&mut self) -> Result<Refreshed> {
        if link::interface_number(&self.name) != Some(self.interface) {
            return Ok(Refreshed::Gone);
        }
        if let Ok(link) = self.link() {
            self.mtu = link.mtu as usize;
            if let Some(sender) = &mut self.sender {
                sender.set_mtu(link.mtu);
            }
        }
        Ok(Refreshed::Unchanged)
    }

    fn count_lost(&mut self, counters: &mut Counters) {
        counters.missed += self.queues.iter_mut().map(Queue::take_missed).sum::<u64>();
    }

    fn receive(&mut self, counters: &mut Counters, mut each: impl FnMut(&[u8])) -> Result<()> {
        for queue in &mut self.queues {
            queue.receive(|frame| {
                counters.completed += u64::from(open_checksum::complete(frame));
                counters.received(frame);
                each(frame);
            });
        }
        Ok(())
    }

    fn send(&mut self, burst: &TransmitBurst, counters: &mut Counters) {
        if let Some(sender) = &mut self.sender {
            return sender.send(burst, counters);
        }
        let Some(queue) = self.queues.first_mut() else { return };
        if burst.lens.is_empty() {
            return;
        }
        // Frames that the kernel did not take before go first. Until it takes them, it is given no
        // others.
        let mut state = if queue.left() > 0 { queue.send(counters) } else { Sent::All };
        for frame in burst.frames() {
            if is_too_long(frame, self.mtu) {
                counters.too_long += 1;
                continue;
            }
            let mut has_room = state == Sent::All && queue.put(frame);
            if state == Sent::All && !has_room {
                state = queue.send(counters);
                has_room = state == Sent::All && queue.put(frame);
            }
            match (has_room, state) {
                (true, _) => {
                    counters.sent += 1;
                    counters.sent_bytes += frame.len() as u64;
                }
                (false, Sent::Down) => counters.down += 1,
                (false, _) => counters.no_room += 1,
            }
        }
        if state == Sent::All {
            queue.send(counters);
        }
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        self.queues.iter().map(AsFd::as_fd).collect()
    }
}

/// Returns why AF_XDP would lose or cut frames at an interface.
fn obstacle(socket: &OwnedFd, name: &str) -> Option<String> {
    if link::has_ipv4(socket, name) || link::has_ipv6(name) {
        return Some("the system has addresses there, and would receive nothing".to_owned());
    }
    match ethtool::kind(socket, name) {
        InterfaceKind::Card => ethtool::takes_tags(socket, name)
            .then(|| format!("it strips VLAN tags (`ethtool -K {name} rxvlan off`)")),
        // The other end of a veth leaves tags and segments to a card that does not exist.
        InterfaceKind::Virtual if Path::new("/proc/net/vlan").exists() => {
            Some("VLAN tags of this machine's own interfaces for VLANs would be lost".to_owned())
        }
        InterfaceKind::Virtual => ethtool::takes_segments(socket, name)
            .then(|| format!("this machine's own TCP would be segmented (`ethtool -K {name} tso off`)")),
    }
}

/// Properties of an interface that decide the memory of its frames.
struct Shape {
    mtu: usize,
    /// Bytes of the room of a frame.
    room: usize,
    queues: u32,
}

impl Shape {
    /// Reads them by any socket.
    ///
    /// # Errors
    /// If AF_XDP cannot be used, with the reason.
    fn of(socket: &OwnedFd, name: &str) -> Result<Shape> {
        let mtu = link::link(socket, name)?.mtu as usize;
        let frame_len_max = mtu + ethernet::HEADER_LEN + 2 * vlan::HEADER_LEN;
        let Some(room) = ROOMS.into_iter().find(|room| frame_len_max <= room - KERNEL_ROOM) else {
            return Err(unfit(format!("frames of an MTU of {mtu} bytes are too long")));
        };
        let queues = ethtool::receive_queues(socket, name);
        if queues > QUEUES_MAX {
            return Err(unfit(format!("{queues} receive queues are more than {QUEUES_MAX}")));
        }
        Ok(Shape { mtu, room, queues })
    }
}

/// Attaches the program: in the interface's driver, or else in the kernel.
fn attach(program: &Program, interface: u32, kind: InterfaceKind) -> Result<(ProgramLink, Mode)> {
    let busy = |error: &Error| error.raw_os_error() == Some(libc::EBUSY);
    let in_driver = match program.attach(interface, Mode::Driver) {
        Ok(attached) => return Ok((attached, Mode::Driver)),
        Err(error) if busy(&error) => return Err(unfit("it runs another XDP program".to_owned())),
        Err(error) => refused_by_driver(&error),
    };
    if kind == InterfaceKind::Virtual {
        return Err(in_driver);
    }
    let attached = program.attach(interface, Mode::Generic);
    attached
        .map(|attached| (attached, Mode::Generic))
        .map_err(|error| explain("it does not run XDP programs", &error))
}

/// Returns the error, with a remedy, of an interface driver that refuses the program. Whether a
/// veth accepts it depends on its other end.
fn refused_by_driver(error: &Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ERANGE) => unfit(format!(
            "the MTU of its other end is too large for XDP (`ip link set PEER mtu {VETH_MTU_MAX}` there)"
        )),
        Some(libc::ENOSPC) => unfit(
            "its other end sends by more queues than it receives by (`ethtool -L PEER tx N` there)"
                .to_owned(),
        ),
        _ => explain("its driver does not run XDP programs", error),
    }
}

fn unfit(why: String) -> Error {
    Error::new(ErrorKind::Unsupported, why)
}

fn explain(what: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("{what}: {error}"))
}
