//! A packet socket: system calls for up to 64 frames, and TCP segments joined on the way out.

use std::io::{ErrorKind, Result};
use std::os::fd::OwnedFd;

use super::sys;
use crate::port::join::{self, SendUnit};
use crate::port::{Counters, TransmitBurst, of_unsent, offload, wait_for_room};

/// A packet socket of an interface.
pub struct PacketSocket {
    socket: OwnedFd,
    inbox: sys::Inbox,
    /// A segment that is cut off a frame.
    segment: Vec<u8>,
    /// The units of a call.
    units: Vec<SendUnit>,
    /// Bytes of the longest packet that the interface takes.
    mtu: usize,
    /// The kernel takes joined segments.
    joins: bool,
}

impl PacketSocket {
    /// Opens the interface with this number and MTU. With a `group`, the kernel shares out received
    /// frames among its sockets; the first socket makes it.
    pub fn open(interface: u32, mtu: u32, group: Option<&mut Option<u16>>) -> Result<PacketSocket> {
        let socket = match group {
            None => sys::open(interface)?,
            Some(group) => {
                let (socket, joined) = sys::open_in_group(interface, *group)?;
                *group = Some(joined);
                socket
            }
        };
        Ok(PacketSocket::of(socket, mtu))
    }

    /// Opens the interface with this number and MTU to send only.
    pub fn open_to_send(interface: u32, mtu: u32) -> Result<PacketSocket> {
        Ok(PacketSocket::of(sys::open_to_send(interface)?, mtu))
    }

    fn of(socket: OwnedFd, mtu: u32) -> PacketSocket {
        PacketSocket {
            socket,
            inbox: sys::Inbox::new(),
            segment: Vec::new(),
            units: Vec::with_capacity(sys::FRAMES),
            mtu: mtu as usize,
            joins: true,
        }
    }

    /// Updates the interface's MTU.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.mtu = mtu as usize;
    }

    /// Returns the socket, to wait for and to ask about the interface.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Returns the frames that the kernel dropped for want of room since the last call.
    pub fn take_missed(&mut self) -> u64 {
        sys::take_drops(&self.socket).unwrap_or(0)
    }

    /// Receives frames, see [`crate::port::Interface::receive`].
    pub fn receive(&mut self, counters: &mut Counters, mut each: impl FnMut(&[u8])) -> Result<()> {
        let count = match self.inbox.receive(&self.socket) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                // The frame is segmented in a way that the kernel cannot describe, and is lost.
                counters.unreadable += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for at in 0..count {
            offload::deliver(self.inbox.frame(at), &mut self.segment, counters, &mut each);
        }
        Ok(())
    }

    /// Sends frames, see [`crate::port::Interface::send`].
    pub fn send(&mut self, burst: &TransmitBurst, counters: &mut Counters) {
        let (mut bytes, mut lens) = (&burst.bytes[..], &burst.lens[..]);
        let mut has_waited = false;
        while !lens.is_empty() {
            let now = &lens[..lens.len().min(sys::FRAMES)];
            join::units(bytes, now, if self.joins { self.mtu } else { 0 }, &mut self.units);
            let frames_of = |units: &[SendUnit]| units.iter().map(|unit| unit.frames).sum::<usize>();
            let gone = match sys::send(&self.socket, bytes, lens, &self.units) {
                Ok(sent) => {
                    let sent = frames_of(&self.units[..sent]);
                    counters.sent += sent as u64;
                    counters.sent_bytes += lens[..sent].iter().sum::<usize>() as u64;
                    sent
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => 0,
                    ErrorKind::WouldBlock if !has_waited => {
                        has_waited = true;
                        wait_for_room(&self.socket);
                        0
                    }
                    ErrorKind::InvalidInput if frames_of(&self.units[..1]) > 1 => {
                        // A kernel that does not cut gets single segments from now on.
                        self.joins = false;
                        0
                    }
                    _ => {
                        let lost = frames_of(&self.units[..1]);
                        *of_unsent(counters, &error) += lost as u64;
                        lost
                    }
                },
            };
            bytes = &bytes[lens[..gone].iter().sum::<usize>()..];
            lens = &lens[gone..];
        }
    }
}
