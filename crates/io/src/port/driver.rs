//! The interface between ports and drivers.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::thread::CapabilitySet;

use super::{Counters, LinkState, TransmitBurst};

/// A driver: how a port sends and receives. A value is one thread's part of an open port.
///
/// The registry in [`crate::port`] lists all drivers. CONTRIBUTING.md describes how to add one.
pub trait Driver: Sized {
    /// Facts for operators, help and documentation.
    const INFO: DriverInfo;

    /// A parsed port specification: the text after `NAME:`.
    type Spec: Clone + fmt::Debug + PartialEq;

    /// State that all parts of a port share.
    type Shared: Default;

    /// Parses the text after `NAME:`.
    ///
    /// # Errors
    /// The expected form, as a sentence for the operator.
    fn parse(text: &str) -> Result<Self::Spec, String>;

    /// Returns the port's name for reports. No two open ports have the same.
    fn name(spec: &Self::Spec) -> String;

    /// Checks whether a process with these capabilities can use the driver on this machine.
    fn check(held: CapabilitySet) -> Readiness;

    /// Announces a port that will be opened. A driver that starts once per process learns of all
    /// its devices before the first one is opened.
    fn announce(_spec: &Self::Spec, _parts: usize) {}

    /// Returns the maximum bytes of a packet after the link-layer header, if known before the port
    /// is opened.
    fn mtu(_spec: &Self::Spec) -> Option<u32> {
        None
    }

    /// Checks that the driver loses nothing at this interface, so that `auto` may choose it.
    ///
    /// # Errors
    /// The reason why it is not transparent there, or cannot be opened.
    fn suits(_spec: &Self::Spec) -> io::Result<()> {
        Ok(())
    }

    /// Runs a task on each thread that the driver started, and waits for it: such a thread gives up
    /// its capabilities itself.
    ///
    /// # Errors
    /// Those of the task, and those of a thread that does not answer.
    fn on_own_threads(_task: ThreadTask) -> io::Result<()> {
        Ok(())
    }

    /// Opens one part of a port. Part 0 is opened first.
    ///
    /// # Errors
    /// The reason, with the missing capability or the remedy.
    fn open(spec: &Self::Spec, part: PortPart, shared: &mut Self::Shared) -> io::Result<Self>;

    /// Returns the current mode, one of [`DriverInfo::modes`].
    fn mode(&self) -> &'static str {
        Self::INFO.name
    }

    /// Returns the current state of the link.
    ///
    /// # Errors
    /// If the interface is gone.
    fn link(&self) -> io::Result<LinkState>;

    /// Looks whether the port is still open, and takes over changes of its link.
    ///
    /// # Errors
    /// If the device is gone and has no successor yet.
    fn refresh(&mut self) -> io::Result<Refreshed>;

    /// Adds the frames that the kernel or the device lost since the last call.
    fn count_lost(&mut self, _counters: &mut Counters) {}

    /// Hands over a burst of received frames, up to 64 per queue. Returns at once if there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::NetworkDown`] when the interface went down or is gone, and others of the
    /// system.
    fn receive(&mut self, counters: &mut Counters, each: impl FnMut(&[u8])) -> io::Result<()>;

    /// Sends a burst. Frames that the interface does not take are counted and lost.
    fn send(&mut self, burst: &TransmitBurst, counters: &mut Counters);

    /// Returns file descriptors. One becomes readable when a frame arrives.
    fn sockets(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns whether frames arrive without a notification, so that the port must be polled.
    fn is_polled(&self) -> bool {
        false
    }

    /// Returns whether the link changed since the last call, if the driver alone knows.
    fn take_link_change(&mut self) -> bool {
        false
    }

    /// Returns the reason of the last change of the link, once.
    fn take_reason(&mut self) -> Option<String> {
        None
    }
}

/// Facts about a driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverInfo {
    /// The prefix of its ports' specifications, its page `docs/drivers/NAME.md`, and its limits'
    /// path.
    pub name: &'static str,
    /// The form of a specification, such as `tap:NAME`.
    pub syntax: &'static str,
    /// A specification that parses.
    pub example: &'static str,
    /// The other end of its ports.
    pub peer: &'static str,
    /// Its ports are existing network interfaces. `auto` chooses among such drivers, and a port is
    /// locked against a second process.
    pub is_for_interfaces: bool,
    /// Values of [`Driver::mode`].
    pub modes: &'static [&'static str],
    /// Capabilities that opening a port can need.
    pub capabilities: CapabilitySet,
    /// Capabilities that an open port needs to be reopened; all others are given up.
    pub capabilities_kept: CapabilitySet,
    /// System calls of open ports that other parts of a run do not make.
    pub system_calls: &'static [SystemCall],
    /// Named limits, which SPECIFICATION.md promises.
    pub limits: &'static [DriverLimit],
}

/// A system call that an open port makes.
#[derive(Clone, Copy, Debug)]
pub struct SystemCall {
    /// The kernel's name.
    pub name: &'static str,
    /// The number on this processor.
    pub number: libc::c_long,
    /// The only permitted value of one argument: its index, and the lower 32 bits.
    pub argument: Option<(u8, u32)>,
}

impl SystemCall {
    /// Allows a call with any arguments.
    pub const fn any(name: &'static str, number: libc::c_long) -> SystemCall {
        SystemCall { name, number, argument: None }
    }

    /// Allows a call with this value in the argument at this index.
    pub const fn only(name: &'static str, number: libc::c_long, argument: u8, value: u32) -> SystemCall {
        SystemCall { name, number, argument: Some((argument, value)) }
    }
}

/// A limit of a driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverLimit {
    /// The constant's name in the driver's module.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
}

/// Lists limits by the names of their constants.
macro_rules! limits {
    ($($name:ident),* $(,)?) => {
        &[$($crate::port::DriverLimit { name: stringify!($name), value: $name as u64 }),*]
    };
}
pub(super) use limits;

/// Readiness of a machine for a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Ports of the driver can be opened.
    pub is_ready: bool,
    /// The finding.
    pub found: String,
    /// The remedy, if it is not ready.
    pub advice: &'static str,
}

impl Readiness {
    pub(super) fn ready(found: impl Into<String>) -> Readiness {
        Readiness { is_ready: true, found: found.into(), advice: "" }
    }

    pub(super) fn missing(found: impl Into<String>, advice: &'static str) -> Readiness {
        Readiness { is_ready: false, found: found.into(), advice }
    }
}

/// A task for a driver's own threads.
pub type ThreadTask = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// One of the parts of a port, each for a thread of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPart {
    /// From 0.
    pub index: usize,
    /// The number of parts.
    pub count: usize,
}

/// Result of [`Driver::refresh`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The port is open as before.
    Unchanged,
    /// The driver opened another device of the same name.
    Replaced,
    /// The interface is gone; the port must be opened again.
    Gone,
}
