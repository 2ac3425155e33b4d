//! Messages to the program that supervises this one, such as systemd: `sd_notify(3)`.

use std::os::unix::net::UnixDatagram;

use sd_notify::NotifyState;

/// Sends the state; without a supervisor, nothing. Waits for a supervisor that does not read.
pub fn notify(state: &[NotifyState<'_>]) {
    // An unreachable supervisor is no reason to stop.
    let _ = sd_notify::notify(state);
}

/// Sends lines of variables to a supervisor at a path, which may have been restarted since they
/// were sent before. Does not wait for it: the next repetition will do as well.
pub fn repeat(lines: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(lines.as_bytes(), path)
    });
    let _ = sent;
}
