//! Configurations that are refused, and the error messages.

use functions::vpn::{MTU_MIN, Vpn};
use nf::Setup;
use nf::stage::load;
use serde_json::{Value, json};

use crate::pair::*;

fn refused(config: Value) -> String {
    match serde_json::from_value(config).map_err(|error| error.to_string()) {
        Err(message) => message,
        Ok(config) => load::<Vpn>(config, Setup::new(1, 16)).err().unwrap().to_string(),
    }
}

/// Returns the error about a valid tunnel with this change.
fn about(settings: Value) -> String {
    let mut tunnel = tunnel("esp", 4, 1);
    for (key, value) in settings.as_object().unwrap() {
        tunnel[key] = value.clone();
    }
    refused(json!({ "tunnels": [tunnel] }))
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    let sa = |spi: Value, key: &str| json!({ "spi": spi, "key": key });
    for (settings, part) in [
        (json!({ "remote": "2001:db8::1" }), "one IP version"),
        (json!({ "remote": "192.0.2.1" }), "different addresses"),
        (json!({ "mtu": MTU_MIN - 1 }), "`mtu` must be at least 1357"),
        (json!({ "ttl": 0 }), "`ttl` must be at least 1"),
        (json!({ "inbound": [] }), "1 to 4 `inbound`, got 0"),
        (json!({ "local_networks": [] }), "`local_networks` must have 1 to 256"),
        (json!({ "local_networks": ["10.0.0.1/8"] }), "bits set after its length"),
        (json!({ "local_networks": ["10.0.0.0/33"] }), "not a prefix"),
        (json!({ "remote_networks": ["10.0.0.0/8", "10.2.0.0/16"] }), "overlap"),
        (json!({ "outbound": sa(json!(255), &key("esp", 0)) }), "from 256"),
        (json!({ "outbound": sa(json!("0x1zz"), &key("esp", 0)) }), "from 256"),
        (json!({ "outbound": sa(json!(256), "0x00112") }), "pairs of hexadecimal digits"),
        (json!({ "outbound": sa(json!(256), "00") }), "16 or 32 bytes followed by 4 bytes of salt, not 1"),
        (json!({ "outbound": sa(json!(256), &key("esp", 1)) }), "breaks AES-GCM"),
        (json!({ "outbound": { "spi": 256, "key": key("esp", 0), "first_sequence": 0 } }), "at least 1"),
        (json!({ "protocol": "ah" }), "32 bytes, not 20"),
        (json!({ "protocol": "esp-des" }), "unknown variant"),
        (json!({ "psk": "x" }), "unknown field"),
    ] {
        let message = about(settings.clone());
        assert!(message.contains(part), "{settings}: {message}");
        assert!(!message.contains("0102"), "a key is in the message: {message}");
    }
    assert!(refused(json!({ "tunnels": [] })).contains("1 to 1024 tunnels"));
    let (one, mut two) = (tunnel("ah", 4, 1), tunnel("ah", 4, 1));
    let both = |two: &Value| refused(json!({ "tunnels": [one, two] }));
    assert!(both(&two).contains("duplicate tunnel name `t`"));
    two["name"] = json!("u");
    assert!(both(&two).contains("the same outbound `spi`"));
    two["outbound"]["spi"] = json!(999);
    assert!(both(&two).contains("the same inbound `spi`"));
    two["inbound"][0]["spi"] = json!(999);
    assert!(both(&two).contains("remote networks of `t` and `u` overlap"));
}

#[test]
fn keys_are_not_shown() {
    let config: functions::vpn::Config =
        serde_json::from_value(json!({ "tunnels": [tunnel("esp", 4, 1)] })).unwrap();
    let shown = format!("{config:?}");
    assert!(shown.contains("Secret") && !shown.contains("000102"), "{shown}");
}

#[test]
fn networks_of_both_ip_versions_are_separate() {
    let mut all = tunnel("esp", 4, 1);
    all["remote_networks"] = json!(["0.0.0.0/0", "::/0"]);
    let config = serde_json::from_value(json!({ "tunnels": [all] })).unwrap();
    assert!(load::<Vpn>(config, Setup::new(1, 16)).is_ok());
}
