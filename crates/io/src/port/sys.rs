//! Helpers of all system calls.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io::{Error, Result};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};

/// Sets a socket's option.
pub fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> Result<()> {
    // SAFETY: the kernel only reads the value, which has the given length.
    done(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(|_| ())
}

/// Sets the bytes of unread and unsent data that the kernel keeps for a socket.
pub fn set_buffers(socket: &OwnedFd, bytes: c_int) -> Result<()> {
    for (force, ask) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        // Without the capability to exceed the system's limit, sets as much as that allows.
        set(socket, libc::SOL_SOCKET, force, &bytes)
            .or_else(|_| set(socket, libc::SOL_SOCKET, ask, &bytes))?;
    }
    Ok(())
}

/// Returns a system call's result, or its error.
pub fn done(returned: c_int) -> Result<c_int> {
    if returned < 0 { Err(Error::last_os_error()) } else { Ok(returned) }
}
