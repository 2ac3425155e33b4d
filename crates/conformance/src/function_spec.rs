//! Functions of random graphs, with their configurations and commands.

use std::fmt;

use serde_json::Value;

/// A function with its configuration, and commands that operators may give it.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionSpec {
    /// Its name, or an alias.
    pub name: String,
    /// Its configuration.
    pub config: Value,
    /// Commands between packets. Both graphs must refuse the same ones.
    pub commands: Vec<String>,
}

impl FunctionSpec {
    /// Creates the function of this name with this configuration, as JSON.
    ///
    /// # Errors
    /// If the configuration is not JSON.
    pub fn new(name: impl Into<String>, config: &str) -> Result<FunctionSpec, serde_json::Error> {
        Ok(FunctionSpec { name: name.into(), config: serde_json::from_str(config)?, commands: Vec::new() })
    }

    /// Sets the commands.
    pub fn with_commands<T: Into<String>>(mut self, commands: impl IntoIterator<Item = T>) -> FunctionSpec {
        self.commands.extend(commands.into_iter().map(Into::into));
        self
    }
}

impl fmt::Display for FunctionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.config)
    }
}

/// Name, configuration, commands.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// Neighbours of the functions under test: with and without state, with pools and meters that run
/// out, and functions that see every packet.
const BUILT_IN: &[Row] = &[
    ("nat", r#"{"external": ["198.51.100.7"]}"#, &["drain 198.51.100.7", "resume 198.51.100.7"]),
    (
        "nat",
        r#"{"external": ["198.51.100.1-198.51.100.2"], "filtering": "address_and_port_dependent",
            "forwards": [{"protocol": "both", "external": "198.51.100.1:53", "internal": "10.0.0.3:53"}]}"#,
        &[],
    ),
    (
        "lb",
        r#"{"services": [{"name": "web", "vip": "198.18.0.1", "servers": [
            {"name": "one", "address": "172.16.0.1"}, {"name": "two", "address": "172.16.0.2", "weight": 2}]}]}"#,
        &["server one down", "server one up", "server two drain", "weight two 1", "server two up"],
    ),
    (
        "lb",
        r#"{"services": [{"name": "dns", "vip": "198.18.0.1", "protocol": "udp", "servers": [
            {"name": "far", "address": "172.16.1.1"}, {"name": "near", "address": "172.16.1.2"}]}]}"#,
        &["server far down", "server far up"],
    ),
    (
        "lb",
        r#"{"services": [{"name": "far", "vip": "198.18.0.1", "mode": "ipip", "servers": [
            {"name": "one", "address": "198.51.100.21"}]}], "tunnel": {"source4": "192.0.2.254"}}"#,
        &["server one down", "server one up"],
    ),
    (
        "firewall",
        r#"{"rules": "allow out\nallow in udp"}"#,
        &["rule 1 disable", "rule 1 enable", "default allow"],
    ),
    (
        "firewall",
        r#"{"rules": "deny out tcp to any port 53\nallow", "tcp": "strict"}"#,
        &["rule 1 disable", "rule 1 enable"],
    ),
    (
        "firewall",
        r#"{"rules": "allow", "stateful": false, "default": "reject"}"#,
        &["rule 1 disable", "rule 1 enable"],
    ),
    (
        "firewall",
        r#"{"rules": "allow out\nreject out udp to any port 1-30000\nallow in udp", "default": "reject"}"#,
        &["rule 1 disable", "rule 1 enable"],
    ),
    (
        "ids",
        r#"{"rules": "reject ip any any -> any any (msg:\"long\"; dsize:>300; sid:1;)\nreject tcp any any -> any any (msg:\"text\"; content:\"e\"; sid:2;)", "mode": "prevent"}"#,
        &[],
    ),
    ("monitor", r#"{"active_timeout": "20ms"}"#, &[]),
    ("monitor", r#"{"sample": 2}"#, &[]),
    (
        "policer",
        r#"{"rate": "20kbps", "yellow": {"remark": "af12"}, "burst": "2KB", "excess_burst": "2KB"}"#,
        &["rate 100kbps"],
    ),
    ("whitelist", r#"{"protect": "inside"}"#, &[]),
    ("http", r#"{"methods": ["GET", "POST"], "anomalies": "alert"}"#, &[]),
    (
        "ids",
        r#"{"rules": "alert tcp any any -> any any (msg:\"any\"; content:\"GET\"; sid:1;)\ndrop udp any any -> any any (msg:\"long\"; dsize:>400; sid:2;)"}"#,
        &[],
    ),
    ("redundancy", r#"{"window": 16, "sample": 16, "events_from": 1}"#, &[]),
    ("dos", r#"{"packets": 9}"#, &[]),
    (
        "dos",
        r#"{"protect": "outside", "flow_rate": "50pps", "flow_burst": 4, "syns": 2, "alert_every": "100ms"}"#,
        &[],
    ),
    (
        "dos",
        r#"{"packets": 20, "flow_rate": "1pps", "connections": 3, "sources": 2, "when_full": "drop"}"#,
        &[],
    ),
    ("tunnel", r#"{"protocol": "gre", "local": "192.0.2.5", "remote": "192.0.2.4", "mtu": 1350}"#, &[]),
    (
        "tunnel",
        r#"{"protocol": "vxlan", "vni": 7, "local": "2001:db8::5", "remote": "2001:db8::4", "dscp": 46,
            "local_mac": "02:00:00:00:00:01", "remote_mac": "02:00:00:00:00:02", "others": "pass"}"#,
        &[],
    ),
    ("tcp-mss", r#"{"max": 1000}"#, &[]),
    ("mptcp", r#"{"duplicates": "drop"}"#, &[]),
    (
        "mark",
        r#"{"rules": "keep out udp\ndscp ef push_vlan 7 pcp 5 tenant 3 out\ndscp 1 in tcp from any port 1-30000"}"#,
        &[],
    ),
    (
        "mirror",
        r#"{"source": "198.51.100.1", "collector": "198.51.100.2", "protocol": "erspan3", "session": 3}"#,
        &[],
    ),
    (
        "mirror",
        r#"{"source": "198.51.100.1", "collector": "198.51.100.2", "vni": 3, "first": 4, "side": "inside"}"#,
        &[],
    ),
    ("mark", r#"{"rules": "vlan 9 in\npop_vlan out from 10.0.0.0/9\npcp 3 dscp 7"}"#, &[]),
];

/// Rivulet's functions, some in several configurations, except functions that must be alone in
/// their graph.
pub fn built_in() -> Vec<FunctionSpec> {
    let of = |&(name, config, commands): &Row| {
        // They are constants, and a test reads each.
        let subject = FunctionSpec::new(name, config).unwrap_or_else(|wrong| unreachable!("{name}: {wrong}"));
        subject.with_commands(commands.iter().copied())
    };
    BUILT_IN.iter().map(of).collect()
}
