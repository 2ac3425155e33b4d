//! Configurations.

use nf::NetworkFunction;
use values::{Nanos, PacketRate};

use super::*;
use crate::policer::marker::TokenBucket;

fn make(config: &str) -> Result<Dos, String> {
    let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
    Dos::new(config, &mut Setup::new(0, 16)).map_err(|error| error.message)
}

fn bucket(rate: u64, size: u64) -> Option<Marker> {
    Some(Marker::SingleRate { committed: TokenBucket { rate, size: size * PACKET }, excess: 0 })
}

#[test]
fn the_default_protects_the_inside_from_syns_alone() {
    let dos = make("{}").unwrap();
    assert_eq!((dos.protected, dos.syns, dos.packets), (Side::Inside, 8, 0));
    assert!(dos.flow_rate.is_none() && dos.sources.is_none() && !dos.counts());
    assert_eq!(dos.alerts.silence_ns, 10_000_000_000);
    assert_eq!(make(r#"{"protect": "outside"}"#).unwrap().protected, Side::Outside);
}

#[test]
fn bursts_default_to_a_second_of_the_rate() {
    for (config, wanted) in [
        (r#"{"flow_rate": "2kpps"}"#, bucket(2_000, 2_000)),
        (r#"{"flow_rate": "2kpps", "flow_burst": 3}"#, bucket(2_000, 3)),
        (r#"{"flow_rate": "1pps"}"#, bucket(1, 1)),
        (r#"{"flow_rate": "20Gpps"}"#, bucket(20_000_000_000, BURST_MAX)),
        (r#"{"flow_rate": 18446744073709551615, "flow_burst": 9223372036}"#, bucket(u64::MAX, BURST_MAX)),
    ] {
        assert_eq!(make(config).unwrap().flow_rate, wanted, "{config}");
    }
    let rate = |config: &str| make(config).unwrap().sources.map(|sources| sources.rate);
    assert_eq!(rate(r#"{"connections": 100}"#), bucket(100, 100));
    assert_eq!(rate(r#"{"connections": 100, "connections_burst": 7}"#), bucket(100, 7));
}

#[test]
fn invalid_configurations_are_refused() {
    for (wrong, why) in [
        (r#"{"syns": 0}"#, "nothing is limited: set `syns`, `packets`, `flow_rate` or `connections` above 0"),
        (r#"{"syns": -1}"#, "-1"),
        (r#"{"protect": "both"}"#, "unknown variant `both`"),
        (r#"{"flow_rate": "1Mbps"}"#, "a packet rate"),
        (r#"{"flow_burst": 5}"#, "`flow_burst` requires `flow_rate` above 0"),
        (r#"{"flow_rate": "1pps", "flow_burst": 0}"#, "`flow_burst` is 0, expected 1 to 9223372036"),
        (
            r#"{"flow_rate": "1pps", "flow_burst": 9223372037}"#,
            "`flow_burst` is 9223372037, expected 1 to 9223372036",
        ),
        (r#"{"connections_burst": 5}"#, "`connections_burst` requires `connections`"),
        (r#"{"connections": 1, "connections_burst": 0}"#, "`connections_burst` is 0, expected 1"),
        (r#"{"prefix4": 33}"#, "`prefix4` is too large: the maximum is 32"),
        (r#"{"prefix6": 129}"#, "`prefix6` is too large: the maximum is 128"),
        (r#"{"sources": 0}"#, "`sources` is 0, expected 1 to 16777216"),
        (r#"{"sources": 16777217}"#, "`sources` is 16777217, expected 1 to 16777216"),
        (r#"{"when_full": "wait"}"#, "unknown variant `wait`"),
        (r#"{"alert_every": "1kpps"}"#, "a duration"),
        (r#"{"colour": 1}"#, "unknown field `colour`"),
    ] {
        let error = make(wrong).err().unwrap_or_default();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}

#[test]
fn tables_stand_where_their_numbers_say() {
    assert_eq!(DESCRIPTOR.shared, [Shared::Meters("sources"), Shared::Meters("alerts")]);
    assert_eq!((SOURCES, ALERTS), (0, 1));
    let config = Config { flow_rate: PacketRate(2_000), alert_every: Nanos(0), ..Config::default() };
    let signatures = DosAlerts::new(&config).signatures;
    assert_eq!(&*signatures[DosLimit::Rate as usize - 1], "DoS: a flow sends more than 2kpps");
    assert_eq!(&*signatures[DosLimit::Syns as usize - 1], "DoS: a flow sends more than 8 SYNs");
}
