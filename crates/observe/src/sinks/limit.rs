//! Limits repeated alerts: a scan of 5,000 ports gives a few lines and a count, not 5,000 lines.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use nf::{Alert, AlertText};
use packet::Endpoint;
use serde::Serialize;

use crate::eve::timestamp;

/// Length of a counting window.
pub const WINDOW_NS: u64 = 10_000_000_000;

/// Default limit of alerts of one kind from one source in a window.
pub const PER_SOURCE: u32 = 20;

/// Limit of alerts of one kind in a window: sources may be forged.
pub const PER_KIND_MAX: u32 = 1_000;

/// Kinds with counters of their own; the rest share one.
pub const KINDS_MAX: usize = 1_024;

/// Slots for sources. Sources in the same slot share its limit.
const SOURCES: usize = 1 << 14;

/// A limiter of alerts by kind and source.
pub struct Limiter {
    per_source: u32,
    hasher: RandomState,
    began_ns: u64,
    kinds: BTreeMap<(u16, u32, u32), Kind>,
    /// Alerts by hash of kind and source, in this window.
    sources: Box<[u32]>,
    suppressed: u64,
}

/// Alerts of one function with one signature.
struct Kind {
    written: u32,
    suppressed: u64,
    function: String,
    group: u32,
    signature_id: u32,
    signature: AlertText,
    category: AlertText,
}

/// Suppressed alerts of one kind.
pub struct SuppressedAlerts {
    /// End of the window.
    pub timestamp_ns: u64,
    /// The function that raised them.
    pub function: String,
    /// Group of the signature.
    pub group: u32,
    pub signature_id: u32,
    /// Message of the signature.
    pub signature: AlertText,
    pub category: AlertText,
    /// Number of alerts.
    pub alerts: u64,
    /// Length of the window.
    pub window_ns: u64,
}

impl Limiter {
    /// Creates a limiter of this many alerts per kind, source and window.
    pub fn new(per_source: u32) -> Limiter {
        Limiter {
            per_source,
            hasher: RandomState::new(),
            began_ns: 0,
            kinds: BTreeMap::new(),
            sources: vec![0; SOURCES].into(),
            suppressed: 0,
        }
    }

    /// Returns whether to write the alert, and counts it.
    pub fn admits(&mut self, function: &str, alert: &Alert) -> bool {
        // Logs of address translation must be complete.
        if alert.category.as_ref() == functions::nat::log::CATEGORY {
            return true;
        }
        let group = alert.detail.as_ref().map_or(1, |detail| detail.group);
        let mut key = (alert.stage, group, alert.signature_id);
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&key) {
            key = (u16::MAX, 0, 0);
        }
        let kind = self.kinds.entry(key).or_insert_with(|| Kind {
            written: 0,
            suppressed: 0,
            function: if key.0 == u16::MAX { String::new() } else { function.to_owned() },
            group: key.1,
            signature_id: key.2,
            signature: if key.0 == u16::MAX { "other signatures".into() } else { alert.signature.clone() },
            category: alert.category.clone(),
        });
        let (source, _): (Endpoint, Endpoint) = alert.key.ends(alert.reversed);
        let place = self.hasher.hash_one((key, source.addr)) as usize % SOURCES;
        let count = &mut self.sources[place];
        if *count >= self.per_source || kind.written >= PER_KIND_MAX {
            kind.suppressed += 1;
            self.suppressed += 1;
            return false;
        }
        *count += 1;
        kind.written += 1;
        true
    }

    /// Returns the suppressed alerts if the window has ended.
    pub fn roll(&mut self, now_ns: u64) -> Vec<SuppressedAlerts> {
        if now_ns.abs_diff(self.began_ns) < WINDOW_NS { Vec::new() } else { self.end_window(now_ns) }
    }

    /// Ends the window, and returns its suppressed alerts.
    pub fn end_window(&mut self, now_ns: u64) -> Vec<SuppressedAlerts> {
        let window_ns = if self.began_ns == 0 { 0 } else { now_ns.saturating_sub(self.began_ns) };
        self.began_ns = now_ns;
        let kinds = std::mem::take(&mut self.kinds);
        if !kinds.is_empty() {
            self.sources.fill(0);
        }
        let told = kinds.into_values().filter(|kind| kind.suppressed > 0).map(|kind| SuppressedAlerts {
            timestamp_ns: now_ns,
            function: kind.function,
            group: kind.group,
            signature_id: kind.signature_id,
            signature: kind.signature,
            category: kind.category,
            alerts: kind.suppressed,
            window_ns,
        });
        told.collect()
    }

    /// Returns the total number of suppressed alerts.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

