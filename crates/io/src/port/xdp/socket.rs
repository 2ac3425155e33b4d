//! System calls of AF_XDP sockets (Documentation/networking/af_xdp.rst of Linux).
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io::{Error, Result};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use memmap2::{MmapMut, MmapOptions};
use zerocopy::{FromBytes, IntoBytes};

use super::memory::Memory;
use super::ring::{Consumer, Descriptor, Layout, Producer};
use crate::port::sys::{done, set, set_buffers};

/// Bytes of unsent frames in the kernel.
const SOCKET_BUFFER: c_int = 16 * 1024 * 1024;

/// Frames that one call sends: `XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17; before, it is 32.
const SENT_AT_ONCE: u32 = 256;
const MAX_TX_SKB_BUDGET: c_int = 9;

/// Number and interval of attempts to get a queue that another socket has just left.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Lengths of a socket's rings, powers of two.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub receive: u32,
    pub send: u32,
}

/// A socket of one receive queue of an interface, and its rings.
pub struct Socket {
    fd: OwnedFd,
    /// Received frames.
    pub received: Consumer<Descriptor>,
    /// Rooms for frames to receive.
    pub fill: Producer<u64>,
    /// Frames to send.
    pub send: Producer<Descriptor>,
    /// Rooms of sent frames.
    pub sent: Consumer<u64>,
}

impl Socket {
    /// Opens a socket with this memory, which must live as long, without a queue.
    pub fn new(memory: &Memory, sizes: Sizes) -> Result<Socket> {
        let fd = probe()?;
        register(&fd, memory)?;
        for (ring, len) in [
            (libc::XDP_UMEM_FILL_RING, sizes.receive),
            (libc::XDP_UMEM_COMPLETION_RING, sizes.send),
            (libc::XDP_RX_RING, sizes.receive),
            (libc::XDP_TX_RING, sizes.send),
        ] {
            set(&fd, libc::SOL_XDP, ring, &len)?;
        }
        // An older kernel ignores options that it does not know.
        let _ = set(&fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, &SENT_AT_ONCE.min(sizes.send));
        set_buffers(&fd, SOCKET_BUFFER)?;
        // SAFETY: all fields are numbers: zeros are valid.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { zeroed() };
        get(&fd, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        let (rx, fr, tx, cr) = (offsets.rx, offsets.fr, offsets.tx, offsets.cr);
        let (fill, sent) = (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let received = map::<Descriptor>(&fd, libc::XDP_PGOFF_RX_RING as u64, rx.desc, sizes.receive)?;
        let fill = map::<u64>(&fd, fill, fr.desc, sizes.receive)?;
        let send = map::<Descriptor>(&fd, libc::XDP_PGOFF_TX_RING as u64, tx.desc, sizes.send)?;
        let sent = map::<u64>(&fd, sent, cr.desc, sizes.send)?;
        Ok(Socket {
            received: Consumer::new(received, layout(rx), sizes.receive)?,
            fill: Producer::new(fill, layout(fr), sizes.receive)?,
            send: Producer::new(send, layout(tx), sizes.send)?,
            sent: Consumer::new(sent, layout(cr), sizes.send)?,
            fd,
        })
    }

    /// Binds it to a queue, without copying if the interface can and `may_share`. Returns whether
    /// frames are shared.
    pub fn bind(&self, interface: u32, queue: u32, may_share: bool) -> Result<bool> {
        let copy = if may_share { 0 } else { libc::XDP_COPY };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | copy,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let bind = || {
            // SAFETY: the kernel only reads the address, which has the given length.
            done(unsafe {
                libc::bind(
                    self.fd.as_raw_fd(),
                    (&raw const address).cast(),
                    size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
                )
            })
        };
        let mut tries = 1;
        loop {
            match bind() {
                Ok(_) => break,
                // A socket that was just closed keeps its queue for a moment.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(BETWEEN_TRIES);
                }
                Err(error) => return Err(error),
            }
        }
        let mut options = 0u32;
        get(&self.fd, libc::XDP_OPTIONS, &mut options)?;
        Ok(options & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Returns the frames that the kernel has dropped since the socket was opened, because there
    /// was no room or no program took them.
    pub fn missed(&self) -> u64 {
        // SAFETY: all fields are numbers: zeros are valid.
        let mut statistics: libc::xdp_statistics = unsafe { zeroed() };
        // An empty fill ring counts as dropped frames where frames are copied, and loses none where
        // they are shared.
        get(&self.fd, libc::XDP_STATISTICS, &mut statistics)
            .map_or(0, |()| statistics.rx_dropped + statistics.rx_ring_full)
    }

    /// Has the kernel send the frames of the ring.
    pub fn wake_sender(&self) -> Result<()> {
        // SAFETY: no memory is passed.
        let sent = unsafe {
            libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        done(sent as c_int).map(drop)
    }

    /// Has the kernel use the rooms for frames to receive.
    pub fn wake_receiver(&self) {
        let (null, nobody) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no memory is passed. It receives nothing, so the returned value is unused.
        unsafe {
            libc::recvfrom(self.fd.as_raw_fd(), null, 0, libc::MSG_DONTWAIT, nobody, std::ptr::null_mut())
        };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens such a socket, if the kernel has them and permits it.
pub fn probe() -> Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = done(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just created it; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives the kernel the memory of the socket's frames.
fn register(fd: &OwnedFd, memory: &Memory) -> Result<()> {
    // SAFETY: all fields are numbers: zeros are valid.
    let mut region: libc::xdp_umem_reg = unsafe { zeroed() };
    region.addr = memory.as_ptr() as u64;
    region.len = memory.len() as u64;
    region.chunk_size = memory.room() as u32;
    set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &region).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS) => Error::new(
            error.kind(),
            format!(
                "{} KiB of memory cannot be locked: it takes CAP_IPC_LOCK, or a higher limit (ulimit -l)",
                memory.len() >> 10
            ),
        ),
        _ => error,
    })
}

/// Maps a ring with entries from this offset on.
fn map<T: FromBytes + IntoBytes>(fd: &OwnedFd, offset: u64, entries: u64, len: u32) -> Result<MmapMut> {
    let bytes = entries as usize + len as usize * size_of::<T>();
    // SAFETY: the mapping is of the socket's own rings, which are used as the kernel does: indexes
    // by atomic operations, and each entry by the side that owns it.
    unsafe { MmapOptions::new().offset(offset).len(bytes).populate().map_mut(fd) }
}

fn layout(ring: libc::xdp_ring_offset) -> Layout {
    let libc::xdp_ring_offset { producer, consumer, desc, flags } = ring;
    Layout { producer, consumer, flags, entries: desc }
}

fn get<T>(fd: &OwnedFd, option: c_int, value: &mut T) -> Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let into = std::ptr::from_mut(value).cast();
    // SAFETY: the kernel writes at most `len` bytes to a structure of numbers of that length.
    done(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, into, &raw mut len) }).map(drop)
}
