//! The driver `tap`: a TAP device, with this machine's own stack, a container's, or a bridge at the
//! other end.
//!
//! A device that is made ends with its last file descriptor, however the process ends. An existing
//! one is taken over, and stays. It can be moved to another network namespace and set down and up
//! there; its state is then known from the file descriptor alone.

mod sys;

use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Result, Write};
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::CapabilitySet;
use zerocopy::IntoBytes;

use super::driver::{Driver, DriverInfo, PortPart, Readiness, Refreshed};
use super::join::{self, JOINED_MAX, SendUnit};
use super::link::{self, LinkState};
use super::offload::{self, FRAME_LEN_MAX, FRONT_ROOM, OffloadHeader, RawFrame};
use super::{Counters, TransmitBurst, of_unsent, wait_for_room};

/// Frames received at once.
const FRAMES: usize = 64;

/// A bit of an Ethernet address that differs between this end and the device. Addresses of one
/// maker's cards, or of a numbered series, do not differ in it.
const OTHER_END: u8 = 0x40;

/// A bit of an Ethernet address: no maker has assigned it (IEEE 802).
const LOCALLY_ADMINISTERED: u8 = 0x02;

/// One part of a TAP device.
pub struct TapPort {
    name: String,
    /// The device's number. Another device of the same name has another one.
    number: u32,
    device: File,
    /// Answers questions about interfaces.
    questions: OwnedFd,
    /// The last known state of the device's link.
    link: LinkState,
    is_gone: bool,
    /// Another part of the same port receives.
    only_sends: bool,
    /// Frames that the kernel had dropped at the last call.
    missed: u64,
    /// Room for a frame, after the room for a VLAN tag.
    room: Box<[u8]>,
    /// A segment that is cut off a frame.
    segment: Vec<u8>,
    units: Vec<SendUnit>,
}

/// State of a device, as known from its file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Down,
    Gone,
}

impl Driver for TapPort {
    const INFO: DriverInfo = DriverInfo {
        name: "tap",
        syntax: "tap:NAME",
        example: "tap:rvl0",
        peer: "this machine's stack, a container, a bridge",
        is_for_interfaces: false,
        modes: &["tap"],
        // To create a device. An existing one needs no capability.
        capabilities: CapabilitySet::NET_ADMIN,
        capabilities_kept: CapabilitySet::empty(),
        system_calls: &[],
        limits: &[],
    };

    /// The device's name.
    type Spec = String;
    /// The part that the others are copies of.
    type Shared = Option<TapPort>;

    fn parse(text: &str) -> std::result::Result<String, String> {
        if text.is_empty() {
            return Err("expected the name of a TAP device, such as tap:rvl0".to_owned());
        }
        // The kernel changes such a name.
        if text.contains(['/', ':', '%']) || text.contains(char::is_whitespace) {
            return Err(format!("`{text}` is no name for a TAP device; expected one such as rvl0"));
        }
        Ok(text.to_owned())
    }

    fn name(name: &String) -> String {
        name.clone()
    }

    fn mtu(name: &String) -> Option<u32> {
        link::mtu(name)
    }

    fn check(held: CapabilitySet) -> Readiness {
        match open_device() {
            Err(error) => Readiness::missing(error.to_string(), "no port can be `tap:NAME`; others can"),
            Ok(_) if held.contains(CapabilitySet::NET_ADMIN) => Readiness::ready("devices can be made"),
            Ok(_) => Readiness::missing(
                "devices cannot be made: the capability CAP_NET_ADMIN is missing",
                "`ip tuntap add NAME mode tap user USER`, by root, makes one that `tap:NAME` takes over",
            ),
        }
    }

    /// Makes a device with this name and sets it up; it ends with its last part. Or takes over the
    /// existing one, which stays. The first part receives, so that frames keep their order; all
    /// send.
    ///
    /// The link of this end has an Ethernet address of its own: the device's, with one bit changed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without `/dev/net/tun`. [`ErrorKind::PermissionDenied`] without the
    /// capability `CAP_NET_ADMIN`, if the device does not exist or is another user's. Others if it
    /// is no TAP device, has several queues, or another program has it.
    fn open(name: &String, part: PortPart, shared: &mut Option<TapPort>) -> Result<TapPort> {
        if let Some(first) = shared.as_ref().filter(|_| part.index > 0) {
            return first.sender();
        }
        let first = TapPort::open_first(name)?;
        if part.count > 1 {
            *shared = Some(first.sender()?);
        }
        Ok(first)
    }

