//! Messages to the service manager, such as systemd: `sd_notify(3)`.

use std::os::unix::net::UnixDatagram;

use sd_notify::NotifyState;

/// Sends the state; without a service manager, nothing. Blocks while the service manager does not
/// read.
pub fn notify(state: &[NotifyState<'_>]) {
    // An unreachable service manager is no reason to stop.
    let _ = sd_notify::notify(state);
}

/// Sends lines of variables to the service manager, which may have restarted since the last ones.
/// Does not block: a later repetition is as good.
pub fn repeat(lines: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(lines.as_bytes(), path)
    });
    let _ = sent;
}
