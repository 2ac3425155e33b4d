//! Counts of the API's clients.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Counters of clients.
#[derive(Debug, Default)]
pub(crate) struct ClientCounters {
    /// Connections now.
    pub open: AtomicU64,
    pub accepted: AtomicU64,
    pub too_many: AtomicU64,
    pub displaced: AtomicU64,
    pub handshakes_failed: AtomicU64,
    pub handshakes_late: AtomicU64,
    pub unauthorized: AtomicU64,
    pub forbidden: AtomicU64,
    pub heads_refused: AtomicU64,
    pub heads_late: AtomicU64,
}

/// Clients of the API since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Clients)]
pub struct ClientsResource {
    /// Connections now, this request's among them.
    pub open: u64,
    /// Connections accepted, over all sockets.
    pub accepted: u64,
    /// Connections over TCP that were closed because there were too many at a time.
    pub too_many: u64,
    /// Connections over TCP that had shown neither certificate nor token, and gave their place to a
    /// later one.
    #[serde(default)]
    pub displaced: u64,
    /// TLS handshakes that failed: no TLS 1.3, or a certificate of another authority.
    pub handshakes_failed: u64,
    /// TLS handshakes that took too long.
    pub handshakes_late: u64,
    /// Requests without a certificate or the right token.
    pub unauthorized: u64,
    /// Requests that the role of the client's certificate does not allow.
    #[serde(default)]
    pub forbidden: u64,
    /// Heads of requests that were malformed or too long.
    pub heads_refused: u64,
    /// Heads of requests that took too long, and connections that were silent for as long.
    pub heads_late: u64,
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl ClientCounters {
    pub fn resource(&self) -> ClientsResource {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientsResource {
            open: of(&self.open),
            accepted: of(&self.accepted),
            too_many: of(&self.too_many),
            displaced: of(&self.displaced),
            handshakes_failed: of(&self.handshakes_failed),
            handshakes_late: of(&self.handshakes_late),
            unauthorized: of(&self.unauthorized),
            forbidden: of(&self.forbidden),
            heads_refused: of(&self.heads_refused),
            heads_late: of(&self.heads_late),
        }
    }
}