    /// Returns the state of this end's link. Of a device in another network namespace, only whether
    /// it is up is known; the rest is as it was before the move.
    fn link(&self) -> Result<LinkState> {
        match self.state() {
            State::Gone => Err(gone()),
            _ if link::interface_number(&self.name) == Some(self.number) => {
                link::link(&self.questions, &self.name).map(other_end)
            }
            state => Ok(LinkState { is_up: state == State::Up, ..self.link }),
        }
    }

    /// Takes over the next TAP device of this name, if the device was deleted.
    fn refresh(&mut self) -> Result<Refreshed> {
        let is_gone = self.state() == State::Gone;
        if self.only_sends {
            // The receiving part takes over the next device, for all.
            let found = link::interface_number(&self.name).filter(|_| !is_gone).unwrap_or(self.number);
            let is_another = std::mem::replace(&mut self.number, found) != found;
            self.is_gone = is_gone;
            self.link = self.link()?;
            return Ok(if is_another { Refreshed::Replaced } else { Refreshed::Unchanged });
        }
        if is_gone {
            self.is_gone = true;
            let found = link::interface_number(&self.name).ok_or_else(gone)?;
            sys::take_over(&self.device, &self.name)?;
            sys::leave_offloads(&self.device)?;
            self.number = found;
            self.is_gone = false;
            self.take_missed();
        }
        self.link = self.link()?;
        Ok(if is_gone { Refreshed::Replaced } else { Refreshed::Unchanged })
    }

    fn count_lost(&mut self, counters: &mut Counters) {
        counters.missed += self.take_missed();
    }

    fn receive(&mut self, counters: &mut Counters, mut each: impl FnMut(&[u8])) -> Result<()> {
        if self.is_gone || self.only_sends {
            return Ok(());
        }
        for _ in 0..FRAMES {
            let mut offload = OffloadHeader::default();
            let mut pieces =
                [IoSliceMut::new(offload.as_mut_bytes()), IoSliceMut::new(&mut self.room[FRONT_ROOM..])];
            let len = match (&self.device).read_vectored(&mut pieces) {
                Ok(len) => len,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => return Ok(()),
                    _ => {
                        self.is_gone = self.state() == State::Gone;
                        return Err(error);
                    }
                },
            };
            let Some(len) = len.checked_sub(size_of::<OffloadHeader>()) else {
                counters.unreadable += 1;
                continue;
            };
            // There is room for the longest frame that the kernel makes for a TAP device.
            let raw =
                RawFrame { room: &mut self.room[..FRONT_ROOM + len], offload, tag: None, is_cut_off: false };
            offload::deliver(raw, &mut self.segment, counters, &mut each);
        }
        Ok(())
    }

    fn send(&mut self, burst: &TransmitBurst, counters: &mut Counters) {
        let mtu = self.link.mtu as usize;
        join::units(&burst.bytes, &burst.lens, mtu, &mut self.units);
        let (mut frames, mut has_waited) = (burst.frames(), false);
        for unit in &self.units {
            let mut pieces = [IoSlice::new(&[]); 2 + JOINED_MAX];
            (pieces[0], pieces[1]) = (IoSlice::new(unit.offload.as_bytes()), IoSlice::new(unit.headers()));
            let (mut count, mut len, mut is_too_long) = (2, 0, false);
            for frame in frames.by_ref().take(unit.frames) {
                pieces[count] = IoSlice::new(&frame[unit.skip()..]);
                (count, len) = (count + 1, len + frame.len());
                is_too_long = super::is_too_long(frame, mtu);
            }
            if is_too_long {
                counters.too_long += 1;
                continue;
            }
            loop {
                let Err(error) = (&self.device).write_vectored(&pieces[..count]) else {
                    counters.sent += unit.frames as u64;
                    counters.sent_bytes += len as u64;
                    break;
                };
                match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock if !has_waited => {
                        has_waited = true;
                        wait_for_room(&self.device);
                    }
                    _ => {
                        *of_unsent(counters, &error) += unit.frames as u64;
                        break;
                    }
                }
            }
        }
    }

    /// Returns none if the device is gone, or another part receives.
    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        (!self.is_gone && !self.only_sends).then(|| self.device.as_fd()).into_iter().collect()
    }
}

