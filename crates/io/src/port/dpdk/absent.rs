//! The driver in a program that was built without DPDK.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::BorrowedFd;

use rustix::thread::CapabilitySet;

use super::DpdkDevice;
use crate::port::driver::{Driver, DriverInfo, PortPart, Readiness, Refreshed};
use crate::port::link::LinkState;
use crate::port::{Counters, TransmitBurst};

/// A port that cannot be opened.
pub enum DpdkPort {}

impl Driver for DpdkPort {
    const INFO: DriverInfo = super::INFO;

    type Spec = DpdkDevice;
    type Shared = ();

    fn parse(text: &str) -> std::result::Result<DpdkDevice, String> {
        DpdkDevice::parse(text)
    }

    fn name(device: &DpdkDevice) -> String {
        device.name.clone()
    }

    /// Returns ready: nothing is wrong with the machine.
    fn check(_: CapabilitySet) -> Readiness {
        Readiness::ready("not in this build (`cargo build --release --features dpdk`)")
    }

    fn open(_: &DpdkDevice, _: PortPart, (): &mut ()) -> Result<DpdkPort> {
        let why = "this program was built without DPDK: `cargo build --release --features dpdk`, with the package libdpdk-dev";
        Err(Error::new(ErrorKind::Unsupported, why))
    }

    fn link(&self) -> Result<LinkState> {
        match *self {}
    }

    fn refresh(&mut self) -> Result<Refreshed> {
        match *self {}
    }

    fn receive(&mut self, _: &mut Counters, _: impl FnMut(&[u8])) -> Result<()> {
        match *self {}
    }

    fn send(&mut self, _: &TransmitBurst, _: &mut Counters) {
        match *self {}
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        match *self {}
    }
}
