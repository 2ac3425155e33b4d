//! Headers, lines and files.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use signatures::*;

fn read(text: &str) -> RulesetReport {
    Ruleset::read("r", text, &RuleVariables::default(), &Classifications::default())
}

/// Returns the printed header, or the fault.
fn header(text: &str) -> String {
    let report = read(&format!("{text} (sid:1;)"));
    match report.faults.first() {
        Some(fault) => fault.to_string(),
        None => report.ruleset.rules()[0].rule.to_string().split_once(" (").unwrap().0.to_owned(),
    }
}

#[test]
fn headers_are_read() {
    for (text, expected) in [
        ("alert tcp any any -> any 80", "alert tcp any any -> any 80"),
        ("Drop TCP-pkt 10.0.0.7/8 1024: <> any :1023", "drop tcp-pkt 10.0.0.0/8 1024: <> any 0:1023"),
        (
            "rejectboth http1 [10.0.0.0/8,!10.0.0.0/9] any -> ![::/1, 1.1.1.1] [80, 81,!90]",
            "rejectboth http1 10.128.0.0/9 any -> ![1.1.1.1,::/1] 80:81",
        ),
        (
            "pass ssl $HOME_NET any -> $EXTERNAL_NET $HTTP_PORTS",
            "pass tls [10.0.0.0/8,172.16.0.0/12,192.168.0.0/16] any -> ![10.0.0.0/8,172.16.0.0/12,192.168.0.0/16] 80",
        ),
        (
            "alert ip 1.2.3.4-1.2.3.9 any -> [$HOME_NET,!192.168.0.0/16] [1:80,![2,4]]",
            "alert ip 1.2.3.4-1.2.3.9 any -> [10.0.0.0/8,172.16.0.0/12] [1,3,5:80]",
        ),
        ("alert icmp any any -> ! 10.0.0.1 any", "alert icmp any any -> !10.0.0.1 any"),
        ("alert udp [any] any -> any ![25,[587,6666:7000]]", "alert udp any any -> any ![25,587,6666:7000]"),
        (
            "alert tcp any any -> any",
            "r:1:1: sid 1: found `alert tcp any any -> any`, expected action, protocol, address, port, direction, address and port",
        ),
        (
            "allow tcp any any -> any any",
            "r:1:1: sid 1: found `allow`, expected one of `alert`, `drop`, `reject`, `rejectsrc`, `rejectdst`, `rejectboth`, `pass`",
        ),
        (
            "alert gopher any any -> any any",
            "r:1:7: sid 1: found `gopher`, expected a protocol, such as `ip`, `tcp`, `tcp-pkt`, `udp`, `icmp`, `http`, `dns` or `tls`",
        ),
        (
            "alert pkthdr any any -> any any",
            "r:1:7: sid 1: protocol `pkthdr` (packets whose headers cannot be read) is not supported",
        ),
        ("alert tcp any any <- any any", "r:1:19: sid 1: found `<-`, expected one of `->`, `<>`"),
        (
            "alert tcp any any => any any",
            "r:1:19: sid 1: a rule for whole transactions (`=>`) is not supported",
        ),
        (
            "alert tcp $NO any -> any any",
            "r:1:12: sid 1: variable `$NO` is not defined as a group of addresses",
        ),
        (
            "alert tcp any $HOME_NET -> any any",
            "r:1:16: sid 1: variable `$HOME_NET` is not defined as a group of ports",
        ),
        ("alert tcp any any -> any [80,81", "r:1:26: sid 1: a `[` without its `]`"),
        (
            "alert tcp any any -> any 90:80",
            "r:1:26: sid 1: found `90:80`, expected a range from a lower to a higher port",
        ),
        ("alert tcp !any any -> any any", "r:1:11: sid 1: can never match: `!any` is empty"),
        (
            "alert tcp [10.0.0.0/33] any -> any any",
            "r:1:21: sid 1: found `33`, expected a number from 0 to 32",
        ),
    ] {
        assert_eq!(header(text), expected, "of `{text}`");
    }
    let nested = format!("{}1{}", "[".repeat(20), "]".repeat(20));
    let error = header(&format!("alert tcp any any -> any {nested}"));
    assert!(error.ends_with("more than 16 nested groups"), "{error}");
}

#[test]
fn variables_are_shared() {
    let report =
        read("alert tcp $HOME_NET any -> any any (sid:1;)\nalert udp $HOME_NET any -> any any (sid:2;)");
    let [a, b] = report.ruleset.rules() else { panic!() };
    assert!(std::sync::Arc::ptr_eq(&a.rule.source, &b.rule.source));
}

