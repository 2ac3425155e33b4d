//! Single packets: their own payload and their headers.

use packet::Side;

use crate::ids_support::*;

/// Returns whether a datagram with this payload is reported.
fn holds(options: &str, payload: &[u8]) -> bool {
    let rule = format!(r#"alert udp any any -> any any (msg:"x"; {options} sid:1;)"#);
    !watch(&rule, &[datagram(SECOND_NS, 1, 4_000, payload)]).reported.is_empty()
}

/// Dots, with a text at an offset.
fn dots(len: usize, at: usize, text: &str) -> Vec<u8> {
    let mut bytes = vec![b'.'; len];
    bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
    bytes
}

#[test]
fn a_literal_near_the_beginning_is_found_at_its_place_only() {
    for text in ["e", "ev", "evil"] {
        for end in [1, 4, 15, 16, 17, 63, 64, 65, 250, 256, 257, 300] {
            let Some(at) = usize::checked_sub(end, text.len()) else { continue };
            // In a payload that ends with it, and in longer ones.
            for len in [end, end + 1, 400] {
                let payload = dots(len, at, text);
                let exact = format!("content:\"{text}\"; offset:{at}; depth:{};", text.len());
                assert!(holds(&exact, &payload), "{exact} {len}");
                assert!(holds(&format!("content:\"{text}\"; depth:{end};"), &payload), "depth:{end} {len}");
                assert!(holds(&format!("content:\"{text}\"; offset:{at};"), &payload), "offset:{at} {len}");
            }
            let later = dots(400, at + 1, text);
            assert!(!holds(&format!("content:\"{text}\"; depth:{end};"), &later), "{text} behind {end}");
            if at > 0 {
                let sooner = dots(400, at - 1, text);
                assert!(!holds(&format!("content:\"{text}\"; offset:{at};"), &sooner), "{text} before {at}");
            }
            let cut = &dots(end, at, text)[..end - 1];
            assert!(!holds(&format!("content:\"{text}\"; depth:{end};"), cut), "{text} cut at {end}");
        }
    }
}

#[test]
fn literals_near_and_far_are_found_beside_each_other() {
    let reaches = [4, 16, 17, 64, 65, 250, 300];
    let near = reaches.map(|end| {
        format!(r#"alert udp any any -> any any (msg:"near"; content:"at{end:03}"; depth:{end}; sid:{end};)"#)
    });
    // A literal of five bytes cannot end within the first four.
    let near = near[1..].join("\n");
    let far = r#"alert udp any any -> any any (msg:"far"; content:"at016"; sid:1;)"#;
    let rules = format!("{near}\n{far}");
    let all: String = reaches[1..].iter().rev().map(|end| format!("at{end:03}")).collect();
    let reported = |payload: &[u8]| {
        let mut rules = watch(&rules, &[datagram(SECOND_NS, 1, 4_000, payload)]).rules();
        rules.sort_unstable();
        rules
    };
    // Only literals that end within their depth match.
    assert_eq!(reported(all.as_bytes()), [1, 64, 65, 250, 300]);
    assert_eq!(reported(b"at016"), [1, 16]);
    assert_eq!(reported(&dots(400, 295, "at300")), [300]);
    assert_eq!(reported(&dots(400, 296, "at300")), [0; 0]);
    assert_eq!(reported(b""), [0; 0]);
}

#[test]
fn negated_contents_exclude_a_match() {
    assert!(holds(r#"content:!"good";"#, b"evil"));
    assert!(!holds(r#"content:!"good";"#, b"all good"));
    assert!(holds(r#"content:"evil"; content:!"good"; distance:0;"#, b"good evil"));
    assert!(!holds(r#"content:"evil"; content:!"good"; distance:0;"#, b"evil good"));
    assert!(holds(r#"content:"evil"; content:!"good"; within:5;"#, b"evil 12good"));
    assert!(holds(r#"content:!"good";"#, b""), "an empty payload is a buffer");
    assert!(holds(r#"content:"evil"; isdataat:!1,relative;"#, b"evil"));
    assert!(!holds(r#"content:"evil"; isdataat:!1,relative;"#, b"evil 1"));
    assert!(holds(r#"content:"EVIL"; nocase;"#, b"eViL") && !holds(r#"content:"EVIL";"#, b"eViL"));
}

#[test]
fn sizes_of_payloads_are_tested() {
    for (test, sizes) in [
        ("dsize:0;", &[0][..]),
        ("dsize:5;", &[5]),
        ("dsize:>5;", &[6, 7, 8]),
        ("dsize:<2;", &[0, 1]),
        ("dsize:!5;", &[0, 1, 2, 3, 4, 6, 7, 8]),
    ] {
        let held: Vec<usize> = (0..=8).filter(|&len| holds(test, &vec![b'x'; len])).collect();
        assert_eq!(held, sizes, "{test}");
    }
}

#[test]
fn flags_are_tested_on_packets_of_tcp() {
    let mut talk = Talk::open(4_000);
    talk.says(Client, "evil").closes(Client).resets(Server);
    for (test, packets) in [
        ("flags:S;", &[1][..]),
        ("flags:SA;", &[2]),
        ("flags:S+;", &[1, 2]),
        ("flags:A;", &[3, 4]),
        ("flags:*FR;", &[5, 6]),
        (r#"flags:A; content:"evil";"#, &[4]),
        (r#"flags:F+; content:"evil";"#, &[]),
        ("dsize:4;", &[4]),
    ] {
        let rule = format!(r#"alert tcp any any -> any any (msg:"x"; {test} sid:1;)"#);
        let reported: Vec<u64> =
            watch(&rule, &talk.segments).reported.iter().map(|(packet, _)| *packet).collect();
        assert_eq!(reported, packets, "{test}");
    }
}

#[test]
fn a_place_in_a_segment_counts_from_the_segment() {
    let rule = r#"alert tcp-pkt any any -> any any (msg:"x"; content:"evil"; depth:4; sid:1;)"#;
    let mut talk = Talk::open(4_000);
    talk.says(Client, "first")
        .says(Client, "evil")
        .says(Client, "xevil")
        .says(Client, "ev")
        .says(Client, "il");
    assert_eq!(watch(rule, &talk.segments).reported, [(5, 1)]);
}

#[test]
fn addresses_ports_and_directions_are_those_of_the_rule() {
    let reported = |header: &str, side_from_server: bool| {
        let rule = format!(r#"alert {header} (msg:"x"; content:"evil"; sid:1;)"#);
        let (host, server) = (host_end(1), v4(192, 0, 2, 1, 53));
        let network = if side_from_server { udp(server, host, b"evil") } else { udp(host, server, b"evil") };
        let side = if side_from_server { Side::Outside } else { Side::Inside };
        !watch(&rule, &[Arrival { at_ns: SECOND_NS, side, network }]).reported.is_empty()
    };
    for (header, there, back) in [
        ("udp any any -> any any", true, true),
        ("udp 10.0.0.0/8 any -> any 53", true, false),
        ("udp any 53 -> any any", false, true),
        ("udp any any <> any 53", true, true),
        ("udp any any -> ![192.0.2.0/24] any", false, true),
        ("udp any !53 -> any [1:100,!54]", true, false),
        ("udp $HOME_NET any -> $EXTERNAL_NET any", true, false),
        ("tcp any any -> any any", false, false),
        ("ip any any -> any any", true, true),
    ] {
        assert_eq!((reported(header, false), reported(header, true)), (there, back), "{header}");
    }
}
