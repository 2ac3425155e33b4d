//! Alerts about flows and sources that exceed their limits.

use std::sync::Arc;

use nf::Context;

use super::{ALERTS, Config};

/// A limit; its number is the sid of its alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DosLimit {
    Rate = 1,
    Packets = 2,
    Syns = 3,
    Connections = 4,
}

/// The alerts, and their rate.
pub struct DosAlerts {
    /// Minimum time between two alerts about a limit.
    pub silence_ns: u64,
    /// The messages, by limit.
    pub signatures: [Arc<str>; DosAlerts::KINDS as usize],
}

impl DosAlerts {
    /// Number of limits, each with its own rate of alerts.
    pub const KINDS: u32 = 4;

    pub fn new(config: &Config) -> DosAlerts {
        DosAlerts {
            silence_ns: config.alert_every.0,
            signatures: [
                format!("DoS: a flow sends more than {}", config.flow_rate),
                format!("DoS: a flow sends more than {} packets", config.packets),
                format!("DoS: a flow sends more than {} SYNs", config.syns),
                format!("DoS: a source begins more than {} flows per second", config.connections),
            ]
            .map(Arc::from),
        }
    }

    /// Raises an alert: the current packet exceeded this limit.
    #[cold]
    pub fn raise(&self, limit: DosLimit, context: &mut Context<'_>) {
        let (number, now_ns) = (limit as u32, context.now_ns());
        if self.silence_ns > 0 {
            // The table has room for all limits and holds nothing else.
            let meter = context.meters(ALERTS).of(&[u64::from(number), 0, 0, 0], now_ns, u64::MAX);
            let Some([quiet_until_ns, ..]) = meter.filter(|[until_ns, ..]| now_ns >= *until_ns) else {
                return;
            };
            *quiet_until_ns = now_ns.saturating_add(self.silence_ns);
        }
        let category = if limit == DosLimit::Connections { "dos-source" } else { "dos-flow" };
        context.alert(number, &self.signatures[limit as usize - 1], category, 2);
    }
}
