//! Tests of configurations.

use nf::NetworkFunction;

use super::*;

fn make(config: &str) -> Result<Whitelist, String> {
    let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
    Whitelist::new(config, &mut Setup::new(0, 16)).map_err(|error| error.message)
}

#[test]
fn the_default_protects_the_inside() {
    let whitelist = make("{}").unwrap();
    assert_eq!((whitelist.protected, whitelist.expiry_ns), (Side::Inside, 30_000_000_000));
    assert!(
        whitelist.records_hosts && !whitelist.records_clients && whitelist.by_port && !whitelist.drops_others
    );
    let flood = whitelist.flood.unwrap();
    assert_eq!((flood.interval_ns, flood.silence_ns), (1_000_000, 10_000_000_000));
    assert_eq!(&*flood.signature, "UDP flood: unsolicited packets above 1kpps");
}

#[test]
fn services_are_sorted_and_alerts_can_be_off() {
    let whitelist = make(r#"{"services": [443, 53, 443], "alert_above": "0pps"}"#).unwrap();
    assert_eq!(whitelist.services, [53, 443]);
    assert!(whitelist.flood.is_none());
    assert_eq!(make(r#"{"alert_above": "20Gpps"}"#).unwrap().flood.unwrap().interval_ns, 1);
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    let ports: Vec<usize> = (0..=SERVICES_MAX).collect();
    for (wrong, why) in [
        (r#"{"record": []}"#, "`hosts`, `clients` or both"),
        (r#"{"record": ["clients"]}"#, "needs `services`"),
        (r#"{"record": ["servers"]}"#, "unknown variant `servers`"),
        (r#"{"expiry": 0}"#, "`expiry` must be above zero"),
        (r#"{"capacity": 0}"#, "from 1 to 16777216"),
        (r#"{"capacity": 16777217}"#, "from 1 to 16777216"),
        (r#"{"services": [65536]}"#, "65536"),
        (&format!(r#"{{"services": {ports:?}}}"#), "the maximum is 1024"),
        (r#"{"alert_above": "1Mbps"}"#, "a packet rate"),
        (r#"{"colour": 1}"#, "unknown field `colour`"),
    ] {
        let error = make(wrong).err().unwrap_or_default();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}
