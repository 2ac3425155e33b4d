//! System calls of packet sockets.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io::Result;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use zerocopy::IntoBytes;

use crate::port::join::SendUnit;
use crate::port::offload::{FRAME_LEN_MAX, FRONT_ROOM, OffloadHeader, RawFrame, TakenTag};
use crate::port::sys::{done, set, set_buffers};

/// Frames of one call.
pub const FRAMES: usize = 64;

/// Bytes of frames in the kernel that were not received, or not sent.
const SOCKET_BUFFER: c_int = 16 * 1024 * 1024;

/// Opens a packet socket that receives nothing, but keeps the interface in promiscuous mode until
/// it is closed.
pub fn promiscuous(interface: u32) -> Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = done(unsafe {
        libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    })?;
    // SAFETY: the kernel has just created it; it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let promiscuous = libc::packet_mreq {
        mr_ifindex: interface as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
    Ok(socket)
}

/// Opens a packet socket that receives from the interface, in promiscuous mode, and sends through
/// it.
pub fn open(interface: u32) -> Result<OwnedFd> {
    let socket = new(interface)?;
    bind(&socket, interface, libc::ETH_P_ALL as u16)?;
    Ok(socket)
}

/// Opens a socket that only sends.
pub fn open_to_send(interface: u32) -> Result<OwnedFd> {
    let socket = new(interface)?;
    bind(&socket, interface, 0)?;
    Ok(socket)
}

/// Opens a socket of a group, among which the kernel shares out received frames; returns the
/// group's number, too. Without a number, it is the first of a new group.
pub fn open_in_group(interface: u32, group: Option<u16>) -> Result<(OwnedFd, u16)> {
    let socket = new(interface)?;
    // Until it is in the group, it would receive frames that others receive as well: it takes none.
    take_nothing(&socket)?;
    bind(&socket, interface, libc::ETH_P_ALL as u16)?;
    // The kernel chooses the key of a flow. Fragments are not reassembled, so that they arrive
    // unchanged.
    let unique = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
    // A group does not have the option of its sockets. Kernels before 5.11 ignore the flag.
    let flags = unique | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    let how = (libc::PACKET_FANOUT_HASH | flags) << 16 | u32::from(group.unwrap_or(0));
    set(&socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &how)?;
    let mut joined: u32 = 0;
    let mut len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the length of the target.
    done(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut joined).cast(),
            &raw mut len,
        )
    })?;
    set(&socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)?;
    Ok((socket, joined as u16))
}

/// Has the kernel give a socket nothing.
fn take_nothing(socket: &OwnedFd) -> Result<()> {
    // The filter takes no byte of each frame.
    let mut refuse = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut refuse };
    // The kernel has copied the filter when the call returns.
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Opens a packet socket with the interface in promiscuous mode and an offload header before
/// frames; it is not bound yet.
fn new(interface: u32) -> Result<OwnedFd> {
    let socket = promiscuous(interface)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
    set_buffers(&socket, SOCKET_BUFFER)?;
    Ok(socket)
}

/// Binds a socket to the interface, to receive frames of this protocol; none for 0.
fn bind(socket: &OwnedFd, interface: u32, protocol: u16) -> Result<()> {
    // SAFETY: all fields are numbers: zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface as c_int;
    // SAFETY: the kernel only reads the address, which has the given length.
    done(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Returns the frames that the kernel dropped for want of room since the last call.
pub fn take_drops(socket: &OwnedFd) -> Result<u64> {
    // SAFETY: all fields are numbers: zeros are valid.
    let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the length of the target.
    done(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut len,
        )
    })?;
    Ok(statistics.tp_drops.into())
}

/// Room for the one requested control message, aligned as such.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

/// Room for the frames of a call.
pub struct Inbox {
    offloads: Box<[OffloadHeader; FRAMES]>,
    controls: Box<[Control; FRAMES]>,
    /// Of each frame, its length, and whether it was cut off.
    arrived: Vec<(usize, bool)>,
    room: Box<[u8]>,
    /// Frames among which the room is divided.
    frames: usize,
}

const ROOM: usize = FRONT_ROOM + FRAME_LEN_MAX;

/// Frames of one call once a frame was too long for a room: those of BIG TCP have up to 8 times
/// 65,535 bytes (`GSO_MAX_SIZE`, `GRO_MAX_SIZE`).
const LONG_FRAMES: usize = 8;

impl Inbox {
    pub fn new() -> Inbox {
        Inbox {
            offloads: Box::new([OffloadHeader::default(); FRAMES]),
            controls: Box::new([Control([0; 64]); FRAMES]),
            arrived: Vec::with_capacity(FRAMES),
            room: vec![0; FRAMES * ROOM].into_boxed_slice(),
            frames: FRAMES,
        }
    }

