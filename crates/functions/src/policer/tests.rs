//! Configurations and commands.

use nf::NetworkFunction;

use super::marker::{BYTE, Marker, PACKET, SIZE_MAX, TokenBucket};
use super::*;

fn make(config: &str) -> Result<Policer, String> {
    let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
    Policer::new(config, &mut Setup::new(0, 16)).map_err(|error| error.message)
}

fn marker(config: &str) -> Marker {
    make(config).unwrap().rates.marker
}

#[test]
fn amounts_become_buckets() {
    let single = |rate, size, excess| Marker::SingleRate { committed: TokenBucket { rate, size }, excess };
    for (config, wanted) in [
        (r#"{"rate": "8Mbps", "burst": "64KiB"}"#, single(8_000_000, 65_536 * BYTE, 0)),
        // A tenth of a second, but at least ten packets.
        (r#"{"rate": "8Mbps"}"#, single(8_000_000, 100_000 * BYTE, 0)),
        (r#"{"rate": "8kbps"}"#, single(8_000, 15_000 * BYTE, 0)),
        (r#"{"rate": "400Gbps"}"#, single(400_000_000_000, SIZE_MAX, 0)),
        (
            r#"{"rate": "8Mbps", "burst": "1ms", "excess_burst": "2ms"}"#,
            single(8_000_000, 1_000 * BYTE, 2_000 * BYTE),
        ),
        (r#"{"rate": "1kpps", "burst": 50}"#, single(1_000, 50 * PACKET, 0)),
        (r#"{"rate": "1kpps"}"#, single(1_000, 100 * PACKET, 0)),
        (r#"{"rate": "1pps"}"#, single(1, 10 * PACKET, 0)),
        (r#"{"rate": "1kpps", "burst": "1500ms"}"#, single(1_000, 1_500 * PACKET, 0)),
        (r#"{"rate": "1Mbps", "burst": "0B", "excess_burst": "3KB"}"#, single(1_000_000, 0, 3_000 * BYTE)),
        (
            r#"{"rate": "8Mbps", "burst": "2KB", "peak_rate": "80Mbps", "peak_burst": "3KB"}"#,
            Marker::TwoRate {
                committed: TokenBucket { rate: 8_000_000, size: 2_000 * BYTE },
                peak: TokenBucket { rate: 80_000_000, size: 3_000 * BYTE },
            },
        ),
    ] {
        assert_eq!(marker(config), wanted, "{config}");
    }
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    for (wrong, why) in [
        ("{}", "missing field `rate`"),
        (r#"{"rate": "0bps"}"#, "above zero"),
        (r#"{"rate": 10}"#, "`10Mbps` or `10kpps`, not a number"),
        (r#"{"rate": "10s"}"#, "not a duration"),
        (r#"{"rate": "1Mbps", "burst": 100}"#, "`burst` must be a size"),
        (r#"{"rate": "1Mbps", "burst": "0B"}"#, "lets no packet pass"),
        (r#"{"rate": "1kpps", "burst": "1KB"}"#, "a number of packets"),
        (r#"{"rate": "1Mbps", "burst": "2GB"}"#, "the maximum is 1152921504 bytes"),
        (r#"{"rate": "1Gbps", "excess_burst": "1d"}"#, "`excess_burst` is too large"),
        (r#"{"rate": "1Mbps", "peak_burst": "1KB"}"#, "needs a `peak_rate`"),
        (r#"{"rate": "1Mbps", "peak_rate": "1kpps"}"#, "the same unit"),
        (r#"{"rate": "1Mbps", "peak_rate": "1kbps"}"#, "at least `rate`"),
        (r#"{"rate": "1Mbps", "peak_rate": "2Mbps", "excess_burst": "1KB"}"#, "RFC 2697"),
        (r#"{"rate": "1Mbps", "overhead": 1025}"#, "the maximum is 1024"),
        (r#"{"rate": "1Mbps", "prefix4": 33}"#, "the maximum is 32"),
        (r#"{"rate": "1Mbps", "prefix6": 129}"#, "the maximum is 128"),
        (r#"{"rate": "1Mbps", "meters": 0}"#, "above zero"),
        (r#"{"rate": "1Mbps", "meters": 16777217}"#, "the maximum is"),
        (r#"{"rate": "1Mbps", "red": {"remark": 64}}"#, "af12"),
        (r#"{"rate": "1Mbps", "red": {"remark": "af14"}}"#, "af12"),
        (r#"{"rate": "1Mbps", "colour": "red"}"#, "unknown field `colour`"),
    ] {
        let error = make(wrong).err().unwrap_or_default();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}

#[test]
fn commands_change_amounts_and_nothing_else() {
    let mut policer = make(r#"{"rate": "8Mbps", "burst": "2KB", "overhead": 24}"#).unwrap();
    policer.control("rate 16Mbps").unwrap();
    policer.control("excess_burst 1ms").unwrap();
    let committed = TokenBucket { rate: 16_000_000, size: 2_000 * BYTE };
    assert_eq!(policer.rates.marker, Marker::SingleRate { committed, excess: 2_000 * BYTE });
    assert_eq!((policer.rates.per_byte, policer.rates.per_packet), (BYTE, 24 * BYTE));
    let before = policer.rates;
    for wrong in [
        "",
        "rate",
        "rate 1Mbps now",
        "rate fast",
        "rate 1kpps",
        "rate 0bps",
        "burst 100",
        "peak_rate 20Mbps",
        "overhead 10",
    ] {
        assert!(policer.check_command(wrong).is_err(), "{wrong}");
        assert!(policer.control(wrong).is_err(), "{wrong}");
        assert_eq!(policer.rates, before);
    }
    policer.check_command("rate 1Mbps").unwrap();
    assert_eq!(policer.rates, before, "a check changes nothing");
    // A command is not refused if an earlier command may make it valid.
    let two_rates = make(r#"{"rate": "8Mbps", "peak_rate": "9Mbps"}"#).unwrap();
    for (command, is_right) in [
        ("peak_rate 1Mbps", true),
        ("rate 20Mbps", true),
        ("peak_rate 0bps", false),
        ("peak_rate 1kpps", false),
    ] {
        assert_eq!(two_rates.check_command(command).is_ok(), is_right, "{command}");
    }
}
