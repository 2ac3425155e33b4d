//! `rivulet policy`.

use serde_json::Value;

use super::Place;

const SITE: &str = "Port<0> lan;
Port<1> wan;
NAT n { external: [203.0.113.1], inside: [10.0.0.0/8] };
Firewall f { rules: \"allow out\" };
pipelet {
  lan [dst port 1-1000] <-> n; lan [dst port 80] <-> f; lan <-> f;
  n <-> f; f <-> wan;
}
";

#[test]
fn hidden_edges_are_reported_with_an_example_packet() {
    let place = Place::new();
    place.write("site.rvl", SITE);
    let findings = place.command("policy check site.rvl -o json").output().unwrap();
    let findings: Value = serde_json::from_slice(&findings.stdout).unwrap();
    let hidden =
        findings.as_array().unwrap().iter().find(|found| found["message"] == "no packet takes this edge");
    let hidden = hidden.unwrap_or_else(|| panic!("{findings}"));
    assert_eq!((hidden["file"].as_str(), hidden["line"].as_u64()), (Some("site.rvl"), Some(6)));
    assert!(hidden["notes"][1].as_str().unwrap().ends_with("tcp 10.0.0.1:40000 -> 192.0.2.1:80"), "{hidden}");
}

#[test]
fn warnings_fail_only_if_denied() {
    let place = Place::new();
    place.write("good.rvl", super::WIRE);
    place.write("odd.rvl", super::WIRE.replace("<->", "->"));
    let said = |line: &str, code| {
        let output = place.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(said("policy check good.rvl -W", 0), "1 file: 0 errors, 0 warnings\n");
    let warned = said("policy check good.rvl odd.rvl", 0);
    assert!(warned.contains("packets from `inside` to `outside` cannot be answered"), "{warned}");
    assert!(warned.ends_with("2 files: 0 errors, 1 warning\n"), "{warned}");
    said("policy check odd.rvl --deny-warnings", 1);
    place.write("wrong.rvl", "Port<0> a; pipelet { a -> b; }");
    assert!(said("policy check wrong.rvl", 1).contains("unknown port or NF `b`"));
}

#[test]
fn warnings_of_functions_are_findings() {
    let place = Place::new();
    let policy = "Port<0> a;\nPort<1> b;\nFirewall f { rules: \"\"\"\nallow out\ndeny out tcp to any port 25\n\"\"\" };\n\
                  pipelet { a <-> f <-> b; }";
    place.write("edge.rvl", policy);
    let findings = place.command("policy check edge.rvl -o json").output().unwrap();
    let findings: Value = serde_json::from_slice(&findings.stdout).unwrap();
    assert_eq!(
        (&findings[0]["severity"], &findings[0]["line"]),
        (&"warning".into(), &3.into()),
        "{findings}"
    );
    let message = findings[0]["message"].as_str().unwrap();
    assert!(message.contains("edge.rvl:5: `rule 2` decides nothing: `rule 1` (edge.rvl:4)"), "{message}");
}

#[test]
fn graphs_are_drawn() {
    let place = Place::new();
    place.write("site.rvl", SITE);
    assert!(place.stdout("policy graph site.rvl").starts_with("lan (port 0)\n  ├<─ dst port 1-1000 ─> n\n"));
    place.stdout("policy graph site.rvl -f svg -w site.svg");
    let svg = String::from_utf8(place.read("site.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains(">Firewall<"), "{svg}");
}

#[test]
fn policies_are_formatted() {
    let place = Place::new();
    place.write("a.rvl", "Port<0> a ;Port<1> b; pipelet{a<->b}  # wire");
    let formatted = "Port<0> a; Port<1> b; pipelet { a <-> b }  # wire\n";
    assert_eq!(place.stdout("policy fmt a.rvl"), formatted);
    assert_eq!(place.run("policy fmt --check a.rvl").status.code(), Some(1));
    place.stdout("policy fmt -w a.rvl");
    assert_eq!(place.read("a.rvl"), formatted.as_bytes());
    assert_eq!(place.stdout("policy fmt --check a.rvl"), "");
    place.write("wrong.rvl", "pipelet {");
    assert!(place.refused(1, "policy fmt --write wrong.rvl").contains("wrong.rvl"));
}
