//! Configuration as written in a policy.

use std::collections::BTreeMap;

use super::rule::FilterAction;
use crate::texts::TextList;

/// Configuration of the firewall; the README documents each key.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The rules, in order.
    pub rules: TextList,
    /// Action for valid packets that no rule matches.
    pub default: FilterAction,
    /// Judges only the first packet of a flow, and applies the verdict to later ones.
    pub stateful: bool,
    /// Strictness of TCP connection tracking.
    pub tcp: TcpTracking,
    /// Treatment of TCP connections without a visible beginning.
    pub pickup: Pickup,
    /// Unit of the rule counters.
    pub count: RuleCounting,
    /// Names for tags, which are numbers from 1 to 255.
    pub tags: BTreeMap<String, u8>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            rules: TextList::default(),
            default: FilterAction::Deny,
            stateful: true,
            tcp: TcpTracking::Loose,
            pickup: Pickup::Allow,
            count: RuleCounting::Flows,
            tags: BTreeMap::new(),
        }
    }
}

/// Strictness of TCP connection tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpTracking {
    /// Tracks the flow only.
    Loose,
    /// Tracks sequence numbers, and drops segments outside the window.
    Strict,
}

/// Unit of the rule counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleCounting {
    /// Flows, and their packets when a flow ends: no cost per packet.
    Flows,
    /// Every packet and its bytes, as it passes.
    Packets,
}

/// Treatment of a TCP flow that does not begin with a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pickup {
    /// As a new flow.
    Allow,
    /// As invalid.
    Drop,
    /// As invalid, and answered by a reset.
    Reject,
}
