//! A port that is a TAP device: the machine's own stack, a container's, or a bridge is at the other
//! end, and what it sends through the device comes here.
//!
//! The device is made, and goes with its last file descriptor, however the process ends; or one
//! that is there already is taken over, and stays. It can be moved to another network namespace and
//! set down and up there; what it is like is then known by what can be asked of the file descriptor
//! alone.

mod sys;

use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Result, Write};
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::IntoBytes;

use super::join::{self, JOINED_MAX, Parcel};
use super::link::{self, Link};
use super::offload::{self, FRAME_LEN_MAX, FRONT_ROOM, OffloadHeader, Raw};
use super::{Counters, Outbox, of_unsent, wait_for_room};

/// Frames that are taken at once.
const FRAMES: usize = 64;

/// A bit of an Ethernet address in which this end's differs from the device's: not one in which
/// cards of one maker, or addresses that somebody counts up, differ.
const OTHER_END: u8 = 0x40;

/// A bit of an Ethernet address: no maker has given it (IEEE 802).
const LOCALLY_ADMINISTERED: u8 = 0x02;

/// A TAP device's frames.
pub struct Tap {
    device: File,
    /// Can be asked about interfaces.
    questions: OwnedFd,
    /// What the device was like when it was last found.
    link: Link,
    /// Whether it was deleted.
    is_gone: bool,
    /// Whether another part of the same interface has all that comes.
    only_sends: bool,
    /// Frames that the kernel had dropped when it was last asked.
    missed: u64,
    /// Room for a frame, behind what a VLAN tag takes.
    room: Box<[u8]>,
    /// A segment that is cut off a frame.
    segment: Vec<u8>,
    /// What is sent.
    parcels: Vec<Parcel>,
}

/// What can be told of a device by its file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Down,
    Gone,
}

impl Tap {
    /// Makes a device with this name, and sets it up; or takes over the one that is there. With it,
    /// its number.
    ///
    /// # Errors
    /// With a word why: if there is no `/dev/net/tun`, a privilege is missing, or what is there is
    /// something else, or another program's.
    pub fn open(name: &str) -> Result<(Tap, u32)> {
        let is_name =
            !name.is_empty() && !name.contains(['/', ':', '%']) && !name.contains(char::is_whitespace);
        if !is_name {
            return Err(Error::new(ErrorKind::InvalidInput, "that is no name for a TAP device"));
        }
        let device = open_device()?;
        let questions = OwnedFd::from(UnixDatagram::unbound()?);
        match sys::make(&device, name) {
            Ok(()) => link::set_up(&questions, name)?,
            Err(error) => match error.raw_os_error() {
                Some(libc::EBUSY) => {
                    sys::take_over(&device, name).map_err(|error| why_not_taken_over(&error))?
                }
                Some(libc::EPERM) => {
                    let why = "to make a TAP device takes root, or the capability CAP_NET_ADMIN";
                    return Err(Error::new(ErrorKind::PermissionDenied, why));
                }
                _ => return Err(error),
            },
        }
        sys::leave_offloads(&device)?;
        let link = link::link(&questions, name)?;
        let number = link::interface_number(name).ok_or_else(gone)?;
        let mut tap = Tap {
            device,
            questions,
            link: other_end(link),
            is_gone: false,
            only_sends: false,
            missed: 0,
            room: vec![0; FRONT_ROOM + FRAME_LEN_MAX].into_boxed_slice(),
            segment: Vec::new(),
            parcels: Vec::new(),
        };
        tap.take_missed(name, number);
        Ok((tap, number))
    }

