//! The toolchain that the files of the tree name is one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;

const MANIFEST: &str = include_str!("../../../Cargo.toml");
const TOOLCHAIN: &str = include_str!("../../../rust-toolchain.toml");
const README: &str = include_str!("../../../README.md");

/// Returns the value of a key in the text of a TOML file.
fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
    found.unwrap_or_else(|| panic!("there is no `{key}`")).trim().trim_matches('"')
}

/// Returns the first two numbers of a version.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(['.', '-', ' ']).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn files_agree_on_the_least_version() {
    let least = value(MANIFEST, "rust-version");
    assert!(README.contains(&format!("Needs Rust {least} or later")), "README.md names another version");
    // A pinned version must be new enough.
    let channel = value(TOOLCHAIN, "channel");
    assert!(channel == "stable" || version(channel) >= version(least), "{channel} is below {least}");
    for component in ["rustfmt", "clippy"] {
        assert!(value(TOOLCHAIN, "components").contains(component), "{component} is missing");
    }
}

#[test]
fn the_compiler_in_use_is_new_enough() {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into())).arg("--version").output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    let found = version(said.split(' ').nth(1).unwrap());
    assert!(found >= version(value(MANIFEST, "rust-version")), "{said}");
}
