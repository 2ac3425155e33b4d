//! Tests of the configuration. `tests/behaviour/nat_*.rs` tests the handling of packets.

use nf::{NetworkFunction, Setup};

use super::*;

fn make(json: &str) -> Result<Nat, String> {
    let config: Config = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Nat::new(config, &mut Setup::new(1, 1000)).map_err(|error| error.to_string())
}

#[test]
fn valid_configurations_load_and_others_are_refused() {
    assert!(
        make(r#"{"external": ["203.0.113.1-203.0.113.4", "203.0.113.16/28"], "inside": ["10.0.0.0/8"]}"#)
            .is_ok()
    );
    assert!(make(r#"{"nptv6": [{"inside": "fd01:203:405::/48", "outside": "2001:db8:1::/48"}]}"#).is_ok());
    for (wrong, why) in [
        (r#"{}"#, "nothing to translate"),
        (r#"{"external": ["203.0.113.1"], "colour": 1}"#, "unknown field `colour`"),
        (r#"{"external": ["10.0.0.0/8"]}"#, "more than 256 addresses"),
        (r#"{"external": ["203.0.113.1"], "timeouts": {"udp": "1ms"}}"#, "udp is not between"),
        (r#"{"external": ["203.0.113.1"], "blocks": {"size": 0}}"#, "at least 1"),
        (
            r#"{"external": ["203.0.113.1"], "ports": "2000-2010", "blocks": {"size": 64}}"#,
            "a block is larger",
        ),
        (
            r#"{"one_to_one": [{"external": "203.0.113.0/30", "internal": "10.0.0.1"}]}"#,
            "same number of addresses",
        ),
        (
            r#"{"forwards": [{"external": "203.0.113.1:80", "internal": "10.0.0.1:80"},
                             {"external": "203.0.113.1:80", "internal": "10.0.0.2:80", "protocol": "tcp"}]}"#,
            "203.0.113.1:80 is used twice",
        ),
        (
            r#"{"nptv6": [{"inside": "fd00::/48", "outside": "2001:db8:1::/48", "hosts": ["fd01::1"]}]}"#,
            "no address of the outside prefix",
        ),
        (r#"{"nptv6": [{"inside": "fd00::/65", "outside": "2001:db8:1::/48"}]}"#, "1 to 64 bits"),
    ] {
        let error = make(wrong).err().unwrap_or_default();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}

#[test]
fn pool_leaves_out_what_the_link_has_taken() {
    let config: Config = serde_json::from_str(r#"{"external": ["203.0.113.0/30"]}"#).unwrap();
    let mut setup = Setup::new(1, 1000);
    setup.links.add_taken(Addr::from_v4_bytes([203, 0, 113, 0]), "the network address at `out`".to_owned());
    setup.links.add_taken(Addr::from_v4_bytes([203, 0, 113, 2]), "the gateway of `out`".to_owned());
    let nat = Nat::new(config, &mut setup).unwrap();
    let used = nat.space.addresses().iter().map(|address| address & 0xff);
    assert_eq!(used.collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn drain_and_resume_control_allocation_from_an_address() {
    let mut nat = make(r#"{"external": ["203.0.113.1-203.0.113.2"]}"#).unwrap();
    assert_eq!(nat.check_command("drain 203.0.113.2"), Ok(()));
    assert_eq!(nat.drained, [false, false], "a check changes nothing");
    assert_eq!(nat.control("drain 203.0.113.2"), Ok(()));
    assert_eq!(nat.drained, [false, true]);
    assert_eq!(nat.control("resume 203.0.113.2"), Ok(()));
    assert_eq!(nat.drained, [false, false]);
    for wrong in ["", "drain", "drain x", "drain 203.0.113.9", "drain 203.0.113.1 now"] {
        assert!(nat.check_command(wrong).is_err(), "{wrong}");
        assert!(nat.control(wrong).is_err(), "{wrong}");
    }
}
