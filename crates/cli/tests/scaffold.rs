//! Follows `docs/write-your-first-nf.md` in a copy of the workspace.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

use std::fs;
use std::path::Path;
use std::process::Command;

const RIVULET: &str = env!("CARGO_BIN_EXE_rivulet");

/// A copy of the command under test. `cargo run` in a copy of the workspace replaces the command,
/// and dropping this restores it.
struct Kept {
    copy: tempfile::TempPath,
}

impl Kept {
    fn new() -> Kept {
        let copy = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        fs::copy(RIVULET, &copy).unwrap();
        Kept { copy }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The copied file is kept: the build may link to it.
        let _ = fs::remove_file(RIVULET).and_then(|()| fs::copy(&self.copy, RIVULET));
    }
}

/// Executes the lines of the page's `sh` blocks that create, check, test or demonstrate the
/// function, but not the lines that measure or fuzz it.
#[test]
#[ignore = "compiles the functions again, for minutes: .ci/nightly"]
fn the_first_function_of_a_newcomer_works() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let copy = tempfile::tempdir().unwrap();
    copy_workspace(&here, copy.path());
    // Libraries may be built there already.
    let target = Path::new(RIVULET).ancestors().nth(2).unwrap();
    let page = fs::read_to_string(here.join("docs/write-your-first-nf.md")).unwrap();
    let mut steps = Vec::new();
    let kept = Kept::new();
    for line in page.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let program = match words[..] {
            ["rivulet", "new", ..] => RIVULET,
            ["cargo", "test" | "check" | "run", ..] => env!("CARGO"),
            _ => continue,
        };
        steps.push(line);
        let output = Command::new(program)
            .args(&words[1..])
            .current_dir(copy.path())
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_PROFILE_TEST_OPT_LEVEL", "0")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}:\n{}{said}", String::from_utf8_lossy(&output.stdout));
        let printed = String::from_utf8_lossy(&output.stdout);
        let shows = match words[..] {
            [_, "test", ..] => "test result: ok. 3 passed",
            [_, "run", _, "nf", "check", ..] => "no difference",
            [_, "run", _, "traffic", ..] | [_, "check", ..] => "",
            _ => "flow_limit",
        };
        assert!(printed.contains(shows), "{line}: {printed}");
    }
    assert!(steps.len() >= 8, "the page has too few steps: {steps:?}");
    drop(kept);
}

/// The generated code is Rust. A second function of that name is refused and changes nothing.
#[test]
fn a_function_is_generated_once() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let copy = tempfile::tempdir().unwrap();
    copy_workspace(&here, copy.path());
    let new =
        || Command::new(RIVULET).args(["new", "nf", "flow_limit"]).current_dir(copy.path()).output().unwrap();
    let output = new();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = |name: &str| copy.path().join("crates/functions/src").join(name);
    let written = Command::new("rustfmt")
        .args(["--edition", "2024", "--check", "--config", "skip_children=true"])
        .arg(path("flow_limit.rs"))
        .output()
        .unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stdout));
    let before = fs::read(path("lib.rs")).unwrap();
    assert!(String::from_utf8_lossy(&before).contains("flow_limit"));
    let output = new();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("already exists"));
    assert_eq!(fs::read(path("lib.rs")).unwrap(), before);
}

#[test]
fn nothing_is_written_outside_a_workspace() {
    let empty = tempfile::tempdir().unwrap();
    let output =
        Command::new(RIVULET).args(["new", "nf", "mine"]).current_dir(empty.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not in a checkout"));
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
}

#[test]
fn invalid_names_are_refused() {
    for (name, why) in [("Flow-Limit", "try `flow_limit`"), ("match", "is reserved"), ("nat", "is taken by")]
    {
        let output = Command::new(RIVULET)
            .args(["new", "nf", name, "--path", env!("CARGO_MANIFEST_DIR")])
            .output()
            .unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{name}");
    }
}

/// Copies the files that a build needs.
fn copy_workspace(from: &Path, to: &Path) {
    for name in ["Cargo.toml", "Cargo.lock", "rustfmt.toml", "clippy.toml"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    for name in ["crates", "examples", "docs", "fuzz"] {
        copy_folder(&from.join(name), &to.join(name));
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_name() == "target" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
