//! What is told of flows and sources that go beyond their limits.

use std::sync::Arc;

use nf::Context;

use super::{ALERTS, Config};

/// What a flow, or a source, may go beyond; the number is that of the alerts about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Rate = 1,
    Packets = 2,
    Syns = 3,
    Connections = 4,
}

/// What is told of limits, and how often.
pub struct Alerts {
    /// Between two alerts about a limit, at least.
    pub silence_ns: u64,
    /// What they say, by the limit's number.
    pub signatures: [Arc<str>; Alerts::KINDS as usize],
}

impl Alerts {
    /// Limits that are told of, each for itself.
    pub const KINDS: u32 = 4;

    pub fn new(config: &Config) -> Alerts {
        Alerts {
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

    /// A flow, or a source, has gone beyond this limit with the packet at hand.
    #[cold]
    pub fn tell(&self, limit: Limit, context: &mut Context<'_>) {
        let (number, now_ns) = (limit as u32, context.now_ns());
        if self.silence_ns > 0 {
            // Room for all limits was asked for, and there are no other keys.
            let meter = context.meters(ALERTS).of(&[u64::from(number), 0, 0, 0], now_ns, u64::MAX);
            let Some([quiet_until_ns, ..]) = meter.filter(|[until_ns, ..]| now_ns >= *until_ns) else {
                return;
            };
            *quiet_until_ns = now_ns.saturating_add(self.silence_ns);
        }
        let category = if limit == Limit::Connections { "dos-source" } else { "dos-flow" };
        context.alert(number, &self.signatures[limit as usize - 1], category, 2);
    }
}
