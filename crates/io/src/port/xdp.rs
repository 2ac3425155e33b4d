//! A port by AF_XDP sockets, one for each receive queue: frames in memory that is shared with the
//! kernel, past its stack.
//!
//! What comes is as the sender's stack or the card left it, with nothing said of it. So there are
//! interfaces that it is not for, see [`Xdp::open`]; checksums that were left open are found and
//! completed.

mod memory;
mod program;
mod queue;
mod ring;
mod socket;

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use packet::wire::ethernet;

use super::ethtool::{self, Driver};
use super::link::Link;
use super::packet_socket::{self, PacketSocket};
use super::{Counters, Opened, Outbox, is_too_long, open_checksum};

use program::{Attached, Mode};
pub use program::{CALLS_LATER, Program};
use queue::{Queue, Sent};
use socket::Sizes;
pub use socket::probe;

/// Receive queues that an interface may have.
pub const QUEUES_MAX: u32 = 64;

/// Frames that may wait to be taken, in all queues together; each has at least [`QUEUE_MIN`], and
/// no more than [`QUEUE_MAX`].
pub const WAITING_MAX: u32 = 16_384;

/// Frames that may wait to be taken in a queue, at least.
pub const QUEUE_MIN: u32 = 256;

/// Frames that may wait to be taken in a queue, at most.
pub const QUEUE_MAX: u32 = 4_096;

/// Frames that may wait to be sent.
pub const SENDING_MAX: u32 = 2_048;

/// Bytes that the kernel keeps free before a frame that comes.
const KERNEL_ROOM: usize = 256;

/// Bytes that a frame may have room in: the least is taken that does for the interface's MTU.
const ROOMS: [usize; 2] = [2_048, 4_096];

/// An interface's frames by AF_XDP; or those of a part of its receive queues.
pub struct Xdp {
    /// Has the interface in promiscuous mode, and can be asked about it.
    promiscuous: OwnedFd,
    attached: Arc<Attachment>,
    queues: Vec<Queue>,
    /// By which frames leave if there is no queue here.
    sender: Option<PacketSocket>,
    mtu: usize,
}

/// The program at work on an interface, for all parts.
pub struct Attachment {
    program: Arc<Program>,
    mode: Mode,
    _attached: Attached,
}

impl Xdp {
    /// Opens an interface, or a part of it, of so many: every so manieth receive queue.
    ///
    /// # Errors
    /// With a word why: if the interface's frames can be longer than there is room for, if it has
    /// too many queues, if no privilege allows it, or its driver cannot do it. A virtual interface
    /// whose driver cannot is refused, as frames of several segments come there, of which AF_XDP
    /// does not tell that they are to be cut.
    pub(super) fn open(
        interface: u32,
        name: &str,
        (part, parts): (usize, usize),
        opened: &mut Opened,
    ) -> Result<Xdp> {
        let promiscuous = packet_socket::promiscuous(interface)?;
        let Shape { mtu, room, queues: count } = Shape::of(&promiscuous, name)?;
        let attached = match opened.attached.upgrade() {
            Some(attached) => attached,
            None => {
                let program = match &opened.program {
                    Some(program) => Arc::clone(program),
                    None => Arc::new(Program::load(QUEUES_MAX).map_err(|error| match error.kind() {
                        ErrorKind::PermissionDenied => {
                            Error::new(error.kind(), "the capabilities CAP_BPF and CAP_NET_ADMIN are missing")
                        }
                        _ => said("the kernel does not take the program", &error),
                    })?),
                };
                opened.program = Some(Arc::clone(&program));
                let (attached, mode) = attach(&program, interface, ethtool::driver(&promiscuous, name))?;
                Arc::new(Attachment { program, mode, _attached: attached })
            }
        };
        opened.attached = Arc::downgrade(&attached);
        let receive = (WAITING_MAX / count).clamp(QUEUE_MIN, QUEUE_MAX).next_power_of_two();
        let numbers = (part as u32..count).step_by(parts);
        let open = |number| {
            // The first one of each part has what that sends.
            let send = if number == part as u32 { SENDING_MAX } else { 1 };
            let sizes = Sizes { receive, send };
            let queue = Queue::open(interface, number, sizes, room, attached.mode == Mode::Driver)
                .map_err(|error| said(&format!("no socket for receive queue {number}"), &error))?;
            attached
                .program
                .give_to(number, &queue)
                .map_err(|error| said("the program does not take a socket", &error))?;
            Ok(queue)
        };
        let queues = numbers.map(open).collect::<Result<Vec<_>>>()?;
        let sender =
            queues.is_empty().then(|| PacketSocket::open_to_send(interface, mtu as u32)).transpose()?;
        Ok(Xdp { promiscuous, attached, queues, sender, mtu })
    }

