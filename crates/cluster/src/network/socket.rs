//! A UDP socket that sends and receives many datagrams at once (GSO and GRO, where the kernel has
//! them). Datagrams are never fragmented (`IP_PMTUDISC_PROBE`): the link finds out their length.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// Buffers of one call to receive.
const BUFFERS: usize = 8;
/// Bytes of each: one datagram, or many that the kernel has joined.
const BUFFER_LEN: usize = 65_536;
/// Bytes that the kernel may hold in each direction; fewer if its own limit is lower and the
/// process has no CAP_NET_ADMIN.
const KERNEL_BUFFER_LEN: usize = 4 << 20;

/// The fate of datagrams given to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// It has taken all of them.
    Taken,
    /// It takes no more now, and has taken none.
    Busy,
    /// It has taken only that many: the next one is too large for the way out.
    TooLarge(usize),
}

/// A UDP socket.
pub struct DatagramSocket {
    socket: UdpSocket,
    state: UdpSocketState,
    /// The kernel divides one buffer into many datagrams.
    has_segmentation: Cell<bool>,
    buffers: Vec<u8>,
    metas: [RecvMeta; BUFFERS],
}

impl DatagramSocket {
    /// Opens a socket.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn bind(address: SocketAddr) -> io::Result<DatagramSocket> {
        let socket = UdpSocket::bind(address)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Without CAP_NET_ADMIN, the limit net.core.rmem_max holds: bursts are lost and sent again.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER_LEN);
        if set_socket_recv_buffer_size_force(&socket, KERNEL_BUFFER_LEN).is_err() {
            let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER_LEN);
        }
        let metas = [RecvMeta::default(); BUFFERS];
        let has_segmentation = Cell::new(state.max_gso_segments() > 1);
        Ok(DatagramSocket { socket, state, has_segmentation, buffers: vec![0; BUFFERS * BUFFER_LEN], metas })
    }

    /// Returns what becomes readable when a datagram arrives.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns its address.
    ///
    /// # Errors
    /// If the system does not know it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Receives datagrams that have arrived. Returns false if there is none.
    pub fn receive(&mut self, mut take: impl FnMut(SocketAddr, &mut [u8])) -> bool {
        let mut slices = self.buffers.chunks_mut(BUFFER_LEN);
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(slices.next().unwrap_or_default()));
        let received = self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut self.metas);
        let Ok(count) = received else { return false }; // Nothing is there, or an ICMP error of a send.
        for (meta, buffer) in self.metas.iter().zip(self.buffers.chunks_mut(BUFFER_LEN)).take(count) {
            let stride = meta.stride.max(1);
            for datagram in buffer[..meta.len].chunks_mut(stride) {
                take(meta.addr, datagram);
            }
        }
        count > 0
    }

    /// Sends datagrams of `segment` bytes each; the last may be shorter.
    pub fn send(&self, destination: SocketAddr, contents: &[u8], segment: usize) -> Handover {
        let is_batch = segment < contents.len() && self.has_segmentation.get();
        if is_batch {
            match self.try_send(destination, contents, Some(segment)) {
                Ok(()) => return Handover::Taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Handover::Busy,
                // The kernel says with different errors that a batch is too large for the way out,
                // or that it has no batches: single datagrams show which.
                Err(_) => {}
            }
        }
        for (count, datagram) in contents.chunks(segment.max(1)).enumerate() {
            match self.try_send(destination, datagram, None) {
                Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                    return Handover::TooLarge(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && count == 0 => return Handover::Busy,
                // Lost on the way, or an earlier one was refused: the link sends it again.
                Ok(()) | Err(_) => {}
            }
        }
        if is_batch && self.state.max_gso_segments() == 1 {
            self.has_segmentation.set(false);
        }
        Handover::Taken
    }

    fn try_send(
        &self,
        destination: SocketAddr,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> io::Result<()> {
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip: None };
        self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
    }

    /// Waits until something arrives.
    pub fn wait(&self, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        // An interrupted wait is a short one.
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
    }
}
