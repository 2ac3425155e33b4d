//! An interface belongs to one Rivulet: two that carry its packets would send each of them twice.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// What the names of locks begin with. They are abstract sockets: each network namespace has its
/// own, and they go with their process, however it ends.
pub const PREFIX: &str = "rivulet/interface/";

/// That this process has an interface, as long as it is kept.
pub struct InterfaceLock {
    listener: UnixListener,
}

/// Locks that this process has until it ends.
static KEPT: Mutex<Vec<InterfaceLock>> = Mutex::new(Vec::new());

impl InterfaceLock {
    /// Takes an interface by its name.
    ///
    /// # Errors
    /// If another process has it: with that one's number.
    pub fn take(interface: &str) -> Result<InterfaceLock> {
        let name = format!("{PREFIX}{interface}");
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
            Ok(listener) => Ok(InterfaceLock { listener }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let by = holder(&name).map_or_else(String::new, |id| format!(", process {id},"));
                Err(Error::new(
                    ErrorKind::AddrInUse,
                    format!(
                        "another Rivulet{by} has it, and each packet would pass twice; \
                         end that one, or listen to it: `rivulet capture --connect {interface} --write FILE.pcapng`"
                    ),
                ))
            }
            // Where there are no such sockets, as in some sandboxes, nothing keeps two apart.
            Err(_) => Err(Error::from(ErrorKind::Unsupported)),
        }
    }
}

impl InterfaceLock {
    /// Keeps the interface until the process ends, however that is.
    pub fn keep(self) {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }
}

/// The sockets of the interfaces that this process keeps.
pub fn sockets() -> Result<Vec<UnixListener>> {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.iter().map(|lock| lock.listener.try_clone()).collect()
}

/// The process that listens at an abstract name.
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
    fn an_interface_is_taken_once_and_free_again_at_the_end() {
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
