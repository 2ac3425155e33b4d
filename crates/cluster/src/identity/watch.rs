//! The watch of a node's certificates: changed files, revoked peers, and the expiry of its own
//! certificate, which operators must learn in advance.

use std::sync::{Arc, Weak};
use std::time::Duration;

use telemetry::event;

use super::authority::since_1970;
use super::{IdentityParts, Shared};

/// Least time before expiry without warnings, in seconds; a third of the validity, if that is less.
pub const WARNING_S: i64 = 30 * DAY_S;
const DAY_S: i64 = 86_400;
/// Polling period of the files.
const LOOK: Duration = Duration::from_secs(1);

/// Warnings of the expiry, one a day.
#[derive(Default)]
struct EndWarning {
    /// The expiry, and the whole days left, at the latest warning.
    warned: Option<(i64, i64)>,
}

impl EndWarning {
    /// Returns the seconds left if operators must be warned.
    fn due(&mut self, (begin, end): (i64, i64), now: i64) -> Option<i64> {
        let left = end - now;
        if left > WARNING_S.min((end - begin) / 3) {
            return None;
        }
        let warned = Some((end, left.div_euclid(DAY_S)));
        let is_new = std::mem::replace(&mut self.warned, warned) != warned;
        is_new.then_some(left)
    }
}

/// Starts the watch on a thread, which runs while the identity is in use.
pub(super) fn start(identity: &Arc<Shared>) -> std::io::Result<()> {
    let identity = Arc::downgrade(identity);
    let work = move || watch(&identity);
    std::thread::Builder::new().name("certificates".to_owned()).spawn(work).map(drop)
}

fn watch(identity: &Weak<Shared>) {
    let (mut warning, mut known) = (EndWarning::default(), None::<Arc<IdentityParts>>);
    loop {
        let Some(identity) = identity.upgrade() else { return };
        let parts = identity.files.current();
        if known.as_ref().is_some_and(|known| !Arc::ptr_eq(known, &parts)) {
            identity.check_links(&parts);
        }
        let now = i64::try_from(since_1970().as_secs()).unwrap_or(i64::MAX);
        match warning.due(parts.valid, now) {
            Some(left) if left > 0 => event::certificate_ends(&identity.name, left as u64 / 3_600),
            Some(_) => event::certificate_ended(&identity.name),
            None => {}
        }
        known = Some(parts);
        drop(identity);
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_warned_once_a_day_from_a_month_before() {
        let mut warning = EndWarning::default();
        let year = (0, 365 * DAY_S);
        let mut warned = Vec::new();
        for hour in 0..366 * 24 {
            warned.extend(warning.due(year, hour * 3_600).map(|left| left.div_euclid(DAY_S)));
        }
        assert_eq!((warned.len(), warned.first(), warned.last()), (32, Some(&30), Some(&-1)), "{warned:?}");
        // A certificate that is valid for a day.
        let mut warning = EndWarning::default();
        assert_eq!(warning.due((0, DAY_S), 15 * 3_600), None);
        assert_eq!(warning.due((0, DAY_S), 16 * 3_600), Some(8 * 3_600));
        assert_eq!(warning.due((0, DAY_S), 17 * 3_600), None);
        // The certificate is renewed.
        assert_eq!(warning.due((0, 2 * DAY_S), 17 * 3_600), None);
        assert_eq!(warning.due((0, DAY_S), DAY_S + 1), Some(-1));
    }
}
