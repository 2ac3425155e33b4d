//! Faults in the configuration of ports.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

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
fn routes_that_lead_nowhere_are_refused() {
    let cases = [
        (
            "{ to: 10.9.0.0/16, via: 10.0.0.1 }",
            "2:70: error: the next hop 10.0.0.1 is the port's own address",
        ),
        ("{ to: 10.9.0.0/16, via: 10.1.0.2 }", "2:70: error: the next hop 10.1.0.2 is in no network"),
        ("{ to: 10.9.0.0/16, via: 10.0.0.255 }", "2:70: error: the next hop 10.0.0.255 is no host's"),
        (
            "{ to: 10.9.0.0/16, via: fe80::1 }",
            "2:70: error: fe80::1 and 10.9.0.0/16 are of different IP versions",
        ),
        ("{ to: fd00::/8, via: fe80::1 }", "2:67: error: the next hop fe80::1 is in no network"),
        ("{ to: 10.0.0.0/24, via: 10.0.0.2 }", "2:52: error: 10.0.0.0/24 is the port's own network"),
        ("{ to: \"10.9.0.1/16\", via: 10.0.0.2 }", "2:52: error: 10.9.0.1/16 has bits set after its length"),
        ("{ to: 0.0.0.0/0, via: 10.0.0.3 }", "2:52: error: `gateway` is the route to 0.0.0.0/0 already"),
        (
            "{ to: 10.9.0.0/16, via: 10.0.0.2 }, { to: 10.9.0.0/16, via: 10.0.0.3 }",
            "2:88: error: there is a route to 10.9.0.0/16 already",
        ),
        ("{ to: 10.9.0.0/16 }", "2:46: error: the key `via` is missing"),
    ];
    for (routes, expected) in cases {
        let lan = format!("{{ address: 10.0.0.1/24, routes: [{routes}], gateway: 10.0.0.2 }}");
        let found = faults(&lan, "{}");
        let is_expected = |fault: &String| fault.strip_prefix("p.rvl:").unwrap().starts_with(expected);
        assert!(found.len() == 1 && is_expected(&found[0]), "{lan}: {found:?}");
    }
    let sound = "{ address: [10.0.0.1/24, \"fd00::1/64\"], routes: [{ to: 10.9.0.0/16, via: 10.0.0.2 },
        { to: 10.9.9.0/24, via: 10.0.0.3 }, { to: 2001:db8:9::/48, via: fe80::1 }, { to: ::/0, via: fd00::2 }] }";
    assert_eq!(faults(sound, "{}"), [""; 0]);
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

#[test]
fn addresses_that_a_link_has_taken_are_warned_of() {
    let text = "
        Port<0> inside { address: 10.0.0.1/24 };
        Port<1> outside { address: 203.0.113.2/28, gateway: 203.0.113.1 };
        NAT n {
          external: [203.0.113.0/29],
          one_to_one: [{ external: 203.0.113.15, internal: 10.0.0.7 }],
        };
        pipelet { inside <-> n <-> outside }";
    let policy = Policy::read("p.rvl", text, &mut |_| Err("no files".into())).unwrap();
    let assembly = runtime::assemble(&policy, &functions::registry(), 1, None).unwrap();
    let warnings: Vec<_> =
        assembly.warnings.iter().map(|(name, warning)| format!("{name}: {warning}")).collect();
    assert_eq!(
        warnings,
        [
            "n: external: 203.0.113.0 is not used: it is the network address at `outside`",
            "n: external: 203.0.113.1 is not used: it is the gateway of `outside`",
            "n: 203.0.113.15 is the broadcast address at `outside`: no port answers for it; take another address",
        ]
    );
}
