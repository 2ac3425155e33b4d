//! The driver `packet`: packet sockets (`AF_PACKET`), which every Ethernet interface has.
//!
//! A system call takes up to 64 frames. TCP segments are joined on the way out.

mod socket;
mod sys;

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::CapabilitySet;

use super::driver::{Driver, DriverInfo, PortPart, Readiness, Refreshed};
use super::link::{self, LinkState};
use super::{Counters, TransmitBurst};

pub(super) use socket::PacketSocket;
pub(super) use sys::promiscuous;

/// One part of an interface, by a packet socket.
pub struct PacketPort {
    name: String,
    interface: u32,
    socket: PacketSocket,
}

/// The group of an interface's packet sockets, among which the kernel shares out received frames.
#[derive(Default)]
pub struct FanoutGroup {
    interface: u32,
    group: Option<u16>,
}

impl Driver for PacketPort {
    const INFO: DriverInfo = DriverInfo {
        name: "packet",
        syntax: "packet:INTERFACE",
        example: "packet:eth0",
        peer: "any Ethernet interface",
        is_for_interfaces: true,
        modes: &["packet"],
        capabilities: CapabilitySet::NET_RAW,
        capabilities_kept: CapabilitySet::NET_RAW,
        system_calls: &[],
        limits: &[],
    };

    /// The interface's name.
    type Spec = String;
    type Shared = FanoutGroup;

    fn parse(text: &str) -> std::result::Result<String, String> {
        interface_name(text)
    }

    fn name(name: &String) -> String {
        name.clone()
    }

    fn mtu(name: &String) -> Option<u32> {
        link::mtu(name)
    }

    fn check(held: CapabilitySet) -> Readiness {
        match held.contains(CapabilitySet::NET_RAW) {
            true => Readiness::ready("CAP_NET_RAW is held"),
            false => Readiness::missing(
                "CAP_NET_RAW is not held",
                "run it as root, by ops/systemd/rivulet@.service, or after `setcap cap_net_raw+ep` of the program",
            ),
        }
    }

    /// Opens the interface. The kernel shares out received frames among several parts by its hash
    /// of addresses and ports, which is the same for both directions.
    fn open(name: &String, part: PortPart, shared: &mut FanoutGroup) -> Result<PacketPort> {
        let (interface, link, _promiscuous) = ethernet(name)?;
        if shared.interface != interface {
            *shared = FanoutGroup { interface, group: None };
        }
        let group = (part.count > 1).then_some(&mut shared.group);
        let socket = PacketSocket::open(interface, link.mtu, group)?;
        Ok(PacketPort { name: name.clone(), interface, socket })
    }

    fn link(&self) -> Result<LinkState> {
        link::link(self.socket.socket(), &self.name)
    }

    fn refresh(&mut self) -> Result<Refreshed> {
        if link::interface_number(&self.name) != Some(self.interface) {
            return Ok(Refreshed::Gone);
        }
        if let Ok(link) = self.link() {
            self.socket.set_mtu(link.mtu);
        }
        Ok(Refreshed::Unchanged)
    }

    fn count_lost(&mut self, counters: &mut Counters) {
        counters.missed += self.socket.take_missed();
    }

    fn receive(&mut self, counters: &mut Counters, each: impl FnMut(&[u8])) -> Result<()> {
        self.socket.receive(counters, each)
    }

    fn send(&mut self, burst: &TransmitBurst, counters: &mut Counters) {
        self.socket.send(burst, counters);
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.socket().as_fd()]
    }
}

/// Parses the name of an existing interface.
pub(super) fn interface_name(text: &str) -> std::result::Result<String, String> {
    match text.is_empty() {
        true => Err("expected an interface's name, such as eth0".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Returns the number and link of an Ethernet interface, and a socket that keeps it in promiscuous
/// mode and answers questions about it.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::PermissionDenied`] without the capability
/// `CAP_NET_RAW`, [`ErrorKind::Unsupported`] if it is not an Ethernet.
pub(super) fn ethernet(name: &str) -> Result<(u32, LinkState, OwnedFd)> {
    let Some(interface) = link::interface_number(name) else {
        return Err(Error::new(ErrorKind::NotFound, "there is no such interface"));
    };
    let socket = promiscuous(interface).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => {
            Error::new(error.kind(), "root, or the capability CAP_NET_RAW, is needed")
        }
        _ => error,
    })?;
    let link = link::link(&socket, name)?;
    if link.address.is_none() {
        return Err(Error::new(ErrorKind::Unsupported, "it is not an Ethernet"));
    }
    Ok((interface, link, socket))
}
