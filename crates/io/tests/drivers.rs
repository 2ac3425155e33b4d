//! Each registered driver is complete: a specification that parses, capabilities, system calls,
//! limits, and a page.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use io::port::{DRIVERS, DriverInfo, PortSpec};
use rustix::thread::CapabilitySet;

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/drivers").join(format!("{name}.md"))
}

fn capability_names(set: CapabilitySet) -> Vec<String> {
    set.iter_names().map(|(name, _)| format!("`CAP_{name}`")).collect()
}

/// Returns a list for a cell of a table.
fn cell(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<_> = items.into_iter().collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// Returns system calls, each once, with the number of values that its argument may have.
fn calls(info: &DriverInfo) -> String {
    let names: BTreeSet<_> = info.system_calls.iter().map(|call| call.name).collect();
    cell(names.into_iter().map(|name| {
        let all = info.system_calls.iter().filter(|call| call.name == name);
        match all.filter(|call| call.argument.is_some()).count() {
            0 => format!("`{name}`"),
            1 => format!("`{name}`, restricted"),
            count => format!("`{name}`, {count} commands"),
        }
    }))
}

fn table() -> String {
    let mut table = "\
| driver | `--port` | other end | capabilities to start | kept | system calls beyond the common ones | `driver` of the report |
|---|---|---|---|---|---|---|
"
    .to_owned();
    for info in DRIVERS.iter().map(|driver| driver.info) {
        let code = |text: &str| format!("`{}`", text.replace('|', "\\|"));
        table += &format!(
            "| [{0}]({0}.md) | {1} | {2} | {3} | {4} | {5} | {6} |\n",
            info.name,
            code(info.syntax),
            info.peer,
            cell(capability_names(info.capabilities)),
            cell(capability_names(info.capabilities_kept)),
            calls(info),
            cell(info.modes.iter().map(|mode| code(mode))),
        );
    }
    table
}

#[test]
fn each_driver_is_complete() {
    let names: BTreeSet<_> = DRIVERS.iter().map(|driver| driver.info.name).collect();
    assert_eq!(names.len(), DRIVERS.len(), "two drivers have the same name");
    for driver in DRIVERS {
        let info = driver.info;
        let name = info.name;
        assert!(info.syntax.starts_with(&format!("{name}:")), "{name}: {}", info.syntax);
        let spec: PortSpec = info.example.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(spec.preferred().unwrap().0.name, name);
        assert_eq!(spec.is_interface(), info.is_for_interfaces, "{name}");
        let empty = format!("{name}:").parse::<PortSpec>().unwrap_err().to_string();
        assert!(empty.contains("such as"), "{name}: the error names no example: {empty}");
        assert!(!info.peer.is_empty() && !info.modes.is_empty(), "{name}");
        assert!(info.capabilities.contains(info.capabilities_kept), "{name} keeps what it does not need");
        for call in info.system_calls {
            assert!(call.number >= 0 && !call.name.is_empty(), "{name}");
        }
        let readiness = driver.check(CapabilitySet::all());
        assert!(
            !readiness.found.is_empty() && (readiness.is_ready || !readiness.advice.is_empty()),
            "{name}"
        );
    }
}

#[test]
fn each_driver_has_a_page_that_names_its_capabilities() {
    for info in DRIVERS.iter().map(|driver| driver.info) {
        let page = page(info.name);
        let text = fs::read_to_string(&page).unwrap_or_else(|_| panic!("{} is missing", page.display()));
        for capability in capability_names(info.capabilities) {
            let capability = capability.trim_matches('`');
            assert!(text.contains(capability), "{}: {capability} is not named", page.display());
        }
        let mut modes = info.modes.iter().filter(|mode| **mode != info.name);
        assert!(modes.all(|mode| text.contains(mode)), "{}: not all modes are named", page.display());
    }
}

/// `RIVULET_BLESS=1` rewrites the table. Other processors have fewer system calls.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_table_of_drivers_is_that_of_the_registry() {
    let page = page("README");
    let text = fs::read_to_string(&page).unwrap();
    let begin = text.find("| driver |").unwrap();
    let end = begin + text[begin..].find("\n\n").unwrap() + 1;
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(&page, format!("{}{}{}", &text[..begin], table(), &text[end..])).unwrap();
        return;
    }
    assert_eq!(&text[begin..end], table(), "RIVULET_BLESS=1 rewrites it");
}
