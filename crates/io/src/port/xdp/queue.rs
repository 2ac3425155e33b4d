//! One receive queue of an interface, and the send queue of the same number.
#![allow(unsafe_code)]

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd};

use packet::memory::prefetch;

use super::memory::Memory;
use super::ring::Descriptor;
use super::socket::{Sizes, Socket};
use crate::port::{Counters, wait_for_room};

/// Frames received at once.
const TAKEN_AT_ONCE: u32 = 64;

/// Frames between the current frame and the prefetched one.
const AHEAD: u32 = 4;

/// A queue's socket, and the memory of its frames.
pub struct Queue {
    // Before the memory, so that it is closed first.
    socket: Socket,
    memory: Memory,
    /// Free rooms for frames to send.
    free: Vec<u64>,
    /// The driver transfers frames without copying.
    is_shared: bool,
    /// Missed frames that were reported.
    missed_reported: u64,
}

impl Queue {
    /// Opens the queue with this number, with this room for each frame; without copying, if the
    /// interface can and `may_share`.
    pub fn open(interface: u32, number: u32, sizes: Sizes, room: usize, may_share: bool) -> Result<Queue> {
        let frames = sizes.receive + sizes.send;
        let memory = Memory::new(frames as usize, room)?;
        let mut socket = Socket::new(&memory, sizes)?;
        let mut rooms = (0..frames).map(|frame| u64::from(frame) * room as u64);
        for at in rooms.by_ref().take(sizes.receive as usize) {
            socket.fill.put(at);
        }
        socket.fill.publish();
        let free = rooms.collect();
        let is_shared = socket.bind(interface, number, may_share)?;
        if socket.fill.needs_wakeup() {
            socket.wake_receiver();
        }
        Ok(Queue { socket, memory, free, is_shared, missed_reported: 0 })
    }

    /// Returns whether the card and this side share frames without copying.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the frames missed since the last call.
    pub fn take_missed(&mut self) -> u64 {
        let missed = self.socket.missed();
        missed.saturating_sub(std::mem::replace(&mut self.missed_reported, missed))
    }

    /// Hands over up to 64 received frames.
    pub fn receive(&mut self, mut each: impl FnMut(&mut [u8])) {
        let Socket { received, fill, .. } = &mut self.socket;
        let count = received.refresh().min(TAKEN_AT_ONCE);
        if count == 0 {
            return;
        }
        for _ in 0..count {
            if let Some(ahead) = received.peek(AHEAD) {
                prefetch(self.memory.as_ptr().wrapping_add(ahead.at as usize));
            }
            let Some(Descriptor { at, len, .. }) = received.take() else { break };
            // SAFETY: the kernel has put the frame into the ring, and gets its room back below.
            if let Some(frame) = unsafe { self.memory.frame(at, len as usize) } {
                each(frame);
            }
            // As many rooms are in use as the ring has entries, so there is always one free.
            fill.put(self.memory.room_at(at));
        }
        received.release();
        fill.publish();
        if fill.needs_wakeup() {
            self.socket.wake_receiver();
        }
    }

    /// Puts a frame into the send ring; returns whether there was room.
    pub fn put(&mut self, frame: &[u8]) -> bool {
        if frame.len() > self.memory.room() {
            return false;
        }
        let Some(at) = self.free.pop() else { return false };
        // SAFETY: the room is free: the kernel was not given it, or has returned it.
        let Some(room) = (unsafe { self.memory.frame(at, frame.len()) }) else { return false };
        room.copy_from_slice(frame);
        // There are no more rooms than entries of the ring.
        self.socket.send.put(Descriptor { at, len: frame.len() as u32, options: 0 })
    }

    /// Has the kernel send the frames. A frame that it took and did not send is no longer counted
    /// as sent; frames that it did not take stay.
    pub fn send(&mut self, counters: &mut Counters) -> Sent {
        self.socket.send.publish();
        let mut has_waited = false;
        let mut left = self.socket.send.waiting();
        while left > 0 {
            if self.is_shared && !self.socket.send.needs_wakeup() {
                break;
            }
            let woken = self.socket.wake_sender();
            let before = std::mem::replace(&mut left, self.socket.send.waiting());
            self.reclaim();
            match woken.map_err(|error| error.raw_os_error()) {
                Ok(()) if self.is_shared => break,
                Ok(()) | Err(Some(libc::EINTR)) => {}
                // The interface did not take a frame, which is lost.
                Err(Some(libc::EBUSY)) if !self.is_shared => {
                    counters.sent = counters.sent.saturating_sub(1);
                    counters.no_room += 1;
                }
                Err(Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::ENOMEM)) => {
                    if left == before && std::mem::replace(&mut has_waited, true) {
                        return Sent::NoRoom;
                    }
                    if left == before {
                        wait_for_room(self.socket.as_fd());
                    }
                }
                Err(_) => return Sent::Down,
            }
        }
        self.reclaim();
        Sent::All
    }

    /// Returns the frames that the kernel did not take.
    pub fn left(&mut self) -> u32 {
        if self.is_shared { 0 } else { self.socket.send.waiting() }
    }

    /// Takes back the rooms of sent frames.
    fn reclaim(&mut self) {
        let sent = &mut self.socket.sent;
        sent.refresh();
        while let Some(at) = sent.take() {
            self.free.push(self.memory.room_at(at));
        }
        sent.release();
    }
}

/// Progress of the frames to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has them, or will take them.
    All,
    /// It takes no more of them now.
    NoRoom,
    /// The interface is down, or gone.
    Down,
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
