//! Invalid configurations of a tunnel are refused with the reason.

use nf::{Registry, Setup};
use serde_json::{Value, json};

use crate::ends::config;

fn made(config: &Value, inner: bool) -> Result<(), String> {
    let registry: Registry<Value> = functions::registry();
    let mut setup = Setup::new(7, 16);
    setup.inner = inner;
    registry.find("Tunnel").unwrap().make(config, setup).map(drop).map_err(|error| error.to_string())
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    for (protocol, key, value, reason) in [
        ("gre", "local", json!("2001:db8::1"), "one IP version"),
        ("gre", "local", json!("198.51.100.1"), "different host addresses"),
        ("gre", "remote", json!("224.0.0.1"), "different host addresses"),
        ("gre", "remote", json!("0.0.0.0"), "different host addresses"),
        ("gre", "mtu", json!(1349), "`mtu` must be at least 1350, not 1349"),
        ("gre", "ttl", json!(0), "`ttl`"),
        ("gre", "dscp", json!(64), "a DSCP from 0 to 63"),
        ("gre", "dscp", json!("af12"), "`copy`"),
        ("gre", "vni", json!(7), "need `protocol: vxlan` or `geneve`"),
        ("gre", "protocol", json!("l2tp"), "vxlan"),
        ("ipip", "key", json!(7), "`key` needs `protocol: gre`"),
        ("vxlan", "key", json!(7), "`vni`"),
        ("vxlan", "vni", json!(1 << 24), "16777215"),
        ("vxlan", "vni", Value::Null, "16777215"),
        ("vxlan", "local_mac", Value::Null, "`remote_mac`"),
        ("vxlan", "remote_mac", json!("03:00:00:00:00:01"), "a unicast Ethernet address"),
        ("vxlan", "remote_mac", json!("02:00:00:00:00"), "a unicast Ethernet address"),
        ("geneve", "remote_mac", json!("02:00:00:00:00:01:02"), "a unicast Ethernet address"),
    ] {
        let mut config = config(protocol, 4, 1);
        config[key] = value.clone();
        let error = made(&config, true).unwrap_err();
        assert!(error.contains(reason), "{protocol}, {key}: {value}: {error}");
    }
}

#[test]
fn it_needs_flows_of_the_inner_headers() {
    let config = config("gre", 4, 1);
    made(&config, true).unwrap();
    let error = made(&config, false).unwrap_err();
    assert!(error.contains("key: inner"), "{error}");
}
