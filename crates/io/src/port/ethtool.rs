//! Properties that an interface's driver reports (`ethtool`), which need no privilege to read.
#![allow(unsafe_code)]

use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd};

use zerocopy::FromZeros;

use super::link::request;
use super::sys::done;

/// Kind of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// A card, or a hypervisor's equivalent.
    Card,
    /// The kernel alone: veth, bridge, TAP and the like.
    Virtual,
}

const GET_DRIVER: u32 = 0x03;
const GET_TSO: u32 = 0x1e;
const GET_FLAGS: u32 = 0x25;
const GET_CHANNELS: u32 = 0x3c;
/// Flag: VLAN tags are taken out of received frames.
const TAKES_TAGS: u32 = 1 << 8;

/// Returns the kind of the interface with this name.
pub fn kind(socket: &OwnedFd, name: &str) -> InterfaceKind {
    /// `struct ethtool_drvinfo`; only the bus's name is used.
    #[derive(FromZeros)]
    #[repr(C)]
    struct Info {
        command: u32,
        names: [[u8; 32]; 3],
        bus: [u8; 32],
        rest: [u8; 64],
    }
    let mut info = Info::new_zeroed();
    info.command = GET_DRIVER;
    let is_known = ask(socket, name, &mut info).is_ok();
    // Cards are on a bus, with a name such as `0000:00:1f.6` or `virtio0`.
    let is_at_bus = info.bus.iter().any(u8::is_ascii_digit);
    if is_known && is_at_bus { InterfaceKind::Card } else { InterfaceKind::Virtual }
}

/// Returns the number of receive queues.
pub fn receive_queues(socket: &OwnedFd, name: &str) -> u32 {
    /// `struct ethtool_channels`.
    #[derive(FromZeros)]
    #[repr(C)]
    struct Channels {
        command: u32,
        max: [u32; 4],
        receive: u32,
        send: u32,
        other: u32,
        combined: u32,
    }
    let mut channels = Channels::new_zeroed();
    channels.command = GET_CHANNELS;
    match ask(socket, name, &mut channels) {
        Ok(()) => channels.receive.saturating_add(channels.combined).max(1),
        // A driver without this notion has one.
        Err(_) => 1,
    }
}

/// Returns whether VLAN tags are taken out of received frames and reported as metadata.
pub fn takes_tags(socket: &OwnedFd, name: &str) -> bool {
    let mut flags = [GET_FLAGS, 0];
    ask(socket, name, &mut flags).is_ok() && flags[1] & TAKES_TAGS != 0
}

/// Returns whether it may be given frames of several TCP segments to cut. Both ends of a veth start
/// with that.
pub fn takes_segments(socket: &OwnedFd, name: &str) -> bool {
    let mut value = [GET_TSO, 0];
    ask(socket, name, &mut value).is_ok() && value[1] != 0
}

/// Makes a request to the driver, which begins with a command.
fn ask<T: FromZeros>(socket: &OwnedFd, name: &str, question: &mut T) -> Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    // SAFETY: the kernel reads the command, and writes no more than that command's structure, which
    // is `T`: plain numbers and bytes.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) })
        .map(drop)
}
