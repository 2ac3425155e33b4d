//! Messages to the program that supervises this one, such as systemd: `sd_notify(3)`.

use sd_notify::NotifyState;

/// Sends the state; without a supervisor, nothing. Waits for a supervisor that does not read.
pub fn notify(state: &[NotifyState<'_>]) {
    // An unreachable supervisor is no reason to stop.
    let _ = sd_notify::notify(state);
}
