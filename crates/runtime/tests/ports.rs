//! Faults in the configuration of ports.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use policy::Policy;

/// Returns the errors of a policy with these blocks of its two ports.
fn faults(lan: &str, wan: &str) -> Vec<String> {
    let text = format!(
        "let office = 192.0.2.0/24;\nPort<0> lan {lan};\nPort<1> wan {wan};\npipelet {{ lan <-> wan }}\n"
    );
    let policy = Policy::read("p.rvl", &text, &mut |_| Err("no files".into())).unwrap();
    let wrong = runtime::assemble(&policy, &functions::registry(), 1, None).err().unwrap_or_default();
    wrong.iter().map(|fault| fault.line(&policy.report.sources)).collect()
}

#[test]
fn addresses_that_no_host_may_have_are_refused() {
    let cases = [
        ("{ address: 10.0.0.0/24 }", "p.rvl:2:24: error: 10.0.0.0 is the address of the network itself"),
        (
            "{ address: 10.0.0.255/24 }",
            "p.rvl:2:24: error: 10.0.0.255 is the broadcast address of its network",
        ),
        (
            "{ address: [10.0.0.1/24, 10.0.0.1/24] }",
            "p.rvl:2:38: error: the port has the address 10.0.0.1 twice",
        ),
        (
            "{ address: 10.0.0.1/24, gateway: 10.0.0.1 }",
            "p.rvl:2:46: error: the gateway 10.0.0.1 is the port's own",
        ),
        (
            "{ address: 10.0.0.1/24, gateway: 10.0.1.1 }",
            "p.rvl:2:46: error: the gateway 10.0.1.1 is in no network",
        ),
        (
            "{ address: 10.0.0.1/24, gateway: [10.0.0.2, 10.0.0.3] }",
            "p.rvl:2:57: error: there is a gateway of the same IP version as 10.0.0.3 already",
        ),
    ];
    for (lan, expected) in cases {
        let found = faults(lan, "{}");
        assert!(found.len() == 1 && found[0].starts_with(expected), "{lan}: {found:?}");
    }
    // RFC 3021, RFC 4291 2.6.1
    for sound in ["{ address: 10.0.0.0/31 }", "{ address: 10.0.0.1/32 }", "{ address: \"fd00::ff/64\" }"] {
        assert_eq!(faults(sound, "{}"), [""; 0], "{sound}");
    }
}

#[test]
fn an_address_belongs_to_one_port() {
    let found = faults("{ address: 10.0.0.1/24 }", "{ address: [192.0.2.1/24, 10.0.0.1/8] }");
    assert_eq!(found, ["p.rvl:3:39: error: `lan` has the address 10.0.0.1 already"]);
}

#[test]
fn misspelt_names_of_values_are_suggested() {
    let found = faults("{ prefixes: [ofice] }", "{}");
    assert!(found.len() == 1 && found[0].contains("p.rvl:2:26"), "{found:?}");
    assert!(found[0].ends_with("did you mean `office`?"), "{found:?}");
}
