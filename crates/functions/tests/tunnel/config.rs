//! What is wrong with a tunnel's configuration is said.

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
fn what_is_wrong_is_said() {
    for (protocol, key, value, said) in [
        ("gre", "local", json!("2001:db8::1"), "one IP version"),
        ("gre", "local", json!("198.51.100.1"), "two hosts"),
        ("gre", "remote", json!("224.0.0.1"), "two hosts"),
        ("gre", "remote", json!("0.0.0.0"), "two hosts"),
        ("gre", "mtu", json!(1349), "`mtu` is at least 1350, not 1349"),
        ("gre", "ttl", json!(0), "`ttl`"),
        ("gre", "dscp", json!(64), "a DSCP from 0 to 63"),
        ("gre", "dscp", json!("af12"), "`copy`"),
        ("gre", "vni", json!(7), "for `vxlan` and `geneve`"),
        ("gre", "protocol", json!("l2tp"), "vxlan"),
        ("ipip", "key", json!(7), "`key` is for `gre`"),
        ("vxlan", "key", json!(7), "`vni`"),
        ("vxlan", "vni", json!(1 << 24), "16777215"),
        ("vxlan", "vni", Value::Null, "16777215"),
        ("vxlan", "local_mac", Value::Null, "`remote_mac`"),
        ("vxlan", "remote_mac", json!("03:00:00:00:00:01"), "one station"),
        ("vxlan", "remote_mac", json!("02:00:00:00:00"), "one station"),
        ("geneve", "remote_mac", json!("02:00:00:00:00:01:02"), "one station"),
    ] {
        let mut config = config(protocol, 4, 1);
        config[key] = value.clone();
        let error = made(&config, true).unwrap_err();
        assert!(error.contains(said), "{protocol}, {key}: {value}: {error}");
    }
}

#[test]
fn it_takes_flows_of_the_inner_headers() {
    let config = config("gre", 4, 1);
    made(&config, true).unwrap();
    let error = made(&config, false).unwrap_err();
    assert!(error.contains("key: inner"), "{error}");
}
