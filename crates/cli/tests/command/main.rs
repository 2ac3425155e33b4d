//! The command as a process: arguments and files in; exit codes, messages and files out.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod bench;
mod capture;
mod cluster;
mod demo;
mod explain;
mod externals;
mod journal;
mod lab;
mod log;
mod manuals;
mod operated;
mod policy;
mod run;
mod sim;
mod texts;
mod times;
mod traffic;
mod up;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The policy of a plain wire.
const WIRE: &str = "Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n";

/// A working directory for the command.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rivulet"));
        command.args(line.split_whitespace()).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("STATE_DIRECTORY", self.path("state"));
        command
    }

    /// Runs the command with arguments separated by spaces.
    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs the command, which must succeed, and returns its standard output.
    fn stdout(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "rivulet {line}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the command, which must succeed and print JSON.
    fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.stdout(line)).unwrap()
    }

    /// Runs the command, which must fail with this code, and returns its standard error.
    fn refused(&self, code: i32, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(code), "rivulet {line}: {}", stderr(&output));
        stderr(&output)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a directory of the workspace.
fn workspace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Asserts that the report accounts for every packet.
#[track_caller]
fn assert_adds_up(report: &serde_json::Value) {
    let count = |name: &str| report[name].as_u64().unwrap();
    let drops: u64 = report["drops"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    let out = count("packets_out") + drops + count("packets_pending");
    assert_eq!(count("packets_in") + count("packets_generated"), out, "{report}");
}