    /// The way in which it is done.
    pub fn io(&self) -> super::Io {
        let is_shared = !self.queues.is_empty() && self.queues.iter().all(Queue::is_shared);
        match (self.attached.mode, is_shared) {
            (Mode::Driver, true) => super::Io::XdpDriverZeroCopy,
            (Mode::Driver, false) => super::Io::XdpDriverCopy,
            (Mode::Generic, _) => super::Io::XdpGenericCopy,
        }
    }

    /// What can be asked about the interface.
    pub fn socket(&self) -> &OwnedFd {
        &self.promiscuous
    }

    /// What there is to be waited for.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(AsFd::as_fd)
    }

    /// What the link is like now.
    pub fn set_link(&mut self, link: Link) {
        self.mtu = link.mtu as usize;
        if let Some(sender) = &mut self.sender {
            sender.set_mtu(link.mtu);
        }
    }

    /// How many frames the kernel has dropped for want of room since it was last asked.
    pub fn take_missed(&mut self) -> u64 {
        self.queues.iter_mut().map(Queue::take_missed).sum()
    }

    /// See [`super::Interface::receive`].
    pub fn receive(&mut self, counters: &mut Counters, mut each: impl FnMut(&[u8])) {
        for queue in &mut self.queues {
            queue.receive(|frame| {
                counters.completed += u64::from(open_checksum::complete(frame));
                counters.received(frame);
                each(frame);
            });
        }
    }

    /// See [`super::Interface::send`].
    pub fn send(&mut self, outbox: &Outbox, counters: &mut Counters) {
        if let Some(sender) = &mut self.sender {
            return sender.send(outbox, counters);
        }
        let Some(queue) = self.queues.first_mut() else { return };
        if outbox.lens.is_empty() {
            return;
        }
        // What the kernel did not take before goes first; as long as it does not take that, it is
        // given no more.
        let mut state = if queue.left() > 0 { queue.send(counters) } else { Sent::All };
        for frame in outbox.frames() {
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
}

/// What an interface is like, as far as its frames' memory is concerned.
pub struct Shape {
    mtu: usize,
    /// Bytes that each frame has room in.
    room: usize,
    queues: u32,
}

impl Shape {
    /// Asks the interface; by any socket.
    ///
    /// # Errors
    /// If it is not for AF_XDP, with a word why.
    pub fn of(socket: &OwnedFd, name: &str) -> Result<Shape> {
        let mtu = super::link::link(socket, name)?.mtu as usize;
        let frame_len_max = mtu + ethernet::HEADER_LEN + 2 * packet::wire::vlan::HEADER_LEN;
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

/// Has the interface run the program: in its driver, else in the kernel.
fn attach(program: &Program, interface: u32, driver: Driver) -> Result<(Attached, Mode)> {
    let busy = |error: &Error| error.raw_os_error() == Some(libc::EBUSY);
    let in_driver = match program.attach(interface, Mode::Driver) {
        Ok(attached) => return Ok((attached, Mode::Driver)),
        Err(error) if busy(&error) => return Err(unfit("it runs another XDP program".to_owned())),
        Err(error) => said("its driver does not run XDP programs", &error),
    };
    if driver == Driver::Virtual {
        return Err(in_driver);
    }
    let attached = program.attach(interface, Mode::Generic);
    attached
        .map(|attached| (attached, Mode::Generic))
        .map_err(|error| said("it does not run XDP programs", &error))
}

fn unfit(why: String) -> Error {
    Error::new(ErrorKind::Unsupported, why)
}

fn said(what: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("{what}: {error}"))
}
