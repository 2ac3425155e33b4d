//! Notifications of the kernel about interfaces.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io::{ErrorKind, Result};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::sys::done;

/// Bytes of a notification that are read. Their contents are ignored: the state is read afterwards.
const MESSAGE: usize = 64;

/// A netlink socket that is notified when an interface of this network namespace is made, removed,
/// or changed: up or down, carrier, MTU or address (rtnetlink(7)). It needs no capability.
pub struct LinkMonitor {
    socket: OwnedFd,
}

impl LinkMonitor {
    /// Subscribes to changes from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn subscribe() -> Result<LinkMonitor> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is passed.
        let fd = done(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
        // SAFETY: the kernel has just created it; it has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all fields are numbers: zeros are valid.
        let mut address: libc::sockaddr_nl = unsafe { zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = libc::RTMGRP_LINK as u32;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the kernel only reads the address, which has the given length.
        done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
        Ok(LinkMonitor { socket })
    }

    /// Returns whether something changed since the last call.
    pub fn take_change(&mut self) -> bool {
        let mut has_come = false;
        loop {
            let mut message = [0u8; MESSAGE];
            let (to, flags) = (message.as_mut_ptr().cast(), libc::MSG_DONTWAIT);
            // SAFETY: the kernel writes at most the given number of bytes.
            let received = unsafe { libc::recv(self.socket.as_raw_fd(), to, MESSAGE, flags) };
            // An overflow of the socket's memory is an error, and a change, too.
            match done(received as c_int) {
                Ok(_) => has_come = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => has_come = true,
                Err(_) => return has_come,
            }
        }
    }
}

impl AsFd for LinkMonitor {
    /// Returns the descriptor, readable while there is a change.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
