//! A UDP socket that sends and receives many datagrams at once (GSO and GRO, where the kernel has
//! them). Datagrams are never fragmented (`IP_PMTUDISC_PROBE`, of both families): the link finds
//! out their length. Answers leave from the address to which the question came, which need not be
//! the system's choice on a host with several.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::addresses::{Endpoints, bound_to_all};

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
    has_segmentation: bool,
    /// It is of IPv6, and has addresses of IPv4 in the form of IPv6.
    is_dual: bool,
    buffers: Vec<u8>,
    metas: [RecvMeta; BUFFERS],
}

impl DatagramSocket {
    /// Opens a socket for all addresses, of IPv6 and of IPv4.
    ///
    /// # Errors
    /// If there are no more sockets or ports.
    pub fn open() -> io::Result<DatagramSocket> {
        match bound_to_all(SocketType::DGRAM, 0)? {
            Some(socket) => DatagramSocket::over(socket.into()),
            None => DatagramSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into()),
        }
    }

    /// Opens a socket at an address.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn bind(address: SocketAddr) -> io::Result<DatagramSocket> {
        DatagramSocket::over(UdpSocket::bind(address)?)
    }

    fn over(socket: UdpSocket) -> io::Result<DatagramSocket> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Without CAP_NET_ADMIN, the limit net.core.rmem_max holds: bursts are lost and sent again.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER_LEN);
        if set_socket_recv_buffer_size_force(&socket, KERNEL_BUFFER_LEN).is_err() {
            let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER_LEN);
        }
        let metas = [RecvMeta::default(); BUFFERS];
        let has_segmentation = state.max_gso_segments() > 1;
        let (is_dual, buffers) = (socket.local_addr()?.is_ipv6(), vec![0; BUFFERS * BUFFER_LEN]);
        Ok(DatagramSocket { socket, state, has_segmentation, is_dual, buffers, metas })
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

    /// Receives datagrams that have arrived, each with the ends of its answer. Returns false if
    /// there is none.
    pub fn receive(&mut self, mut take: impl FnMut(Endpoints, &mut [u8])) -> bool {
        let mut slices = self.buffers.chunks_mut(BUFFER_LEN);
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(slices.next().unwrap_or_default()));
        let received = self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut self.metas);
        let Ok(count) = received else { return false }; // Nothing is there, or an ICMP error of a send.
        for (meta, buffer) in self.metas.iter().zip(self.buffers.chunks_mut(BUFFER_LEN)).take(count) {
            let (stride, ends) = (meta.stride.max(1), Endpoints::new(meta.dst_ip, meta.addr));
            for datagram in buffer[..meta.len].chunks_mut(stride) {
                take(ends, datagram);
            }
        }
        count > 0
    }

    /// Sends datagrams of `segment` bytes each; the last may be shorter.
    pub fn send(&mut self, ends: Endpoints, contents: &[u8], segment: usize) -> Handover {
        let is_batch = segment < contents.len() && self.has_segmentation;
        if is_batch {
            match self.try_send(ends, contents, Some(segment)) {
                Ok(()) => return Handover::Taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Handover::Busy,
                // The kernel says with different errors that a batch is too large for the way out,
                // or that it has no batches: single datagrams show which.
                Err(_) => {}
            }
        }
        for (count, datagram) in contents.chunks(segment.max(1)).enumerate() {
            match self.try_send_one(ends, datagram) {
                Err(error) if is_too_large(&error) => return Handover::TooLarge(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock && count == 0 => return Handover::Busy,
                // Lost on the way, or an earlier one was refused: the link sends it again.
                Ok(()) | Err(_) => {}
            }
        }
        if is_batch && self.state.max_gso_segments() == 1 {
            self.has_segmentation = false;
        }
        Handover::Taken
    }

    /// Sends a datagram: from another address of this host if it has the one before no longer, so
    /// that the other end learns it.
    fn try_send_one(&mut self, ends: Endpoints, datagram: &[u8]) -> io::Result<()> {
        let error = match self.try_send(ends, datagram, None) {
            Err(error) if ends.local.is_some() && !is_too_large(&error) => error,
            outcome => return outcome,
        };
        if error.kind() == ErrorKind::WouldBlock {
            return Err(error);
        }
        self.try_send(Endpoints { local: None, ..ends }, datagram, None)?;
        // The kernel's error for an address is the one by which it says that it has no batches.
        self.state = UdpSocketState::new(UdpSockRef::from(&self.socket))?;
        Ok(())
    }

    fn try_send(&self, ends: Endpoints, contents: &[u8], segment_size: Option<usize>) -> io::Result<()> {
        let mut destination = ends.remote;
        if let (true, IpAddr::V4(ip)) = (self.is_dual, destination.ip()) {
            destination.set_ip(ip.to_ipv6_mapped().into());
        }
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip: ends.local };
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

/// Returns whether a datagram is too large for the way out.
fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
}
