//! A process of the pool.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

/// Limit on the bytes of a notice; the rest is lost.
const NOTICE_MAX: usize = 4096;

/// Something that a process has said by `sd_notify(3)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// `READY=1`: it has started.
    Ready,
    /// Another variable, and its value.
    Variable(String, String),
}

/// A running process. It is killed when this is dropped.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    /// The socket of its notices, and the file of that.
    socket: UnixDatagram,
    path: PathBuf,
    notices: std::vec::IntoIter<Notice>,
    has_ended: bool,
}

impl ChildProcess {
    /// Starts a process, in a group of its own: a terminal's Ctrl-C is not for it. `folder` is for
    /// the socket of its notices, whose name must be another one for each process.
    ///
    /// # Errors
    /// If the socket cannot be made, or the program cannot be run.
    pub fn start(command: &mut Command, folder: &Path, name: &OsStr) -> std::io::Result<ChildProcess> {
        let path = folder.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixDatagram::bind(&path)?;
        socket.set_nonblocking(true)?;
        let child = command.env("NOTIFY_SOCKET", &path).process_group(0).spawn()?;
        Ok(ChildProcess { child, socket, path, notices: Vec::new().into_iter(), has_ended: false })
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next notice.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        loop {
            if let Some(notice) = self.notices.next() {
                return Some(notice);
            }
            let mut buffer = [0; NOTICE_MAX];
            let len = self.socket.recv(&mut buffer).ok()?;
            self.notices = notices(&buffer[..len]).into_iter();
        }
    }

    /// Returns how the process has ended, once.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn poll_exit(&mut self) -> std::io::Result<Option<ExitStatus>> {
        if self.has_ended {
            return Ok(None);
        }
        let status = self.child.try_wait()?;
        self.has_ended = status.is_some();
        Ok(status)
    }

    /// Asks the process to end (SIGTERM).
    pub fn terminate(&self) {
        if let Some(id) = i32::try_from(self.id()).ok().and_then(Pid::from_raw).filter(|_| !self.has_ended) {
            // It may have ended by itself.
            let _ = kill_process(id, Signal::TERM);
        }
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        let _ = self.child.kill(); // It may have ended by itself.
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill();
            let _ = self.child.wait();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads a notice: lines of `VARIABLE=VALUE`.
fn notices(bytes: &[u8]) -> Vec<Notice> {
    let text = String::from_utf8_lossy(bytes);
    let notice = |line: &str| match line.split_once('=')? {
        ("READY", "1") => Some(Notice::Ready),
        (variable, value) => Some(Notice::Variable(variable.to_owned(), value.to_owned())),
    };
    text.lines().filter_map(notice).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on has failed.

    use std::time::{Duration, Instant};

    use super::*;

    fn wait<T>(mut poll: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            match poll() {
                Some(found) => return found,
                None if began.elapsed() > Duration::from_secs(30) => panic!("nothing happens"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    #[test]
    fn process_says_what_it_does_and_ends_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        let said = "import os, socket, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
out.sendto(b'READY=1\\nX_WORK=2\\nnothing', os.environ['NOTIFY_SOCKET'])
time.sleep(60)";
        let mut command = Command::new("python3");
        command.args(["-c", said]);
        let mut process = match ChildProcess::start(&mut command, folder.path(), OsStr::new("one")) {
            Err(error) if error.kind() == ErrorKind::NotFound && std::env::var_os("CI").is_none() => {
                return println!("skipped: there is no python3");
            }
            process => process.unwrap(),
        };
        assert_eq!(wait(|| process.poll_notice()), Notice::Ready);
        assert_eq!(process.poll_notice(), Some(Notice::Variable("X_WORK".to_owned(), "2".to_owned())));
        assert_eq!(process.poll_notice(), None);
        assert_eq!(process.poll_exit().unwrap(), None);
        process.terminate();
        assert_eq!(wait(|| process.poll_exit().unwrap()).code(), Some(3));
        assert_eq!(process.poll_exit().unwrap(), None, "once");
        drop(process);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn process_that_is_dropped_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        let process = ChildProcess::start(command.arg("60"), folder.path(), OsStr::new("one")).unwrap();
        let id = Pid::from_raw(process.id() as i32).unwrap();
        drop(process);
        assert!(rustix::process::test_kill_process(id).is_err());
    }

    #[test]
    fn program_that_is_missing_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("/nonexistent/program");
        assert!(ChildProcess::start(&mut command, folder.path(), OsStr::new("one")).is_err());
    }
}