/// The EVE event about suppressed alerts, see `rivulet up --alert-limit`.
#[derive(Serialize)]
pub struct EveSuppressed<'a> {
    timestamp: String,
    event_type: &'static str,
    rivulet: SuppressedExtension<'a>,
}

/// Suricata has no such event.
#[derive(Serialize)]
struct SuppressedExtension<'a> {
    function: &'a str,
    suppressed: SuppressedFields<'a>,
}

#[derive(Serialize)]
struct SuppressedFields<'a> {
    gid: u32,
    signature_id: u32,
    signature: &'a str,
    category: &'a str,
    alerts: u64,
    seconds: u64,
}

impl<'a> EveSuppressed<'a> {
    /// Creates the line about these alerts.
    pub fn new(told: &'a SuppressedAlerts) -> EveSuppressed<'a> {
        EveSuppressed {
            timestamp: timestamp(told.timestamp_ns),
            event_type: "suppressed",
            rivulet: SuppressedExtension {
                function: &told.function,
                suppressed: SuppressedFields {
                    gid: told.group,
                    signature_id: told.signature_id,
                    signature: told.signature.as_ref(),
                    category: told.category.as_ref(),
                    alerts: told.alerts,
                    seconds: told.window_ns.div_ceil(1_000_000_000),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::{Addr, FlowKey, Scope};

    use super::*;

    fn alert(source: [u8; 4], signature_id: u32, category: &'static str) -> Alert {
        let client = Endpoint::new(Addr::from(std::net::Ipv4Addr::from(source)), 1_000);
        let server = Endpoint::new(Addr::from(std::net::Ipv4Addr::new(203, 0, 113, 1)), 80);
        let (key, reversed) = FlowKey::new(client, server, 6, 4, Scope::default(), 0);
        Alert {
            timestamp_ns: 1,
            sequence: 0,
            stage: 0,
            signature_id,
            signature: "a scan".into(),
            category: category.into(),
            severity: 3,
            key,
            reversed,
            blocked: true,
            has_packet: true,
            ingress: 0,
            place: None,
            detail: None,
        }
    }

    #[test]
    fn repeated_alerts_of_a_source_are_suppressed_and_counted() {
        let mut limiter = Limiter::new(5);
        limiter.end_window(1);
        let admitted =
            (0..5_000).filter(|_| limiter.admits("guard", &alert([192, 0, 2, 1], 7, "scan"))).count();
        assert_eq!((admitted, limiter.suppressed()), (5, 4_995));
        assert!(limiter.admits("guard", &alert([192, 0, 2, 1], 8, "scan")), "another kind");
        assert!(limiter.roll(WINDOW_NS).is_empty(), "the window has not ended");
        let told = limiter.roll(WINDOW_NS + 1);
        let told: Vec<_> = told.iter().map(|told| (told.signature_id, told.alerts, told.window_ns)).collect();
        assert_eq!(told, [(7, 4_995, WINDOW_NS)]);
        assert!(limiter.admits("guard", &alert([192, 0, 2, 1], 7, "scan")), "a new window");
    }

    #[test]
    fn forged_sources_and_many_kinds_are_bounded() {
        let mut limiter = Limiter::new(PER_SOURCE);
        let forged = (0..50_000u32).map(|n| alert(n.to_be_bytes(), 7, "scan"));
        let admitted = forged.filter(|alert| limiter.admits("guard", alert)).count();
        assert_eq!(admitted, PER_KIND_MAX as usize);
        for kind in 0..5_000 {
            limiter.admits("guard", &alert([192, 0, 2, 1], kind, "scan"));
        }
        assert!(limiter.kinds.len() <= KINDS_MAX + 1);
    }

    #[test]
    fn logs_of_address_translation_are_never_suppressed() {
        let mut limiter = Limiter::new(1);
        let log = alert([10, 0, 0, 1], 7, functions::nat::log::CATEGORY);
        assert_eq!((0..100).filter(|_| limiter.admits("translate", &log)).count(), 100);
    }
}
