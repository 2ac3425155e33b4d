//! Processes that outlive a node, also after their supervisor was killed.
//!
//! A program's processes may leave its group and session, and a network namespace's name may be
//! gone with the mounts of its creator. So each supervisor has a mark of its own: a variable in the
//! environment of all processes that it starts, and an alias of the loopback interface in a
//! namespace that it made. The node's lock file keeps the mark until all is removed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The variable with a supervisor's mark as value.
pub(super) const VARIABLE: &str = "RIVULET_NODE";
/// Rounds of looks for processes, which may start others in the meantime, and the time between two.
const ROUNDS_MAX: u32 = 20;
const ROUND: Duration = Duration::from_millis(50);
/// Limit on the bytes of a mark.
const MARK_MAX: usize = 100;

/// The mark of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark(String);

impl Mark {
    /// Makes a mark that no other supervisor of this machine has.
    pub fn new() -> Mark {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Mark(format!("{}-{}", std::process::id(), since.as_nanos()))
    }

    /// Reads a mark from a lock file; `None` if there is none.
    pub fn parse(text: &str) -> Option<Mark> {
        let text = text.trim();
        let is_valid = (1..=MARK_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        is_valid.then(|| Mark(text.to_owned()))
    }

    /// Returns the mark as the value of [`VARIABLE`].
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the alias of the loopback interface of a namespace with this mark.
    pub fn alias(&self) -> String {
        format!("rivulet node {}", self.0)
    }

    /// Kills all processes with this mark, and those in namespaces with it, but not this one.
    pub fn kill_processes(&self) {
        for _ in 0..ROUNDS_MAX {
            let found = self.processes();
            if found.marked.is_empty() && !found.is_one_starting {
                return;
            }
            for id in found.marked {
                // It may have ended by itself.
                let _ = kill_process(id, Signal::KILL);
            }
            std::thread::sleep(ROUND);
        }
    }

    fn processes(&self) -> Found {
        let mut found = Found { marked: Vec::new(), is_one_starting: false };
        let Ok(all) = fs::read_dir("/proc") else { return found };
        let variable = format!("{VARIABLE}={}", self.0);
        let own = namespace(Path::new("/proc/self"));
        // By its number.
        let mut namespaces: HashMap<u64, bool> = HashMap::new();
        let mut is_marked = |process: &Path| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            found.is_one_starting |= environment.is_empty() && is_starting(process);
            if environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()) {
                return true;
            }
            let Some(number) = namespace(process).filter(|&number| Some(number) != own) else { return false };
            *namespaces.entry(number).or_insert_with(|| self.is_in(process))
        };
        let numbered = all.filter_map(|entry| {
            let path = entry.ok()?.path();
            let id = path.file_name()?.to_str()?.parse().ok()?;
            (id != std::process::id() as i32).then_some((Pid::from_raw(id)?, path))
        });
        // A zombie is neither marked nor in a namespace.
        let marked = numbered.filter(|(_, path)| is_marked(path)).map(|(id, _)| id).collect();
        Found { marked, ..found }
    }

    /// Checks if the network namespace of a process has the mark.
    fn is_in(&self, process: &Path) -> bool {
        let Ok(link) = File::open(process.join("ns/net")) else { return false };
        // The thread's namespace is that of the program which it starts.
        let look = move || {
            move_into_link_name_space(link.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
            let shown = Command::new("ip").args(["-j", "link", "show", "dev", "lo"]).output().ok()?;
            Some(String::from_utf8_lossy(&shown.stdout).into_owned())
        };
        let shown = std::thread::Builder::new().name("look".to_owned()).spawn(look);
        let shown = shown.ok().and_then(|thread| thread.join().ok()).flatten().unwrap_or_default();
        shown.contains(&format!("\"ifalias\":\"{}\"", self.alias()))
    }
}

