use proptest::prelude::*;
use serde::Deserialize;
use serde::de::{self, Visitor};

use super::*;
use crate::located::LocatedVisitor;

#[test]
fn amounts_are_parsed_and_printed() {
    let cases: [(&str, QuantityKind, u64, &str); 16] = [
        ("10s", QuantityKind::Duration, 10_000_000_000, "10s"),
        ("2h4m", QuantityKind::Duration, 7_440_000_000_000, "2h4m"),
        ("500us", QuantityKind::Duration, 500_000, "500us"),
        ("500µs", QuantityKind::Duration, 500_000, "500us"),
        ("0ns", QuantityKind::Duration, 0, "0ns"),
        ("1.5s", QuantityKind::Duration, 1_500_000_000, "1.5s"),
        ("1_000", QuantityKind::Count, 1_000, "1k"),
        ("1M", QuantityKind::Count, 1_000_000, "1M"),
        ("0", QuantityKind::Count, 0, "0"),
        ("15KB", QuantityKind::Size, 15_000, "15KB"),
        ("64KiB", QuantityKind::Size, 65_536, "64KiB"),
        ("1500B", QuantityKind::Size, 1_500, "1.5KB"),
        ("1Gbps", QuantityKind::BitRate, 1_000_000_000, "1Gbps"),
        ("2500Mbps", QuantityKind::BitRate, 2_500_000_000, "2.5Gbps"),
        ("10Mpps", QuantityKind::PacketRate, 10_000_000, "10Mpps"),
        ("18446744073709551615", QuantityKind::Count, u64::MAX, "18446744073709551615"),
    ];
    for (text, kind, value, printed) in cases {
        let quantity = Quantity::parse(text).unwrap();
        assert_eq!(quantity, Quantity { kind, value }, "{text}");
        assert_eq!(quantity.to_string(), printed);
    }
}

#[test]
fn wrong_amounts_are_refused() {
    use QuantityError::{Fraction, NotANumber, Parts, TooLarge, UnknownUnit};
    let cases = [
        ("", NotANumber),
        ("s", NotANumber),
        ("_1s", NotANumber),
        ("1.s", NotANumber),
        ("10 s", UnknownUnit(" s".into())),
        ("10S", UnknownUnit("S".into())),
        ("4m2h", Parts),
        ("1s1s", Parts),
        ("1KB1B", Parts),
        ("1.5ns", Fraction("nanoseconds")),
        ("0.3", Fraction("ones")),
        ("18446744073709551616", TooLarge),
        ("99999999999999999999999999999999999999999999s", TooLarge),
        ("20000000000000000000TB", TooLarge),
    ];
    for (text, error) in cases {
        assert_eq!(Quantity::parse(text), Err(error), "{text}");
    }
    let error = "15KB".parse::<Nanos>().unwrap_err();
    assert_eq!(error.to_string(), "expected a duration such as `10s`, found a size such as `64KiB`");
}

#[derive(Debug, Deserialize, PartialEq)]
struct Example {
    idle: Nanos,
    burst: ByteCount,
    rate: BitRate,
    packets: PacketRate,
    rules: Located,
}

#[test]
fn plain_json_is_read() {
    let text = r#"{"idle": "10s", "burst": 1500, "rate": "1Gbps", "packets": "10kpps", "rules": "allow\nx"}"#;
    let example: Example = serde_json::from_str(text).unwrap();
    assert_eq!(example.idle, Nanos(10_000_000_000));
    assert_eq!(example.burst, ByteCount(1_500));
    assert_eq!(example.rate, BitRate(1_000_000_000));
    assert_eq!(example.packets, PacketRate(10_000));
    assert_eq!(example.rules.as_str(), "allow\nx");
    assert_eq!(example.rules.origin(), None);
    assert_eq!(example.rules.error(6..7, "bad").to_string(), "2:1: bad");
    assert!(serde_json::from_str::<Nanos>("-1").is_err());
    assert!(serde_json::from_str::<Nanos>("\"1KB\"").is_err());
    assert!(serde_json::from_str::<Located>("1").is_err());
}