    /// Another part of the same interface, which only sends: so frames are read in the order in
    /// which they came.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sender(&self) -> Result<Tap> {
        Ok(Tap {
            device: self.device.try_clone()?,
            questions: self.questions.try_clone()?,
            link: self.link,
            is_gone: self.is_gone,
            only_sends: true,
            missed: 0,
            room: Box::default(),
            segment: Vec::new(),
            parcels: Vec::new(),
        })
    }

    /// What there is to be waited for: nothing, if the device is gone, or another part has what
    /// comes.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_gone && !self.only_sends).then(|| self.device.as_fd())
    }

    /// What the link of this end is like now. In another network namespace it is known whether it
    /// is up; else it is what it was when it went there.
    ///
    /// # Errors
    /// If it is gone.
    pub fn link(&self, name: &str, number: u32) -> Result<Link> {
        match self.state() {
            State::Gone => Err(gone()),
            _ if link::interface_number(name) == Some(number) => {
                link::link(&self.questions, name).map(other_end)
            }
            state => Ok(Link { is_up: state == State::Up, ..self.link }),
        }
    }

    /// Sees to it that there is a device: if it was deleted, the next one of this name that is a
    /// TAP is taken over, and its number noted. Whether so.
    ///
    /// # Errors
    /// As long as there is none.
    pub fn reopen(&mut self, name: &str, number: &mut u32) -> Result<bool> {
        let is_gone = self.state() == State::Gone;
        if self.only_sends {
            // The part that has what comes takes the next one over, for all.
            let found = link::interface_number(name).filter(|_| !is_gone).unwrap_or(*number);
            let is_another = std::mem::replace(number, found) != found;
            self.is_gone = is_gone;
            self.link = self.link(name, *number)?;
            return Ok(is_another);
        }
        if is_gone {
            self.is_gone = true;
            let found = link::interface_number(name).ok_or_else(gone)?;
            sys::take_over(&self.device, name)?;
            sys::leave_offloads(&self.device)?;
            *number = found;
            self.is_gone = false;
            self.take_missed(name, found);
        }
        self.link = self.link(name, *number)?;
        Ok(is_gone)
    }

    /// How many frames the kernel has dropped for want of room since it was last asked; none that
    /// is told of in another network namespace.
    pub fn take_missed(&mut self, name: &str, number: u32) -> u64 {
        let is_here = !self.is_gone && !self.only_sends && link::interface_number(name) == Some(number);
        let missed = if is_here { link::dropped_on_leaving(name) } else { None }.unwrap_or(self.missed);
        missed.saturating_sub(std::mem::replace(&mut self.missed, missed))
    }

    /// See [`super::Interface::receive`].
    pub fn receive(&mut self, counters: &mut Counters, mut each: impl FnMut(&[u8])) -> Result<()> {
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
            // There is room for all that the kernel puts together for a TAP device.
            let raw = Raw { room: &mut self.room[..FRONT_ROOM + len], offload, tag: None, is_cut_off: false };
            offload::tell(raw, &mut self.segment, counters, &mut each);
        }
        Ok(())
    }

    /// See [`super::Interface::send`].
    pub fn send(&mut self, outbox: &Outbox, counters: &mut Counters) {
        let mtu = self.link.mtu as usize;
        join::parcels(&outbox.bytes, &outbox.lens, mtu, &mut self.parcels);
        let (mut frames, mut has_waited) = (outbox.frames(), false);
        for parcel in &self.parcels {
            let mut pieces = [IoSlice::new(&[]); 2 + JOINED_MAX];
            (pieces[0], pieces[1]) =
                (IoSlice::new(parcel.offload.as_bytes()), IoSlice::new(parcel.headers()));
            let (mut count, mut len, mut is_too_long) = (2, 0, false);
            for frame in frames.by_ref().take(parcel.frames) {
                pieces[count] = IoSlice::new(&frame[parcel.skip()..]);
                (count, len) = (count + 1, len + frame.len());
                is_too_long = super::is_too_long(frame, mtu);
            }
            if is_too_long {
                counters.too_long += 1;
                continue;
            }
            loop {
                let Err(error) = (&self.device).write_vectored(&pieces[..count]) else {
                    counters.sent += parcel.frames as u64;
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
                        *of_unsent(counters, &error) += parcel.frames as u64;
                        break;
                    }
                }
            }
        }
    }

    /// A device that is up takes frames, and one that is gone is an error to wait for.
    fn state(&self) -> State {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut waits = [PollFd::new(&self.device, PollFlags::OUT)];
        let told = poll(&mut waits, Some(&AT_ONCE)).map(|_| waits[0].revents());
        match told {
            Ok(told) if told.contains(PollFlags::ERR) => State::Gone,
            Ok(told) if told.contains(PollFlags::OUT) => State::Up,
            _ => State::Down,
        }
    }
}

impl Drop for Tap {
    /// One that stays may go to a program that does not know what this one had left to it.
    fn drop(&mut self) {
        if self.only_sends {
            return;
        }
        // If it is gone, so is what was left.
        let _ = sys::leave_nothing(&self.device);
    }
}

/// Why no TAP device can be opened on this machine by who asks, whatever its name; none if that is
/// not so.
pub fn why_not() -> Option<String> {
    open_device().err().map(|error| error.to_string())
}

fn open_device() -> Result<File> {
    sys::open_device().map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotFound => "is not there (`modprobe tun`; a container has to be given it)".to_owned(),
            ErrorKind::PermissionDenied => "may not be opened".to_owned(),
            _ => format!("cannot be opened: {error}"),
        };
        Error::new(error.kind(), format!("{} {why}", sys::DEVICE))
    })
}

fn why_not_taken_over(error: &Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::EINVAL) => {
            "it is there already, and is no TAP device, or one of several queues".to_owned()
        }
        Some(libc::EBUSY) => "it is there already, and another program has it".to_owned(),
        Some(libc::EPERM) => {
            "it is there already, and another user's: that takes root, or the capability CAP_NET_ADMIN"
                .to_owned()
        }
        _ => format!("it is there already, and cannot be taken over: {error}"),
    };
    Error::new(error.kind(), why)
}

fn gone() -> Error {
    Error::new(ErrorKind::NotFound, "the TAP device is gone")
}

/// What this end of a device is like whose other end is so: it has an address of its own, as the
/// device's is the other one's.
fn other_end(mut link: Link) -> Link {
    if let Some(address) = &mut link.address {
        address[0] = (address[0] ^ OTHER_END) | LOCALLY_ADMINISTERED;
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_have_different_addresses_that_are_one_hosts() {
        for first in [0x00, 0x02, 0x3c, 0x52, 0xfe] {
            let address = [first, 0x54, 0, 1, 2, 3];
            let link = other_end(Link { is_up: true, mtu: 1_500, address: Some(address) });
            let other = link.address.unwrap();
            assert_ne!(other, address);
            assert_eq!(other[1..], address[1..]);
            // Neither a group's nor a maker's.
            assert_eq!(other[0] & 3, 2, "{other:?}");
        }
    }

    #[test]
    fn names_that_the_kernel_would_change_are_refused() {
        for name in ["", "tap%d", "a b", "a/b", "a:b"] {
            let error = Tap::open(name).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
        }
    }
}