/// The outcome of a look at all processes of the machine.
struct Found {
    /// Those with the mark.
    marked: Vec<Pid>,
    /// A process was between two programs, so its mark is unknown.
    is_one_starting: bool,
}

/// Checks if a process may have an environment although it was read as empty: it was starting a
/// program then, or still is. At `execve`, the kernel first gives a process the memory of its new
/// program, and then writes arguments and environment. From the first step on, files opened for the
/// old program read as empty, and the parent runs in between. A process that has ended has no
/// program.
fn is_starting(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("stat")).unwrap_or_default();
    fs::read_link(process.join("exe")).is_ok() && !has_empty_environment(&status)
}

/// Checks if a process, by its line `/proc/PID/stat` (proc_pid_stat(5)), has a program, and nothing
/// in its environment.
fn has_empty_environment(status: &str) -> bool {
    // Their places after the program's name, which may hold anything.
    const START_CODE: usize = 23;
    const ENV_START: usize = 47;
    let Some((_, fields)) = status.rsplit_once(") ") else { return false };
    let fields: Vec<_> = fields.split_ascii_whitespace().collect();
    // The kernel writes it last, after each entry of the environment.
    let is_started = fields.get(START_CODE).is_some_and(|start| *start != "0");
    is_started && matches!(fields.get(ENV_START..ENV_START + 2), Some([start, end]) if start == end)
}

/// Returns the number of a process's network namespace.
fn namespace(process: &Path) -> Option<u64> {
    fs::metadata(process.join("ns/net")).ok().map(|link| link.ino())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Child;

    use super::*;

    #[test]
    fn marked_processes_are_found_and_killed_whatever_their_session() {
        let (mark, other) = (Mark::new(), Mark::parse("1-1").unwrap());
        let (mut marked, mut free) = (sleeper(&mark), sleeper(&other));
        mark.kill_processes();
        assert!(marked.wait().unwrap().code().is_none());
        assert!(free.try_wait().unwrap().is_none());
        free.kill().unwrap();
        free.wait().unwrap();
    }

    /// A process that is just starting shows no environment for a moment.
    #[test]
    fn processes_are_found_from_the_moment_of_their_start() {
        for _ in 0..30 {
            let mark = Mark::new();
            let mut marked = sleeper(&mark);
            mark.kill_processes();
            assert!(marked.wait().unwrap().code().is_none());
        }
    }

    #[test]
    fn an_empty_environment_is_told_from_one_that_is_not_there_yet() {
        let status = |code: &str, environment: &str| {
            format!("7 (a) b) S {}{code} {}{environment} 0\n", "1 ".repeat(22), "1 ".repeat(23))
        };
        assert!(has_empty_environment(&status("4096", "8192 8192")));
        for (code, environment) in [("4096", "8192 8200"), ("0", "8192 8192"), ("0", "0 0"), ("4096", "")] {
            assert!(!has_empty_environment(&status(code, environment)), "{code} {environment}");
        }
        let mut bare = Command::new("sleep").arg("20").env_clear().spawn().unwrap();
        let process = PathBuf::from(format!("/proc/{}", bare.id()));
        // It may be starting for a moment.
        while is_starting(&process) {
            std::thread::yield_now();
        }
        bare.kill().unwrap();
        bare.wait().unwrap();
    }

    /// Starts a process in a session of its own that ends by itself after some seconds.
    fn sleeper(mark: &Mark) -> Child {
        let mut command = Command::new("setsid");
        command.args(["sleep", "20"]).env(VARIABLE, mark.as_str());
        command.spawn().unwrap()
    }

    #[test]
    fn marks_of_lock_files_are_checked() {
        let mark = Mark::new();
        assert_eq!(Mark::parse(&format!("{}\n", mark.as_str())), Some(mark));
        let long = "1".repeat(MARK_MAX + 1);
        for wrong in ["", "\n", "a\"b", "1 2", &*long] {
            assert_eq!(Mark::parse(wrong), None, "{wrong}");
        }
    }
}
