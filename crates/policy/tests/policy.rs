//! Valid policies and their meaning.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside the tests themselves")]

use policy::{Colour, EdgeDirection, Fields, FilterNumberField, Node, Policy, Scalar};
use serde::Deserialize;
use values::{BitRate, ByteCount, ConfigError, Located, Nanos, PacketRate};

/// The example of the E2 talk, verbatim, including the colon after `n -> f`.
const SLIDE: &str = "Proxy p; NAT n; FW f;
Port<0-7> int;
Port<8-15> ext;
pipelet {
 int [dst port 80] -> p;
 int [!(dst port 80)] -> n;
 p [!(dst ip my_net)] -> n;
 n -> f:
 f [FW.safe &&
  !(dst ip wan_net)] -> ext;
 f [!FW.safe] -> Drop;
}
";

const NETS: &str = "let my_net = 10.0.0.0/8; let wan_net = [198.51.100.0/24, 2001:db8::/32];\n";

fn read(text: &str) -> Policy {
    read_with(text, &mut |path| Err(format!("no file {path}")))
}

fn read_with(text: &str, files: &mut policy::Files<'_>) -> Policy {
    Policy::read("test.rvl", text, files).unwrap_or_else(|report| panic!("{}", report.render(Colour::Off)))
}

// E2, E3
#[test]
fn example_of_the_talk_is_accepted_verbatim() {
    let tree = policy::syntax("slide.rvl", SLIDE).unwrap();
    assert_eq!(tree.items.len(), 6);
    let unresolved = Policy::read("slide.rvl", SLIDE, &mut |_| Err(String::new())).unwrap_err();
    assert_eq!(
        unresolved.to_string(),
        "slide.rvl:7:14: error: unknown value `my_net`\n\
         slide.rvl:8:8: warning: `:` at the end of a statement; write `;`\n\
         slide.rvl:10:12: error: unknown value `wan_net`\n"
    );

    let policy = read(&format!("{NETS}{SLIDE}"));
    assert_eq!(policy.report.diagnostics.len(), 1, "{}", policy.report);
    let names: Vec<_> = policy.nfs.iter().map(|nf| (nf.type_name.as_str(), nf.name.as_str())).collect();
    assert_eq!(names, [("Proxy", "p"), ("NAT", "n"), ("FW", "f")]);
    assert_eq!(policy.ports[1].numbers, 8..=15);
    let edges: Vec<_> = policy.pipelets[0].edges.iter().map(|e| (e.from, e.to)).collect();
    use Node::{Drop, Nf, Port};
    assert_eq!(
        edges,
        [(Port(0), Nf(0)), (Port(0), Nf(1)), (Nf(0), Nf(1)), (Nf(1), Nf(2)), (Nf(2), Port(1)), (Nf(2), Drop)]
    );

    let filter = |edge: usize| &policy.pipelets[0].edges[edge].filter;
    let mut packet = Fields { dst_ip: Some("192.0.2.1".parse().unwrap()), ..Fields::default() };
    packet.numbers.insert(FilterNumberField::DstPort, 80);
    assert!(filter(0).matches(&packet) && !filter(1).matches(&packet) && filter(2).matches(&packet));
    assert!(!filter(4).matches(&packet) && filter(5).matches(&packet), "not known to be safe");
    packet.attributes.insert((2, "safe".into()), Scalar::Number(1));
    assert!(filter(4).matches(&packet) && !filter(5).matches(&packet));
    packet.dst_ip = Some("198.51.100.9".parse().unwrap());
    packet.numbers.insert(FilterNumberField::DstPort, 81);
    assert!(!filter(4).matches(&packet) && !filter(0).matches(&packet) && filter(1).matches(&packet));
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum Mapping {
    EndpointIndependent,
    AddressDependent,
    Limited { most: u32 },
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Everything {
    external: Vec<String>,
    mapping: Mapping,
    other: Mapping,
    idle: Nanos,
    idle_ns: u64,
    idle_text: String,
    burst: ByteCount,
    rate: BitRate,
    packets: PacketRate,
    flows: u32,
    ratio: f64,
    offset: i16,
    on: Option<bool>,
    off: Option<bool>,
    gateway: std::net::Ipv6Addr,
    mac: String,
    ports: String,
    net: String,
    text: Located,
    rules: Located,
}

#[test]
fn configuration_reads_every_literal() {
    let policy = read_with(
        r#"
let my_net = 10.0.0.0/8
;
NAT n {
  external: [203.0.113.1-203.0.113.4, fe80::1-fe80::5, $my_net,],
  mapping: endpoint-independent   # a new line separates, too
  other: { limited: { most: 3 } }; idle: 2h4m, idle_ns: 500us, idle_text: 90s
  burst: 15KB, rate: 2.5Gbps, packets: 10Mpps,
  flows: 1M, ratio: 0.75, offset: -0_3, on: true,
  gateway: 2001:db8::1, mac: 02:00:5e:10:00:01, ports: 1024-65535, net: my_net,
  text: "a\tb\u{e9}\n\"c\"", rules: file("acl.rules"),
}
Port<0> inside;
pipelet { inside <-> n <-> inside; }
"#,
        &mut |path| Ok(format!("# {path}\nallow tcp\n").into()),
    );
    let config: Everything = policy.config(&policy.nfs[0].config).unwrap();
    assert_eq!(
        config,
        Everything {
            external: vec!["203.0.113.1-203.0.113.4".into(), "fe80::1-fe80::5".into(), "10.0.0.0/8".into()],
            mapping: Mapping::EndpointIndependent,
            other: Mapping::Limited { most: 3 },
            idle: Nanos(7_440_000_000_000),
            idle_ns: 500_000,
            idle_text: "90s".into(),
            burst: ByteCount(15_000),
            rate: BitRate(2_500_000_000),
            packets: PacketRate(10_000_000),
            flows: 1_000_000,
            ratio: 0.75,
            offset: -3,
            on: Some(true),
            off: None,
            gateway: "2001:db8::1".parse().unwrap(),
            mac: "02:00:5e:10:00:01".into(),
            ports: "1024-65535".into(),
            net: "10.0.0.0/8".into(),
            text: "a\tbé\n\"c\"".into(),
            rules: "# acl.rules\nallow tcp\n".into(),
        }
    );
    assert_eq!(config.rules.position(18).to_string(), "acl.rules:2:7");
    assert_eq!(
        config.text.position(3).to_string(),
        "test.rvl:11:14",
        "\\t takes two characters in the source"
    );

    let error = config.rules.error(18..21, "unknown protocol");
    let shown = policy.diagnose(&error, policy.nfs[0].span);
    assert_eq!(shown.line(&policy.report.sources), "acl.rules:2:7: error: unknown protocol");
    assert!(shown.render(&policy.report.sources, Colour::Off).contains("2 | allow tcp\n  |       ^^^"));
}

#[test]
fn error_of_a_type_points_into_its_text() {
    #[derive(Debug, Deserialize)]
    #[serde(try_from = "Located")]
    struct Rules;
    impl TryFrom<Located> for Rules {
        type Error = ConfigError;
        fn try_from(text: Located) -> Result<Self, ConfigError> {
            Err(text.error(6..9, "no such protocol"))
        }
    }
    #[derive(Debug, Deserialize)]
    struct Config {
        #[serde(rename = "rules")]
        _rules: Rules,
    }
    let policy = read("FW f { rules: \"allow xyz\" };");
    let error = policy.config::<Config>(&policy.nfs[0].config).unwrap_err();
    assert_eq!(error.line(&policy.report.sources), "test.rvl:1:22: error: no such protocol");
}

#[test]
fn both_directions_mirror_their_filters() {
    let policy =
        read("Port<0> a; Port<1> b; NAT n; FW f;\npipelet web { a [dst port 80 && tcp] <-> n <-> f <-> b; }");
    let edges = &policy.pipelets[0].edges;
    let way: Vec<_> = edges.iter().map(|e| (e.from, e.to, e.direction)).collect();
    let (a, b, n, f) = (Node::Port(0), Node::Port(1), Node::Nf(0), Node::Nf(1));
    use EdgeDirection::{Forward, Reverse};
    assert_eq!(
        way,
        [
            (a, n, Forward),
            (n, f, Forward),
            (f, b, Forward),
            (b, f, Reverse),
            (f, n, Reverse),
            (n, a, Reverse)
        ]
    );
    let mut answer = Fields::default();
    answer.numbers.extend([(FilterNumberField::SrcPort, 80), (FilterNumberField::Proto, 6)]);
    assert!(edges[5].filter.matches(&answer) && !edges[0].filter.matches(&answer));
    assert_eq!(edges[5].filter.mirrored(), edges[0].filter);
    assert_eq!(policy.report.diagnostics, []);
}

#[test]
fn settings_and_empty_policies() {
    #[derive(Deserialize)]
    struct Settings {
        #[serde(default)]
        flows: u64,
    }
    let flows = |text| {
        let policy = read(text);
        policy.config::<Settings>(&policy.settings).unwrap().flows
    };
    assert_eq!(flows("settings { flows: 1M, seed: 7 };"), 1_000_000);
    assert_eq!(flows(""), 0);
    assert_eq!(flows("\u{feff}# nothing\r\n// at all\r\n;;"), 0);
}

#[derive(Debug, serde::Deserialize)]
struct Locked {
    key: values::Secret,
    #[serde(default, rename = "number")]
    _number: u32,
}

#[test]
fn secrets_come_from_private_files_only() {
    let locked = |text: &str, mode: Option<u32>| {
        let text = format!("N n {{ {text} }};");
        let policy = read_with(&text, &mut |path| {
            let access = mode.map(|mode| policy::FileAccess { path: format!("/etc/{path}"), mode });
            Ok(policy::FileText { text: "c0ffee".to_owned(), access })
        });
        let wrong = |error: Box<policy::Diagnostic>| error.render(&policy.report.sources, Colour::Off);
        policy.config::<Locked>(&policy.nfs[0].config).map_err(wrong)
    };
    for mode in [None, Some(0o600), Some(0o400), Some(0o711)] {
        let key = locked(r#"key: file("a.key")"#, mode).unwrap().key;
        assert_eq!(key.bytes().unwrap(), [0xc0, 0xff, 0xee]);
    }
    for mode in [0o640, 0o604, 0o644, 0o620, 0o602, 0o4640] {
        let error = locked(r#"key: file("a.key")"#, Some(mode)).unwrap_err();
        let said = [format!("`/etc/a.key` has mode {mode:04o}"), "chmod 600 /etc/a.key".to_owned()];
        assert!(said.iter().all(|said| error.contains(said)), "{error}");
        assert!(!error.contains("c0ffee"), "{error}");
        // Other files' texts are confidential, and not shown where they are misplaced.
        let error = locked(r#"key: "00", number: file("a.key")"#, Some(mode)).unwrap_err();
        assert!(error.contains("found the text of a file") && !error.contains("c0ffee"), "{error}");
    }
}

#[test]
fn messages_do_not_show_secrets() {
    for text in [
        r#"key: "c0ffee", number: x"#,
        r#"key: "c0ffee" x"#,
        r#"key: "c0ffee"#,
        r#"number: x, "key": "c0ffee""#,
        r#"key: 123456789012c0ffee"#,
        r#"key: [1], number: 1, secret: "c0ffee""#,
        "key: 1234567890123456789",
    ] {
        let said = match Policy::read("p.rvl", &format!("N n {{ {text} }};"), &mut |_| Err(String::new())) {
            Err(report) => report.render(Colour::Off),
            Ok(policy) => match policy.config::<Locked>(&policy.nfs[0].config) {
                Err(error) => error.render(&policy.report.sources, Colour::Off),
                Ok(config) => format!("{config:?}"),
            },
        };
        assert!(!said.contains("c0ffee") && !said.contains("4567890"), "{text}: {said}");
        assert!(said.contains("error"), "{text}: {said}");
    }
}

#[test]
fn limits_are_kept() {
    let refused = |text: &str| Policy::read("x", text, &mut |_| Err(String::new())).unwrap_err();
    let deep = format!("let a = {}1{};", "[".repeat(100_000), "]".repeat(100_000));
    assert!(refused(&deep).to_string().contains("nested more than 64 levels deep"));
    let deep = format!("pipelet {{ a [{}true] -> b; }}", "!(".repeat(100_000));
    assert!(refused(&deep).to_string().contains("nested more than 64 levels deep"));
    let huge = format!("let a = {};", "9".repeat(100_000));
    assert!(refused(&huge).to_string().len() < 300);
    let long = format!("{} x", "x".repeat(100_000));
    assert!(refused(&long).render(Colour::Off).len() < 3_000);
    let many = "let = ;\n".repeat(1_000);
    assert_eq!(refused(&many).diagnostics.len(), policy::DIAGNOSTICS_MAX);
    assert_eq!(refused(&many).omitted, 900);
    let large = "#".repeat(policy::SOURCE_BYTES_MAX + 1);
    assert!(refused(&large).to_string().contains("are allowed"));
    let nodes: String = (0..=policy::NODES_MAX).map(|n| format!("T n{n};\n")).collect();
    assert!(refused(&nodes).to_string().contains("at most 4096 ports and NFs"));
    // Each value holds the previous one ten times.
    let levels = (1..12).map(|n| format!("let a{n} = [{}];\n", format!("a{},", n - 1).repeat(10)));
    let bomb: String = std::iter::once("let a0 = 1;\n".to_owned()).chain(levels).collect();
    assert!(refused(&bomb).to_string().contains("values of the policy exceed"));
}
