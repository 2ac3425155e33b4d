//! What there is of DPDK in a program that was built without it: a word why not.

use std::io::{Error, ErrorKind, Result};

use super::Device;
use crate::port::link::Link;
use crate::port::{Counters, Outbox};

/// None of these.
pub enum Dpdk {}

impl Dpdk {
    pub fn open_parts(_: &Device, _: usize) -> Result<Vec<Dpdk>> {
        Err(absent())
    }

    pub fn name(&self) -> &str {
        match *self {}
    }

    pub fn link(&self) -> Result<Link> {
        match *self {}
    }

    pub fn look(&mut self) -> Result<()> {
        match *self {}
    }

    pub fn take_missed(&mut self, _: &mut Counters) -> u64 {
        match *self {}
    }

    pub fn receive(&mut self, _: &mut Counters, _: impl FnMut(&[u8])) -> Result<()> {
        match *self {}
    }

    pub fn receives(&self) -> bool {
        match *self {}
    }

    pub fn send(&mut self, _: &Outbox, _: &mut Counters) {
        match *self {}
    }
}

/// No version.
pub fn version() -> Option<String> {
    None
}

/// It cannot.
pub fn begin(_: &[Device], _: usize) -> Result<()> {
    Err(absent())
}

/// It cannot.
pub fn on_thread<T: Send + 'static>(_: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    Err(absent())
}

fn absent() -> Error {
    let why = "this program was built without DPDK: `cargo build --release --features dpdk`, with the package libdpdk-dev";
    Error::new(ErrorKind::Unsupported, why)
}
