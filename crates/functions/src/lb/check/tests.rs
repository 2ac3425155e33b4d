use nf::Setup;
use serde_json::{Value, json};

use super::*;
use crate::lb::LoadBalancer;

/// Returns a valid configuration, which tests modify.
fn config() -> Value {
    json!({
        "tunnel": { "source4": "192.0.2.0/24" },
        "services": [
            { "name": "web", "vip": "203.0.113.80", "port": 443,
              "servers": [{ "name": "a", "address": "10.0.0.1" }, { "name": "b", "address": "10.0.0.2", "port": 8443 }] },
            { "name": "dns", "vip": "203.0.113.80", "port": 53, "protocol": "udp", "mode": "ipip",
              "servers": [{ "name": "a", "address": "10.0.0.1" }] },
        ]
    })
}

fn load(config: &Value) -> Result<(), String> {
    let config = serde_json::from_value(config.clone()).map_err(|error| error.to_string())?;
    nf::stage::load::<LoadBalancer>(config, Setup::new(1, 16)).map(drop).map_err(|error| error.to_string())
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    assert_eq!(load(&config()), Ok(()));
    for (path, value, message) in [
        ("/services", json!([]), "expected 1 to 1024 services, got 0"),
        ("/services/0/vip", json!("224.0.0.1"), "`web`: 224.0.0.1 is not a host address"),
        (
            "/services/0/vip",
            json!("2001:db8::1"),
            "`a`: `nat` mode needs one IP version, got 10.0.0.1 and 2001:db8::1",
        ),
        ("/services/0/name", json!("dns"), "`dns`: duplicate service name"),
        (
            "/services/0/name",
            json!("a/b"),
            "`a/b`: the name of a service must be nonempty, without whitespace or slashes",
        ),
        ("/services/0/servers", json!([]), "`web`: expected 1 to 4096 servers, got 0"),
        ("/services/0/servers/1/name", json!("a"), "`a`: duplicate server name"),
        ("/services/0/servers/0/address", json!("0.0.0.0"), "`a`: 0.0.0.0 is not a host address"),
        ("/services/0/servers/0/weight", json!(1001), "`a`: `weight` must be at most 1000, not 1001"),
        (
            "/services/0/port",
            json!("80-90"),
            "`b`: a server can have its own `port` only in `nat` mode, and if the service has one port",
        ),
        ("/services/0/protocol", json!("icmp"), "`web`: only `tcp` and `udp` services can have a `port`"),
        (
            "/services/0/table_size",
            json!(65536),
            "`web`: `table_size` must be a prime up to 8388608, such as 65537, not 65536",
        ),
        (
            "/services/0/table_size",
            json!(1),
            "`web`: `table_size` must be a prime up to 8388608, such as 65537, not 1",
        ),
        ("/services/1/table_size", json!(8388593), ""),
        (
            "/services/1/servers/0/address",
            json!("fd00::1"),
            "`a`: `tunnel.source6` is needed to reach fd00::1",
        ),
        (
            "/services/1/servers/0/address",
            json!("203.0.113.80"),
            "`a`: the server's address must differ from the service's",
        ),
        ("/tunnel/source4", json!("fd00::/64"), "1:1: `fd00::/64` is not an IPv4 address or prefix"),
        ("/tunnel/mtu", json!(1331), "`tunnel.mtu` must be at least 1332, not 1331"),
        ("/tunnel/ttl", json!(0), "`tunnel.ttl` must be at least 1"),
        (
            "/services/0/mode",
            json!("bridge"),
            "unknown variant `bridge`, expected one of `nat`, `ipip`, `gue`",
        ),
        ("/services/0/sevrers", json!(1), "unknown field `sevrers`"),
    ] {
        let mut config = config();
        let (parent, key) = path.rsplit_once('/').unwrap();
        match config.pointer_mut(parent).unwrap() {
            Value::Array(array) => array[key.parse::<usize>().unwrap()] = value,
            object => object[key] = value,
        }
        let error = load(&config).err().unwrap_or_default();
        assert!(error.starts_with(message) && error.is_empty() == message.is_empty(), "{path}: {error}");
    }
    let mut nameless = config();
    nameless["services"][0].as_object_mut().unwrap().remove("name");
    nameless["services"][0]["vip"] = json!("0.0.0.0");
    assert_eq!(load(&nameless), Err("`tcp:0.0.0.0:443`: 0.0.0.0 is not a host address".into()));
    let mut twice = config();
    twice["services"][1]["port"] = json!(443);
    twice["services"][1]["protocol"] = json!("tcp");
    assert_eq!(load(&twice), Err("`dns`: another service has the same address, protocol and ports".into()));
}

#[test]
fn few_slots_for_many_servers_are_refused() {
    let mut config = config();
    config["services"][0]["table_size"] = json!(2);
    assert_eq!(load(&config), Ok(()));
    config["services"][0]["servers"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "c", "address": "10.0.0.3" }));
    assert_eq!(load(&config), Err("`web`: 2 slots are too few for 3 servers".into()));
}

#[test]
fn primes() {
    let primes: Vec<_> = (0..60).filter(|&n| is_prime(n)).collect();
    assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59]);
    assert!(is_prime(65_537) && is_prime(655_373) && !is_prime(65_535));
}