#[test]
fn lines_are_assembled() {
    let report = read(concat!(
        "\u{feff}# alert tcp any any -> any any (sid:1;)\r\n",
        "  \n",
        "alert tcp any any -> any any ( \\\r\n",
        "  msg:\"é\"; \\\n",
        "  dsize:x; sid:2;)\r\n",
        "alert tcp any any -> any any (sid:3;) \n",
        "alert tcp any any -> any any (sid:4; msg:\"a\")\n",
        "alert tcp any any -> any any (sid:5;\n",
        "alert tcp any any -> any any\n",
        "alert tcp any any -> any any (msg:\"a\";)\n",
    ));
    assert_eq!(
        report.to_string(),
        "r:5:9: sid 2: dsize: found `x`, expected a number from 0 to 65535\n\
         r:7:38: sid 4: an option has to end in `;`\n\
         r:8:37: a rule has to end in `)`\n\
         r:9:1: a rule without options in parentheses\n\
         r:10:1: the rule has no `sid`\n\
         1 rules loaded, 5 refused, 0 replaced by a higher revision"
    );
    assert_eq!(report.ruleset.rules()[0].place.to_string(), "r:6");
}

#[test]
fn the_higher_revision_stays() {
    let rule = |sid: u32, rev: u32| format!("alert ip any any -> any any (sid:{sid}; rev:{rev};)\n");
    let mut report = read(&[rule(1, 2), rule(2, 1), rule(1, 3), rule(1, 3), rule(1, 1)].concat());
    let other = [rule(2, 5), rule(3, 1)].concat();
    report.append(Ruleset::read("s", &other, &RuleVariables::default(), &Classifications::default()));
    let kept: Vec<_> =
        report.ruleset.rules().iter().map(|l| (l.rule.sid, l.rule.rev, l.place.to_string())).collect();
    assert_eq!(kept, [(1, 3, "r:3".into()), (2, 5, "s:1".into()), (3, 1, "s:2".into())]);
    assert_eq!(report.ruleset.get(1, 2).unwrap().rule.rev, 5);
    assert_eq!(
        report.to_string(),
        "r:4:1: sid 1: gid 1, sid 1 is taken, with rev 3, by the rule at r:3\n\
         r:5:1: sid 1: gid 1, sid 1 is taken, with rev 3, by the rule at r:3\n\
         r:1: gid 1, sid 1: rev 2 is replaced by rev 3 at r:3\n\
         r:2: gid 1, sid 2: rev 1 is replaced by rev 5 at s:1\n\
         3 rules loaded, 2 refused, 2 replaced by a higher revision"
    );
}

#[test]
fn classes_give_priorities() {
    let (classes, _) = Classifications::read("c", "config classification: bad,Bad,2\n");
    for (options, expected) in [
        ("classtype:bad;", Ok(2)),
        ("priority:7; classtype:bad;", Ok(7)),
        ("classtype:BAD; priority:7;", Ok(7)),
        ("", Ok(3)),
        ("classtype:worse;", Err("r:1:40: sid 1: classtype `worse` is not in the classifications")),
    ] {
        let text = format!("alert ip any any -> any any ({options} sid:1;)");
        let report = Ruleset::read("r", &text, &RuleVariables::default(), &classes);
        let priority = match report.faults.first() {
            Some(fault) => Err(fault.to_string()),
            None => Ok(report.ruleset.rules()[0].rule.priority),
        };
        assert_eq!(priority, expected.map_err(str::to_owned), "{options}");
    }
}

/// The action is that of the whole rule, wherever its fault is.
#[test]
fn faults_have_the_action_of_their_rule() {
    let long = format!("drop tcp any any -> any any (msg:\"{}\"; sid:1;)", "x".repeat(RULE_BYTES_MAX));
    let faults = |text: &str| read(text).faults.iter().map(|fault| fault.action).collect::<Vec<_>>();
    for (text, action) in [
        ("drop tcp any any -> any any \\\n (msg:\"x\"; lua:a; sid:1;)", Some(RuleAction::Drop)),
        ("dr\\\nop tcp any any -> any any (depth:x; sid:1;)", Some(RuleAction::Drop)),
        ("\u{feff}REJECT tcp any", Some(RuleAction::Reject(RejectTarget::Source))),
        ("alert x any any -> any any (sid:1;)", Some(RuleAction::Alert)),
        (&long, Some(RuleAction::Drop)),
        ("block tcp any any -> any any (sid:1;)", None),
    ] {
        assert_eq!(faults(text), [action], "{}", &text[..text.len().min(100)]);
    }
    let twice = "pass tcp any any -> any any (sid:1;)\ndrop tcp any any -> any any (sid:1;)";
    assert_eq!(faults(twice), [Some(RuleAction::Drop)]);
}
