//! The formatter of policies.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

use policy::{reformat, syntax};

#[track_caller]
fn assert_formatted(text: &str, expected: &str) {
    let formatted = reformat("p.rvl", text).map_err(|report| report.to_string()).unwrap();
    assert_eq!(formatted, expected);
    assert_eq!(reformat("p.rvl", &formatted).unwrap(), formatted, "formatted text stays");
}

#[test]
fn white_space_becomes_uniform_and_comments_stay() {
    assert_formatted(
        "

# A site.
let  net=10.0.0.0/8 ;   # ours
Port< 0 - 7 >lan{prefixes:[net,  192.0.2.0/24]} ;Port<8> wan;


NAT n{
external:[203.0.113.1 - 203.0.113.4]   // pool
    timeouts : {udp:2m, tcp: { } }

};
Firewall f { rules : file( \"a  b.rules\" ) };
pipelet   web{

lan[ tcp&&dst port 80 - 90||!( udp ) ]<->n   # web
  <->f<->wan ;
      # The rest.
f [!f.safe&&dst port<81]->Drop;

}
",
        "\
# A site.
let net = 10.0.0.0/8;  # ours
Port<0-7> lan { prefixes: [net, 192.0.2.0/24] }; Port<8> wan;

NAT n {
  external: [203.0.113.1-203.0.113.4]  // pool
  timeouts: { udp: 2m, tcp: {} }
};
Firewall f { rules: file(\"a  b.rules\") };
pipelet web {
  lan [tcp && dst port 80-90 || !(udp)] <-> n  # web
    <-> f <-> wan;
  # The rest.
  f [!f.safe && dst port < 81] -> Drop;
}
",
    );
}

#[test]
fn lists_over_several_lines_are_indented() {
    assert_formatted(
        "let ports = [\n80,\n443 # web\n];\nsettings {\nflows: 1M, offset: -5\n}\nM m { text: \"\"\"a\n   b\n\"\"\" };",
        "let ports = [\n  80,\n  443  # web\n];\nsettings {\n  flows: 1M, offset: -5\n}\nM m { text: \"\"\"a\n   b\n\"\"\" };\n",
    );
}

#[test]
fn texts_without_statements_and_wrong_ones() {
    assert_formatted("", "");
    assert_formatted("  # nothing\n\n\n", "# nothing\n");
    let report = reformat("p.rvl", "pipelet { a -> ; }").unwrap_err();
    assert!(report.to_string().starts_with("p.rvl:1:"), "{report}");
}

/// The examples of the repository are formatted.
#[test]
fn examples_keep_their_meaning() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rvl") {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.display().to_string();
            let formatted = reformat(&name, &text).map_err(|report| report.to_string()).unwrap();
            assert_eq!(syntax(&name, &formatted).unwrap(), syntax(&name, &text).unwrap());
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}
