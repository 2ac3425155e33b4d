//! Tests of configurations.

use super::*;

fn limits(config: &str) -> Result<[[u16; 2]; 2], String> {
    let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
    MssClamp::new(config, &mut Setup::new(0, 16)).map(|clamp| clamp.limits).map_err(|error| error.message)
}

// RFC 6691 2, RFC 4459 3.2
#[test]
fn limits_follow_from_the_configuration() {
    let none = u16::MAX;
    for (config, inside, outside) in [
        (r#"{"max": 1360}"#, [1360; 2], [1360; 2]),
        (r#"{"max_from_inside": 1300}"#, [1300; 2], [none; 2]),
        (r#"{"max": 1360, "max_from_outside": 1400}"#, [1360; 2], [1400; 2]),
        (r#"{"to_path_mtu": {"inside": 1500, "outside": 1492}}"#, [1452, 1432], [1452, 1432]),
        (r#"{"to_path_mtu": {"outside": 576}}"#, [536, 1220], [536, 1220]),
        (r#"{"to_path_mtu": {"inside": 1500}, "max_from_inside": 1445}"#, [1445, 1440], [1460, 1440]),
    ] {
        assert_eq!(limits(config), Ok([inside, outside]), "{config}");
    }
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    for (wrong, why) in [
        ("{}", "no limit"),
        (r#"{"max": 535}"#, "`max` must be from 536 to 65535, not 535"),
        (r#"{"max_from_outside": 0}"#, "`max_from_outside` must be from 536"),
        (r#"{"max": 65536}"#, "65536"),
        (r#"{"to_path_mtu": {}}"#, "`inside`, `outside` or both"),
        (r#"{"to_path_mtu": {"inside": 575}}"#, "`to_path_mtu.inside` must be from 576"),
        (r#"{"to_path_mtu": {"left": 1500}}"#, "unknown field `left`"),
        (r#"{"most": 1}"#, "unknown field `most`"),
    ] {
        let error = limits(wrong).err().unwrap_or_default();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}
