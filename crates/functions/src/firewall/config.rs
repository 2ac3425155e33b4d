//! The firewall's configuration.

use std::collections::BTreeMap;

use super::rule::FilterAction;
use crate::texts::TextList;

/// The firewall's configuration; see its README for what the keys do.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The rules, in order.
    pub rules: TextList,
    /// What is done with valid packets that no rule matches.
    pub default: FilterAction,
    /// Whether only the first packets of flows are judged, and the others follow them.
    pub stateful: bool,
    /// How closely TCP connections are followed.
    pub tcp: TcpTracking,
    /// Whether a TCP connection may begin in the middle.
    pub pickup: Pickup,
    /// What is counted of each rule.
    pub count: RuleCounting,
    /// Names for tags, 1 to 255, that rules may use.
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

/// How closely TCP connections are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpTracking {
    /// By their flow alone.
    Loose,
    /// By their sequence numbers: a segment outside its window is dropped.
    Strict,
}

/// What is counted of each rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleCounting {
    /// Flows and, when a flow is over, its packets: known flows cost nothing more.
    Flows,
    /// Every packet and its bytes, as it passes.
    Packets,
}

/// What a TCP flow is that does not open with a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pickup {
    /// A new one, like any other.
    Allow,
    /// Invalid.
    Drop,
}
