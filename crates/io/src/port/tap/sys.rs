//! System calls of TAP devices: what `/dev/net/tun` is asked for (`linux/if_tun.h`).
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::port::link::request;
use crate::port::offload::OffloadHeader;
use crate::port::sys::done;

/// What is opened to become one end of a device.
pub const DEVICE: &str = "/dev/net/tun";

/// Frames as they are, with a header before each that says what was left to a card.
const FLAGS: c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// What the other end may leave to this one: checksums, and TCP to be cut.
const TCP: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// UDP to be cut, since Linux 6.2.
const UDP: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A file descriptor that no device belongs to yet.
pub fn open_device() -> Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)
}

/// Makes a device with this name, which goes when the file descriptor is closed.
///
/// # Errors
/// `EBUSY` if there is an interface with this name, `EPERM` without the privilege.
pub fn make(device: &File, name: &str) -> Result<()> {
    attach(device, name, FLAGS | libc::IFF_TUN_EXCL)
}

/// Takes over the device with this name; makes one, if there is none.
///
/// # Errors
/// `EINVAL` if it is something else, `EBUSY` if another program has it, `EPERM` without the
/// privilege.
pub fn take_over(device: &File, name: &str) -> Result<()> {
    attach(device, name, FLAGS)
}

fn attach(device: &File, name: &str, flags: c_int) -> Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the request is an `ifreq`, which the kernel reads and writes.
    done(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &raw mut request) })
        .map(drop)
}

/// Has the other end leave open checksums and the cutting of segments to this one.
pub fn leave_offloads(device: &File) -> Result<()> {
    let header_len = size_of::<OffloadHeader>() as c_int;
    // SAFETY: the kernel reads a number.
    done(unsafe {
        libc::ioctl(device.as_raw_fd(), libc::TUNSETVNETHDRSZ as libc::Ioctl, &raw const header_len)
    })?;
    leave(device, TCP | UDP).or_else(|_| leave(device, TCP))
}

/// Has the other end do all of that itself.
pub fn leave_nothing(device: &File) -> Result<()> {
    leave(device, 0)
}

fn leave(device: &File, what: libc::c_uint) -> Result<()> {
    // SAFETY: the argument is a number, not a pointer.
    done(unsafe {
        libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as libc::Ioctl, libc::c_ulong::from(what))
    })
    .map(drop)
}
