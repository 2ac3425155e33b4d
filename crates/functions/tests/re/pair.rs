//! Two ends that face each other.

use packet::Side::{Inside, Outside};
use packet::{Addr, Endpoint, split_mix};
use serde_json::{Value, json};

use crate::meter_support::{Bench, MS_NS, counter, options, stage, v4};

pub const ENCODED: u8 = 254;

/// Returns the configuration of a site's end, with these settings changed.
pub fn config(site: usize, settings: &Value) -> Value {
    let networks = |site: usize| json!([format!("10.{site}.0.0/16"), format!("2001:db8:{site}::/48")]);
    let mut config =
        json!({ "local_networks": networks(site), "remote_networks": networks(3 - site), "cache": "1MiB" });
    for (key, value) in settings.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

pub fn end(site: usize, settings: &Value) -> Bench {
    Bench::new(vec![stage("re", &config(site, settings))], options())
}

/// Returns a host of a site, of an IP version.
pub fn host(version: u8, site: u8, port: u16) -> Endpoint {
    match version {
        4 => v4(10, site, 0, 7, port),
        _ => Endpoint::new(Addr::from_u128(0x2001_0db8 << 96 | u128::from(site) << 80 | 7), port),
    }
}

pub fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    (0..len).map(|_| split_mix(&mut state) as u8).collect()
}

pub fn protocol_of(network: &[u8]) -> u8 {
    if network[0] >> 4 == 4 { network[9] } else { network[6] }
}

/// The ends of both sites; site 1 sends by default.
pub struct Pair {
    pub ends: [Bench; 2],
    pub now_ns: u64,
}

impl Pair {
    pub fn new(settings: &Value) -> Pair {
        Pair { ends: [1, 2].map(|site| end(site, settings)), now_ns: 1_700_000_000_000_000_000 }
    }

    /// Creates two ends that have received each other's reports.
    pub fn acquainted(settings: &Value) -> Pair {
        let mut pair = Pair::new(settings);
        let hello = |from, to| {
            crate::meter_support::udp(host(4, from, 9), host(4, to, 9), b"a packet of either site")
        };
        for (from, to) in [(1, 2), (2, 1)] {
            let wire = pair.enter(from, &hello(from as u8, to as u8));
            let (_, back) = pair.arrive(to, &wire[0]);
            assert_eq!(back.len(), 1, "a report");
            assert_eq!(pair.arrive(from, &back[0]), (vec![], vec![]), "which goes no further");
        }
        pair.now_ns += MS_NS;
        pair
    }

    /// Sends a packet from within a site; returns the packets on the link.
    pub fn enter(&mut self, site: usize, network: &[u8]) -> Vec<Vec<u8>> {
        self.now_ns += 1_000;
        let sent = self.ends[site - 1].one(self.now_ns, Inside, network);
        assert!(sent.iter().all(|(side, _)| *side == Outside));
        sent.into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// Delivers a packet from the link; returns the packets to the site, and the packets back to
    /// the link.
    pub fn arrive(&mut self, site: usize, network: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        self.now_ns += 1_000;
        let sent = self.ends[site - 1].one(self.now_ns, Outside, network);
        let by = |wanted| {
            sent.iter().filter(|(side, _)| *side == wanted).map(|(_, bytes)| bytes.clone()).collect()
        };
        (by(Inside), by(Outside))
    }

    /// Sends a packet from site 1 to site 2 without loss, and returns the reports; true if it was
    /// encoded.
    pub fn pass(&mut self, network: &[u8]) -> bool {
        let wire = self.enter(1, network);
        assert_eq!(wire.len(), 1, "{:?}", self.ends[0].drops());
        assert!(wire[0].len() <= network.len());
        let (out, back) = self.arrive(2, &wire[0]);
        assert_eq!(out, [network], "{:?}", self.ends[1].drops());
        back.iter().for_each(|report| assert_eq!(self.arrive(1, report), (vec![], vec![])));
        let is_encoded = protocol_of(&wire[0]) == ENCODED;
        assert_eq!(is_encoded, wire[0] != network);
        is_encoded
    }

    pub fn count(&self, site: usize, name: &str) -> u64 {
        counter(&self.ends[site - 1], name)
    }

    /// Returns the drop reason of the only packet dropped at a site.
    pub fn dropped(&mut self, site: usize, packet: &[u8], from_link: bool) -> (&'static str, Vec<Vec<u8>>) {
        let before = self.ends[site - 1].drops();
        let (out, back) =
            if from_link { self.arrive(site, packet) } else { (self.enter(site, packet), vec![]) };
        assert!(out.is_empty(), "it is dropped");
        let count = |name| before.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
        let after = self.ends[site - 1].drops();
        (after.iter().find(|&&(name, now)| now > count(name)).unwrap().0, back)
    }
}