#[test]
fn located_text_finds_its_positions() {
    let origin = Origin { source: "edge.rvl".into(), line: 7, column: 11, escapes: vec![(2, 2)] };
    let text = Located::with_origin("ab\ncé\nd", origin.clone());
    let place = |offset| text.position(offset).to_string();
    assert_eq!(place(0), "edge.rvl:7:11");
    assert_eq!(place(2), "edge.rvl:7:13");
    assert_eq!(place(3), "edge.rvl:7:15", "an escaped newline is two characters on the same line");
    assert_eq!(place(7), "edge.rvl:8:1");
    assert_eq!(place(99), "edge.rvl:8:2");
    assert_eq!(text.error(0..2, "no").width, 2);

    let map = text.clone().into_map::<de::value::Error>().unwrap();
    let read = LocatedVisitor.visit_map(map).unwrap();
    assert_eq!(read.origin(), Some(&origin));
    assert_eq!(read, text);
}

proptest! {
    #[test]
    fn printed_amounts_parse_back(value in any::<u64>(), shift in 0u32..64, zeros in 0u32..13) {
        let value = (value >> shift) / 10u64.pow(zeros) * 10u64.pow(zeros);
        for kind in [
            QuantityKind::Count,
            QuantityKind::Duration,
            QuantityKind::Size,
            QuantityKind::BitRate,
            QuantityKind::PacketRate,
        ] {
            let quantity = Quantity { kind, value };
            prop_assert_eq!(Quantity::parse(&quantity.to_string()), Ok(quantity));
        }
    }

    #[test]
    fn any_text_is_accepted_or_refused(text in "[0-9_.nusmhdkMGTBbpiKé ]{0,40}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            prop_assert_eq!(Quantity::parse(&quantity.to_string()), Ok(quantity));
        }
    }
}

#[test]
fn field_may_take_amounts_of_any_kind() {
    let read = |json: &str| serde_json::from_str::<Quantity>(json);
    let rate = Quantity { kind: QuantityKind::PacketRate, value: 10_000 };
    assert_eq!(read("\"10kpps\"").unwrap(), rate);
    assert_eq!(read("64").unwrap(), Quantity { kind: QuantityKind::Count, value: 64 });
    assert!(read("\"10parsec\"").unwrap_err().to_string().contains("unknown unit"));
    assert!(read("-1").unwrap_err().to_string().contains("a number with a unit"));
}

#[test]
fn picoseconds_shares_and_factors_have_bounds() {
    for (text, value) in [("0.8ns", 800), ("500ps", 500), ("2us1ps", 2_000_001), ("0", 0)] {
        assert_eq!(text.parse(), Ok(Picos(value)), "{text}");
    }
    for text in ["", "5", "us", "5 parsecs", "-1s", "1.2.3s", "1e3s", "0.5ps", "15KB", "999999999d"] {
        assert!(text.parse::<Picos>().is_err(), "{text}");
    }
    assert_eq!("2.5Gbps".parse(), Ok(PositiveBitRate(2_500_000_000)));
    assert_eq!("0Gbps".parse::<PositiveBitRate>(), Err(QuantityError::Zero));
    assert_eq!(serde_json::from_str::<Share>("0.25").unwrap(), Share(0.25));
    let error = serde_json::from_str::<Share>("1.5").unwrap_err().to_string();
    assert!(error.starts_with("expected a share from 0 to 1, found 1.5"), "{error}");
    assert_eq!(serde_json::from_str::<Factor>("3.0").unwrap(), Factor(3.0));
    assert!(serde_json::from_str::<Factor>("0.0").is_err());
}

#[test]
fn times_sizes_and_rates_of_scenarios_are_parsed() {
    assert_eq!("500us".parse(), Ok(Nanos(500_000)));
    assert_eq!("1.5ms".parse(), Ok(Nanos(1_500_000)));
    assert_eq!("15KB".parse(), Ok(ByteCount(15_000)));
    for text in ["", "5", "us", "5 parsecs", "-1s", "1.2.3s", "99999999999s", "1e3s"] {
        assert!(text.parse::<Nanos>().is_err(), "{text}");
    }
    let error = "7apples".parse::<ByteCount>().unwrap_err().to_string();
    assert!(error.starts_with("unknown unit `apples`"), "{error}");
}