    /// Receives up to [`FRAMES`] frames, and returns their number. Does not block. If a frame of
    /// the call before was cut off, frames have longer rooms from now on.
    ///
    /// # Errors
    /// Those of `recvmmsg`; [`std::io::ErrorKind::WouldBlock`] if nothing has arrived.
    pub fn receive(&mut self, socket: &OwnedFd) -> Result<usize> {
        if self.arrived.drain(..).any(|(_, is_cut_off)| is_cut_off) {
            self.frames = LONG_FRAMES;
        }
        let room_len = self.room.len() / self.frames;
        let mut rooms = self.room.chunks_exact_mut(room_len);
        let mut pieces: [[libc::iovec; 2]; FRAMES] = std::array::from_fn(|i| {
            let room = rooms.next().map_or_else(Default::default, |room| &mut room[FRONT_ROOM..]);
            [
                libc::iovec {
                    iov_base: (&raw mut self.offloads[i]).cast(),
                    iov_len: size_of::<OffloadHeader>(),
                },
                libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() },
            ]
        });
        let mut messages: [libc::mmsghdr; FRAMES] = std::array::from_fn(|i| {
            // SAFETY: all fields are numbers or pointers: zeros are valid.
            let mut message: libc::mmsghdr = unsafe { zeroed() };
            message.msg_hdr.msg_iov = pieces[i].as_mut_ptr();
            message.msg_hdr.msg_iovlen = 2;
            message.msg_hdr.msg_control = (&raw mut self.controls[i]).cast();
            message.msg_hdr.msg_controllen = size_of::<Control>() as _;
            message
        });
        // SAFETY: each message points to memory of this inbox or of this function, with its length,
        // and the memory has no other user during the call.
        let count = done(unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                self.frames as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        })? as usize;
        for (message, control) in messages[..count].iter().zip(self.controls.iter_mut()) {
            let len = (message.msg_len as usize).saturating_sub(size_of::<OffloadHeader>());
            self.arrived.push((len, message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0));
            let used = message.msg_hdr.msg_controllen.min(control.0.len());
            control.0[used..].fill(0);
        }
        Ok(count)
    }

    /// Returns the frame with this number of the last call.
    pub fn frame(&mut self, at: usize) -> RawFrame<'_> {
        let (len, is_cut_off) = self.arrived[at];
        let room_len = self.room.len() / self.frames;
        RawFrame {
            room: &mut self.room[at * room_len..][..FRONT_ROOM + len],
            offload: self.offloads[at],
            tag: taken_tag(&self.controls[at]),
            is_cut_off,
        }
    }
}

/// Returns the tag in the first control message, if there is one.
fn taken_tag(control: &Control) -> Option<TakenTag> {
    // SAFETY: the room is aligned for both structures and long enough for them together, and both
    // are plain numbers; bytes that the kernel did not write are zeros.
    let (header, auxdata) = unsafe {
        let at = control.0.as_ptr();
        let auxdata = at.add(libc::CMSG_LEN(0) as usize).cast::<libc::tpacket_auxdata>();
        (at.cast::<libc::cmsghdr>().read(), auxdata.read_unaligned())
    };
    let is_told = header.cmsg_level == libc::SOL_PACKET
        && header.cmsg_type == libc::PACKET_AUXDATA
        && auxdata.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
    let has_protocol = auxdata.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    is_told.then_some(TakenTag {
        protocol: if has_protocol { auxdata.tp_vlan_tpid } else { 0x8100 },
        control: auxdata.tp_vlan_tci,
    })
}

/// Sends units of up to [`FRAMES`] frames in all, one after the other in `bytes`; returns the
/// number of units sent. Does not block.
///
/// # Errors
/// Those of `sendmmsg`, of the first unit; [`std::io::ErrorKind::WouldBlock`] if the socket takes
/// nothing now.
pub fn send(socket: &OwnedFd, bytes: &[u8], lens: &[usize], units: &[SendUnit]) -> Result<usize> {
    // SAFETY: all fields are numbers or pointers: zeros are valid.
    let mut messages: [libc::mmsghdr; FRAMES] = unsafe { zeroed() };
    // Of each unit, its description, headers, and the rest of each frame.
    let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 3 * FRAMES];
    let (mut free, mut rest, mut lens) = (&mut pieces[..], bytes, lens.iter());
    let piece =
        |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    for (message, unit) in messages.iter_mut().zip(units) {
        let taken;
        (taken, free) = free.split_at_mut(2 + unit.frames);
        (taken[0], taken[1]) = (piece(unit.offload.as_bytes()), piece(unit.headers()));
        for (taken, &len) in taken[2..].iter_mut().zip(lens.by_ref()) {
            let frame;
            (frame, rest) = rest.split_at(len);
            *taken = piece(&frame[unit.skip()..]);
        }
        message.msg_hdr.msg_iov = taken.as_mut_ptr();
        message.msg_hdr.msg_iovlen = taken.len() as _;
    }
    let count = units.len().min(FRAMES);
    // SAFETY: the kernel reads the memory of the messages, which outlives the call, and writes only
    // to the messages.
    let sent = done(unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT as _)
    })?;
    Ok(sent as usize)
}
