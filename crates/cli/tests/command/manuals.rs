//! `rivulet nf`, `rivulet completions`, `rivulet man`, `--help`, and the pages about commands.

use super::*;

#[test]
fn functions_are_listed_and_shown() {
    let place = Place::new();
    let all = place.json("nf list -o json");
    let names: Vec<_> =
        all.as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap().to_owned()).collect();
    for name in [
        "nat",
        "lb",
        "firewall",
        "monitor",
        "policer",
        "whitelist",
        "dos",
        "http",
        "ids",
        "vpn",
        "tunnel",
        "mark",
        "mirror",
        "mptcp",
        "tcp-mss",
        "re",
        "redundancy",
    ] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    assert_eq!(place.stdout("nf list").lines().count(), 1 + names.len());
    for function in all.as_array().unwrap() {
        let name = function["name"].as_str().unwrap();
        let mut shown = place.json(&format!("nf show {name} -o json"));
        let readme = shown.as_object_mut().unwrap().remove("readme").unwrap();
        assert_eq!(&shown, function);
        assert!(place.stdout(&format!("nf show {name}")).contains(readme.as_str().unwrap().trim()));
        for alias in function["aliases"].as_array().unwrap() {
            let alias = alias.as_str().unwrap().to_ascii_uppercase();
            assert_eq!(place.json(&format!("nf show {alias} -o json"))["name"], name);
        }
    }
    let said = place.refused(1, "nf show nothing");
    assert!(said.contains("nothing") && said.contains("firewall"), "{said}");
}

#[test]
fn fast_paths_of_functions_are_checked() {
    let place = Place::new();
    let answer = place.json("nf check policer monitor --packets 2k --seed 3 -o json");
    assert_eq!(answer["same"], true, "{answer}");
    assert!(answer["packets"].as_u64() >= Some(2_000) && answer["graphs"].as_u64() >= Some(5), "{answer}");
    assert_eq!(answer, place.json("nf check policer monitor --packets 2k --seed 3 -o json"));
    let said = place.stdout("nf check policer --packets 400 --config {\"rate\":\"20kbps\"} --command bogus");
    assert!(said.contains("no difference"), "{said}");
    let refused = |args: &str| place.refused(1, &format!("nf check {args}"));
    assert!(refused("nothing").contains("there is no network function `nothing`"));
    assert!(refused("policer --config {\"rat\":1}").contains("unknown field `rat`"));
    assert!(refused("policer --config {").contains("--config is not valid JSON"));
}

#[test]
fn every_shell_has_completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.stdout(&format!("completions {shell}"));
        assert!(script.contains("rivulet") && script.contains("explain"), "{shell}");
    }
    place.refused(2, "completions cobol");
}

#[test]
fn every_command_has_a_manual_page_a_docs_page_and_examples() {
    let place = Place::new();
    place.stdout("man --dir man");
    assert!(place.stdout("man").contains(".TH rivulet 1"));
    let mut commands = 0;
    for entry in std::fs::read_dir(place.path("man")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_prefix("rivulet-").and_then(|name| name.strip_suffix(".1")) else {
            continue;
        };
        if name.contains('-') {
            continue; // A subcommand.
        }
        commands += 1;
        assert!(place.stdout(&format!("{name} --help")).contains("Usage: rivulet"), "{name}");
        if name == "bench" {
            continue;
        }
        let page = workspace("docs/commands").join(format!("{name}.md"));
        assert!(page.exists(), "{} is missing", page.display());
        assert!(place.stdout(&format!("{name} --help")).contains("Examples:"), "{name}");
        assert_page_has_every_option(&place, name);
    }
    assert!(commands >= 8, "{commands}");
}

/// Asserts that the page of `command` names all of its long options, except the options that
/// `docs/commands/README.md` documents for all commands.
fn assert_page_has_every_option(place: &Place, command: &str) {
    let page = |name: &str| {
        std::fs::read_to_string(workspace("docs/commands").join(name).with_extension("md")).unwrap()
    };
    let mut pages = page(command);
    if command == "up" {
        pages += &page("run"); // Options of units.
    }
    for line in place.stdout(&format!("{command} --help")).lines() {
        let mut words = line.split_whitespace();
        let first = match words.next() {
            Some(short) if short.len() == 3 && short.starts_with('-') && short.ends_with(',') => words.next(),
            other => other,
        };
        let Some(option) = first.filter(|word| word.starts_with("--")) else { continue };
        let option = option.split(['=', '[', ',']).next().unwrap();
        if !["--help", "--include", "--log-format", "--output"].contains(&option) {
            assert!(pages.contains(option), "docs/commands/{command}.md has no {option}");
        }
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let place = Place::new();
    assert_eq!(place.stdout("-V"), concat!("rivulet ", env!("CARGO_PKG_VERSION"), "\n"));
    place.refused(2, "");
    place.refused(2, "fly");
}

/// The policies of the NAT's manual, and the values in its table of keys, are valid.
#[test]
fn examples_of_the_nats_manual_are_policies() {
    const PORTS: &str = "Port<0> inside;\nPort<1> outside;\n";
    let place = Place::new();
    let manual = std::fs::read_to_string(workspace("crates/functions/src/nat/README.md")).unwrap();
    let policies = manual.split("```").skip(1).step_by(2).filter(|block| block.contains("pipelet"));
    let mut examples: Vec<String> = policies.map(|policy| format!("{PORTS}{policy}")).collect();
    for row in manual.lines().filter(|row| row.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').splitn(3, '|').map(str::trim).collect();
        let [key, _, meaning] = cells[..] else { continue };
        let value = meaning.strip_prefix('`').and_then(|rest| rest.split('`').next());
        if let Some(value) = value.filter(|value| value.starts_with(['[', '{'])) {
            let key = key.trim_matches('`');
            let config = format!("external: [203.0.113.1], {key}: {value}");
            examples.push(format!("{PORTS}NAT n {{ {config} }};\npipelet p {{ inside <-> n <-> outside; }}"));
        }
    }
    // One policy; forwards, one-to-one, nptv6, blocks, subscriber.
    assert_eq!(examples.len(), 6, "{examples:?}");
    place.stdout("traffic --write in.pcapng --packets 10");
    for example in examples {
        std::fs::write(place.path("example.rvl"), &example).unwrap();
        place.stdout("run example.rvl --read in.pcapng");
    }
}
