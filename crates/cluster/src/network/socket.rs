//! A UDP socket that sends and receives many datagrams at once (GSO and GRO, where the kernel has
//! them). Datagrams are never fragmented (`IP_PMTUDISC_PROBE`, for both families): the link
//! discovers the path MTU. A reply leaves from the address that received the request; on a host
//! with several addresses, the system might choose another one.

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

/// Buffers per receive call.
const BUFFERS: usize = 8;
/// Length of a buffer, in bytes: one datagram, or many that the kernel has joined.
const BUFFER_LEN: usize = 65_536;
/// Bytes that the kernel may buffer in each direction; fewer if its own limit is lower and the
/// process lacks CAP_NET_ADMIN.
const KERNEL_BUFFER_LEN: usize = 4 << 20;

/// The outcome of passing datagrams to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// The kernel has accepted all.
    Taken,
    /// The kernel's buffer is full, and it has accepted none.
    Busy,
    /// The kernel has accepted this many; the next one exceeds the interface's MTU.
    TooLarge(usize),
}

/// A UDP socket.
pub struct DatagramSocket {
    socket: UdpSocket,
    state: UdpSocketState,
    /// The kernel splits one buffer into many datagrams.
    has_segmentation: bool,
    /// An IPv6 socket that also carries IPv4-mapped addresses.
    is_dual: bool,
    buffers: Vec<u8>,
    metas: [RecvMeta; BUFFERS],
}

impl DatagramSocket {
    /// Opens a socket bound to all IPv6 and IPv4 addresses.
    ///
    /// # Errors
    /// If the system is out of sockets or ports.
    pub fn open() -> io::Result<DatagramSocket> {
        match bound_to_all(SocketType::DGRAM, 0)? {
            Some(socket) => DatagramSocket::over(socket.into()),
            None => DatagramSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into()),
        }
    }

    /// Opens a socket at an address.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(address: SocketAddr) -> io::Result<DatagramSocket> {
        DatagramSocket::over(UdpSocket::bind(address)?)
    }

    fn over(socket: UdpSocket) -> io::Result<DatagramSocket> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Without CAP_NET_ADMIN, net.core.rmem_max is the limit; lost bursts are retransmitted.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER_LEN);
        if set_socket_recv_buffer_size_force(&socket, KERNEL_BUFFER_LEN).is_err() {
            let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), KERNEL_BUFFER_LEN);
        }
        let metas = [RecvMeta::default(); BUFFERS];
        let has_segmentation = state.max_gso_segments() > 1;
        let (is_dual, buffers) = (socket.local_addr()?.is_ipv6(), vec![0; BUFFERS * BUFFER_LEN]);
        Ok(DatagramSocket { socket, state, has_segmentation, is_dual, buffers, metas })
    }

    /// Returns the descriptor that becomes readable when a datagram arrives.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns its address.
    ///
    /// # Errors
    /// If the system cannot report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Receives datagrams, each with the endpoints of a reply. Returns false if there is none.
    pub fn receive(&mut self, mut take: impl FnMut(Endpoints, &mut [u8])) -> bool {
        let mut slices = self.buffers.chunks_mut(BUFFER_LEN);
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(slices.next().unwrap_or_default()));
        let received = self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut self.metas);
        let Ok(count) = received else { return false }; // Nothing arrived, or a send failed with ICMP.
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
                // The kernel has different errors for a batch that exceeds the MTU and for missing
                // support of batches. Single datagrams show which it is.
                Err(_) => {}
            }
        }
        for (count, datagram) in contents.chunks(segment.max(1)).enumerate() {
            match self.try_send_one(ends, datagram) {
                Err(error) if is_too_large(&error) => return Handover::TooLarge(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock && count == 0 => return Handover::Busy,
                // Lost, or an earlier one was refused: the link retransmits it.
                Ok(()) | Err(_) => {}
            }
        }
        if is_batch && self.state.max_gso_segments() == 1 {
            self.has_segmentation = false;
        }
        Handover::Taken
    }

    /// Sends a datagram; from another address if this host no longer has the former one, so that
    /// the other end learns the new one.
    fn try_send_one(&mut self, ends: Endpoints, datagram: &[u8]) -> io::Result<()> {
        let error = match self.try_send(ends, datagram, None) {
            Err(error) if ends.local.is_some() && !is_too_large(&error) => error,
            outcome => return outcome,
        };
        if error.kind() == ErrorKind::WouldBlock {
            return Err(error);
        }
        self.try_send(Endpoints { local: None, ..ends }, datagram, None)?;
        // The error for a missing address has also switched segmentation off.
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

    /// Waits until a datagram arrives, up to a timeout.
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

/// Returns true if a datagram exceeds the interface's MTU.
fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
}
