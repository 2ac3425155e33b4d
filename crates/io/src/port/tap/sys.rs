//! System calls of TAP devices on `/dev/net/tun` (`linux/if_tun.h`).
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

/// The file that becomes one end of a device when it is opened.
pub const DEVICE: &str = "/dev/net/tun";

/// Frames with an offload header before each.
const FLAGS: c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// Offloads that the other end may leave to this one: checksums, and segmentation of TCP.
const TCP: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// Segmentation of UDP, since Linux 6.2.
const UDP: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// Opens a file descriptor without a device.
pub fn open_device() -> Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)
}

/// Makes a device with this name, which ends with the file descriptor.
///
/// # Errors
/// `EBUSY` if there is an interface with this name, `EPERM` without the privilege.
pub fn make(device: &File, name: &str) -> Result<()> {
    attach(device, name, FLAGS | libc::IFF_TUN_EXCL)
}

/// Takes over the device with this name, or makes one.
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

/// Has the other end leave open checksums and segmentation to this one.
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