impl TapPort {
    fn open_first(name: &str) -> Result<TapPort> {
        let device = open_device()?;
        let questions = OwnedFd::from(UnixDatagram::unbound()?);
        match sys::make(&device, name) {
            Ok(()) => link::set_up(&questions, name)?,
            Err(error) => match error.raw_os_error() {
                Some(libc::EBUSY) => {
                    sys::take_over(&device, name).map_err(|error| why_not_taken_over(&error))?
                }
                Some(libc::EPERM) => {
                    let why = "to make a TAP device, root or the capability CAP_NET_ADMIN is needed";
                    return Err(Error::new(ErrorKind::PermissionDenied, why));
                }
                _ => return Err(error),
            },
        }
        sys::leave_offloads(&device)?;
        let link = link::link(&questions, name)?;
        let mut tap = TapPort {
            name: name.to_owned(),
            number: link::interface_number(name).ok_or_else(gone)?,
            device,
            questions,
            link: other_end(link),
            is_gone: false,
            only_sends: false,
            missed: 0,
            room: vec![0; FRONT_ROOM + FRAME_LEN_MAX].into_boxed_slice(),
            segment: Vec::new(),
            units: Vec::new(),
        };
        tap.take_missed();
        Ok(tap)
    }

    /// Makes another part, which only sends.
    fn sender(&self) -> Result<TapPort> {
        Ok(TapPort {
            name: self.name.clone(),
            number: self.number,
            device: self.device.try_clone()?,
            questions: self.questions.try_clone()?,
            link: self.link,
            is_gone: self.is_gone,
            only_sends: true,
            missed: 0,
            room: Box::default(),
            segment: Vec::new(),
            units: Vec::new(),
        })
    }

    /// Returns the frames that the kernel dropped for want of room since the last call; none of a
    /// device in another network namespace.
    fn take_missed(&mut self) -> u64 {
        let is_here =
            !self.is_gone && !self.only_sends && link::interface_number(&self.name) == Some(self.number);
        let missed = if is_here { link::dropped_on_leaving(&self.name) } else { None };
        let missed = missed.unwrap_or(self.missed);
        missed.saturating_sub(std::mem::replace(&mut self.missed, missed))
    }

    /// Returns the device's state. A device that is up is writable; a removed one is in error.
    fn state(&self) -> State {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut waits = [PollFd::new(&self.device, PollFlags::OUT)];
        let events = poll(&mut waits, Some(&AT_ONCE)).map(|_| waits[0].revents());
        match events {
            Ok(events) if events.contains(PollFlags::ERR) => State::Gone,
            Ok(events) if events.contains(PollFlags::OUT) => State::Up,
            _ => State::Down,
        }
    }
}

impl Drop for TapPort {
    /// Switches offloads off: a device that stays may go to a program without them.
    fn drop(&mut self) {
        if self.only_sends {
            return;
        }
        // If it is gone, so are its offloads.
        let _ = sys::leave_nothing(&self.device);
    }
}

fn open_device() -> Result<File> {
    sys::open_device().map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotFound => {
                "is not there; `modprobe tun` loads it, and a container must be given it".to_owned()
            }
            ErrorKind::PermissionDenied => "may not be opened".to_owned(),
            _ => format!("cannot be opened: {error}"),
        };
        Error::new(error.kind(), format!("{} {why}", sys::DEVICE))
    })
}

fn why_not_taken_over(error: &Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::EINVAL) => {
            "the interface exists, and is no TAP device, or one with several queues".to_owned()
        }
        Some(libc::EBUSY) => "the device exists, and another program has it".to_owned(),
        Some(libc::EPERM) => {
            "the device exists, and is another user's: root, or the capability CAP_NET_ADMIN, is needed"
                .to_owned()
        }
        _ => format!("the device exists, and cannot be taken over: {error}"),
    };
    Error::new(error.kind(), why)
}

fn gone() -> Error {
    Error::new(ErrorKind::NotFound, "the TAP device is gone")
}

/// Returns the link of this end, given the device's: its address is another one.
fn other_end(mut link: LinkState) -> LinkState {
    if let Some(address) = &mut link.address {
        address[0] = (address[0] ^ OTHER_END) | LOCALLY_ADMINISTERED;
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_have_different_unicast_addresses() {
        for first in [0x00, 0x02, 0x3c, 0x52, 0xfe] {
            let address = [first, 0x54, 0, 1, 2, 3];
            let link = other_end(LinkState { is_up: true, mtu: 1_500, address: Some(address) });
            let other = link.address.unwrap();
            assert_ne!(other, address);
            assert_eq!(other[1..], address[1..]);
            // Neither a group address nor a maker's.
            assert_eq!(other[0] & 3, 2, "{other:?}");
        }
    }

    #[test]
    fn names_that_the_kernel_would_change_are_refused() {
        for name in ["", "tap%d", "a b", "a/b", "a:b"] {
            let refused = TapPort::parse(name).unwrap_err();
            assert!(refused.contains("such as"), "{name}: {refused}");
        }
    }
}
