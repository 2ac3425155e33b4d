//! Properties of interfaces that need no privilege to read.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io::{Error, ErrorKind, Result};
use std::mem::zeroed;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use super::sys::done;

/// Returns the number of the interface with this name, if there is one.
pub fn interface_number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with a zero byte.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        number => Some(number),
    }
}

/// State of an interface's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// It is set up, and has a carrier.
    pub is_up: bool,
    /// Bytes of the longest packet after the link-layer header.
    pub mtu: u32,
    /// Its Ethernet address; none if it is not an Ethernet.
    pub address: Option<[u8; 6]>,
}

/// Returns the state of the interface with this name.
pub fn link(socket: &OwnedFd, name: &str) -> Result<LinkState> {
    let flags = ask(socket, name, libc::SIOCGIFFLAGS)?;
    let mtu = ask(socket, name, libc::SIOCGIFMTU)?;
    let hardware = ask(socket, name, libc::SIOCGIFHWADDR)?;
    let running = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: the kernel has filled that field of the union in for each request; all are plain
    // numbers.
    unsafe {
        let hardware = hardware.ifr_ifru.ifru_hwaddr;
        Ok(LinkState {
            is_up: flags.ifr_ifru.ifru_flags & running == running,
            mtu: mtu.ifr_ifru.ifru_mtu.max(0) as u32,
            address: (hardware.sa_family == libc::ARPHRD_ETHER)
                .then(|| std::array::from_fn(|i| hardware.sa_data[i] as u8)),
        })
    }
}

/// Returns the MTU of the interface with this name, if there is one.
pub fn mtu(name: &str) -> Option<u32> {
    let socket = OwnedFd::from(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?);
    link(&socket, name).ok().map(|link| link.mtu)
}

/// Returns whether the system has an IPv4 address at the interface with this name.
pub fn has_ipv4(socket: &OwnedFd, name: &str) -> bool {
    ask(socket, name, libc::SIOCGIFADDR).is_ok()
}

/// Returns whether the system has an IPv6 address at the interface with this name that is not
/// link-local.
pub fn has_ipv6(name: &str) -> bool {
    // Lines of address, number, prefix length, scope, flags and name; of scope 0, which is global
    // (proc(5)).
    let addresses = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    addresses.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(3) == Some(&"00") && fields.get(5) == Some(&name)
    })
}

/// Returns the frames that the kernel dropped on sending by the interface with this name.
pub fn dropped_on_leaving(name: &str) -> Option<u64> {
    // Lines of a name, a colon, and numbers: eight of received frames, then bytes, packets, errors
    // and drops of sent ones (proc(5)).
    const DROPS: usize = 8 + 3;
    let all = std::fs::read_to_string("/proc/net/dev").ok()?;
    let of = |line: &str| {
        let numbers = line.trim_start().strip_prefix(name)?.strip_prefix(':')?.to_owned();
        numbers.split_whitespace().nth(DROPS)?.parse().ok()
    };
    all.lines().find_map(of)
}

/// Sets the interface with this name up.
pub fn set_up(socket: &OwnedFd, name: &str) -> Result<()> {
    let mut request = ask(socket, name, libc::SIOCGIFFLAGS)?;
    // SAFETY: the kernel has filled that field of the union in, and reads it; both requests take an
    // `ifreq`.
    unsafe {
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        done(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request)).map(drop)
    }
}

fn ask(socket: &OwnedFd, name: &str, question: libc::Ioctl) -> Result<libc::ifreq> {
    let mut request = request(name)?;
    // SAFETY: these requests take an `ifreq`, which the kernel reads and writes.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), question, &raw mut request) })?;
    Ok(request)
}

/// Makes a request about the interface with this name.
pub fn request(name: &str) -> Result<libc::ifreq> {
    // SAFETY: all fields are numbers, or a union of numbers: zeros are valid.
    let mut request: libc::ifreq = unsafe { zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(Error::new(ErrorKind::InvalidInput, "the name is too long for an interface"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}
