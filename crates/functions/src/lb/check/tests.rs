use nf::Setup;
use serde_json::{Value, json};

use super::*;
use crate::lb::LoadBalancer;

/// A configuration that is right, to be spoiled.
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
fn what_is_wrong_with_a_configuration_is_said() {
    assert_eq!(load(&config()), Ok(()));
    for (path, value, message) in [
        ("/services", json!([]), "there are 1 to 1024 services, not 0"),
        ("/services/0/vip", json!("224.0.0.1"), "`web`: 224.0.0.1 is not the address of a host"),
        (
            "/services/0/vip",
            json!("2001:db8::1"),
            "`a`: in `nat` mode 10.0.0.1 and 2001:db8::1 have to be of one IP version",
        ),
        ("/services/0/name", json!("dns"), "`dns`: there are two services of this name"),
        (
            "/services/0/name",
            json!("a/b"),
            "`a/b`: a service's name has no blanks or slashes, and is not empty",
        ),
        ("/services/0/servers", json!([]), "`web`: a service has 1 to 4096 servers, not 0"),
        ("/services/0/servers/1/name", json!("a"), "`a`: there are two servers of this name"),
        ("/services/0/servers/0/address", json!("0.0.0.0"), "`a`: 0.0.0.0 is not the address of a host"),
        ("/services/0/servers/0/weight", json!(1001), "`a`: a weight is at most 1000, not 1001"),
        (
            "/services/0/port",
            json!("80-90"),
            "`b`: a server has a `port` of its own only in `nat` mode, of a service with one port",
        ),
        ("/services/0/protocol", json!("icmp"), "`web`: only `tcp` and `udp` services have a `port`"),
        (
            "/services/0/table_size",
            json!(65536),
            "`web`: `table_size` is a prime up to 8388608, such as 65537, not 65536",
        ),
        (
            "/services/0/table_size",
            json!(1),
            "`web`: `table_size` is a prime up to 8388608, such as 65537, not 1",
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
            "`a`: tunnelled to the service's own address",
        ),
        ("/tunnel/source4", json!("fd00::/64"), "1:1: `fd00::/64` is no IPv4 address or prefix"),
        ("/tunnel/mtu", json!(1331), "`tunnel.mtu` is at least 1332, not 1331"),
        ("/tunnel/ttl", json!(0), "`tunnel.ttl` is at least 1"),
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
        let said = load(&config).err().unwrap_or_default();
        assert!(said.starts_with(message) && said.is_empty() == message.is_empty(), "{path}: {said}");
    }
    let mut nameless = config();
    nameless["services"][0].as_object_mut().unwrap().remove("name");
    nameless["services"][0]["vip"] = json!("0.0.0.0");
    assert_eq!(load(&nameless), Err("`tcp:0.0.0.0:443`: 0.0.0.0 is not the address of a host".into()));
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
