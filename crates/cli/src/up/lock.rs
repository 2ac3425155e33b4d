//! Locks of interfaces: two processes on one interface would each forward every packet.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Prefix of the names of locks. They are abstract sockets: each network namespace has its own, and
/// the kernel removes them with their process.
pub const PREFIX: &str = "rivulet/interface/";

/// A lock of an interface, held until it is dropped.
pub struct InterfaceLock {
    listener: UnixListener,
}

/// Locks held until the process ends.
static KEPT: Mutex<Vec<InterfaceLock>> = Mutex::new(Vec::new());

impl InterfaceLock {
    /// Locks an interface by name.
    ///
    /// # Errors
    /// If another process holds the lock; the message names its process ID.
    pub fn take(interface: &str) -> Result<InterfaceLock> {
        let name = format!("{PREFIX}{interface}");
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
            Ok(listener) => Ok(InterfaceLock { listener }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let by = holder(&name).map_or_else(String::new, |id| format!(" (process {id})"));
                Err(Error::new(
                    ErrorKind::AddrInUse,
                    format!(
                        "another Rivulet{by} uses it, and two would forward each packet twice; stop it, \
                         or capture its packets with `rivulet capture --connect {interface} --write FILE.pcapng`"
                    ),
                ))
            }
            // Some sandboxes have no such sockets; then there is no lock.
            Err(_) => Err(Error::from(ErrorKind::Unsupported)),
        }
    }
}

impl InterfaceLock {
    /// Holds the lock until the process ends.
    pub fn keep(self) {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }
}

/// Clones the sockets of the locks that are held until the process ends.
pub fn sockets() -> Result<Vec<UnixListener>> {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.iter().map(|lock| lock.listener.try_clone()).collect()
}

/// Returns the process that listens on an abstract name.
fn holder(name: &str) -> Option<i32> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
    Some(socket_peercred(socket.as_fd()).ok()?.pid.as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_locked_once_until_the_lock_is_dropped() {
        let name = format!("test{}", std::process::id());
        let lock = InterfaceLock::take(&name).unwrap();
        for _ in 0..300 {
            let error = InterfaceLock::take(&name).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            assert!(error.to_string().contains("another Rivulet"), "{error}");
        }
        let others = InterfaceLock::take(&format!("{name}.1")).unwrap();
        drop(lock);
        InterfaceLock::take(&name).unwrap();
        drop(others);
    }
}
