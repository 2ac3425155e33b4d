//! A process of the pool.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;

use crate::identity::ProcessIdentity;

/// Limit on the bytes of a notice; the rest is lost.
const NOTICE_MAX: usize = 4096;
/// File name extensions: the number of the process, and the socket of its notices.
const NUMBER_END: &str = "pid";
const SOCKET_END: &str = "sock";

/// A message of a process by `sd_notify(3)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// `READY=1`: it has started.
    Ready,
    /// Another variable, and its value.
    Variable(String, String),
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The exit status of a child.
    Status(ExitStatus),
    /// The process was adopted: its exit status is unknown.
    Unknown,
}

/// A running process that may outlive its owner: by its files, a later owner can
/// [adopt](PooledProcess::adopt) it.
#[derive(Debug)]
pub struct PooledProcess {
    id: u32,
    /// Refers to this process, even if the system reuses its number.
    handle: OwnedFd,
    /// `None` if it was adopted.
    child: Option<Child>,
    /// The socket of its notices.
    socket: UnixDatagram,
    files: Files,
    notices: std::vec::IntoIter<Notice>,
    has_ended: bool,
}

/// The files of a process.
#[derive(Debug)]
struct Files {
    number: PathBuf,
    socket: PathBuf,
}

impl PooledProcess {
    /// Starts a process, in a group of its own: a terminal's Ctrl-C does not reach it. `folder` is
    /// for its files; `name` must be unique there.
    ///
    /// # Errors
    /// If the files cannot be made, or the program cannot be run.
    pub fn start(command: &mut Command, folder: &Path, name: &str) -> std::io::Result<PooledProcess> {
        let files = Files::of(folder, name);
        let socket = files.listen()?;
        let mut child = command.env("NOTIFY_SOCKET", &files.socket).process_group(0).spawn()?;
        let id = child.id();
        let begun = ProcessIdentity::of(id)
            .and_then(|identity| fs::write(&files.number, identity.to_string()))
            .and_then(|()| open(id));
        let handle = begun.inspect_err(|_| {
            // Without its files, no later owner could adopt it.
            let _ = child.kill();
            let _ = child.wait();
        })?;
        Ok(PooledProcess {
            id,
            handle,
            child: Some(child),
            socket,
            files,
            notices: Vec::new().into_iter(),
            has_ended: false,
        })
    }

    /// Takes over a process that an earlier owner has started under this name. Returns `None` if it
    /// does not run. The process must repeat its notices: earlier ones are lost.
    ///
    /// # Errors
    /// If the files cannot be read or made.
    pub fn adopt(folder: &Path, name: &str) -> std::io::Result<Option<PooledProcess>> {
        let files = Files::of(folder, name);
        let text = match fs::read_to_string(&files.number) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let Some(identity) = ProcessIdentity::parse(&text) else { return Ok(None) };
        let Ok(handle) = open(identity.id) else { return Ok(None) };
        // The number may have been reused before the handle was opened.
        if ProcessIdentity::of(identity.id).ok().as_ref() != Some(&identity) {
            return Ok(None);
        }
        let socket = files.listen()?;
        Ok(Some(PooledProcess {
            id: identity.id,
            handle,
            child: None,
            socket,
            files,
            notices: Vec::new().into_iter(),
            has_ended: false,
        }))
    }

    /// Returns the names under which processes were started in a folder, whether they run or not.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn names_in(folder: &Path) -> std::io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == NUMBER_END) {
                names.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.id
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
    pub fn poll_exit(&mut self) -> std::io::Result<Option<ProcessEnd>> {
        if self.has_ended {
            return Ok(None);
        }
        let end = match &mut self.child {
            Some(child) => child.try_wait()?.map(ProcessEnd::Status),
            None => has_ended(&self.handle)?.then_some(ProcessEnd::Unknown),
        };
        self.has_ended = end.is_some();
        Ok(end)
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = pidfd_send_signal(&self.handle, signal);
    }
}

impl Drop for PooledProcess {
    /// Removes the files of a process that has ended. A running process keeps them, for adoption.
    fn drop(&mut self) {
        if self.has_ended {
            let _ = fs::remove_file(&self.files.number);
            let _ = fs::remove_file(&self.files.socket);
        }
    }
}

impl Files {
    fn of(folder: &Path, name: &str) -> Files {
        let file = |end: &str| folder.join(format!("{name}.{end}"));
        Files { number: file(NUMBER_END), socket: file(SOCKET_END) }
    }

    /// Opens the socket, in place of an earlier owner's.
    fn listen(&self) -> std::io::Result<UnixDatagram> {
        match fs::remove_file(&self.socket) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixDatagram::bind(&self.socket)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

fn open(id: u32) -> std::io::Result<OwnedFd> {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| Error::new(ErrorKind::InvalidData, "no number of a process"))?;
    Ok(pidfd_open(id, PidfdFlags::empty())?)
}

/// Returns true once the process of this handle has ended.
fn has_ended(handle: &OwnedFd) -> std::io::Result<bool> {
    let mut ended = [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)];
    Ok(poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
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
    #![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

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

    /// A program that repeats its notices until SIGTERM. `None` if there is no python3.
    fn speaker(folder: &Path) -> Option<PooledProcess> {
        let said = "import os, socket, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
while True:
    try:
        out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        out.sendto(b'READY=1\\nX_WORK=2\\nnothing', os.environ['NOTIFY_SOCKET'])
    except OSError: pass
    time.sleep(0.05)";
        let mut command = Command::new("python3");
        command.args(["-c", said]);
        match PooledProcess::start(&mut command, folder, "one") {
            Err(error) if error.kind() == ErrorKind::NotFound && std::env::var_os("CI").is_none() => {
                println!("SKIPPED: there is no python3");
                None
            }
            process => Some(process.unwrap()),
        }
    }

    fn says_what_it_does(process: &mut PooledProcess) {
        assert_eq!(wait(|| process.poll_notice()), Notice::Ready);
        let work = Notice::Variable("X_WORK".to_owned(), "2".to_owned());
        assert_eq!(process.poll_notice(), Some(work));
    }

    #[test]
    fn process_says_what_it_does_and_ends_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut process) = speaker(folder.path()) else { return };
        says_what_it_does(&mut process);
        assert_eq!(process.poll_exit().unwrap(), None);
        process.terminate();
        match wait(|| process.poll_exit().unwrap()) {
            ProcessEnd::Status(status) => assert_eq!(status.code(), Some(3)),
            ProcessEnd::Unknown => panic!("its parent knows"),
        }
        assert_eq!(process.poll_exit().unwrap(), None, "once");
        drop(process);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn process_outlives_its_owner_and_is_adopted() {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut process) = speaker(folder.path()) else { return };
        says_what_it_does(&mut process);
        let id = process.id();
        let mut child = process.child.take().unwrap();
        drop(process);
        assert_eq!(PooledProcess::names_in(folder.path()).unwrap(), ["one"]);
        assert!(PooledProcess::adopt(folder.path(), "two").unwrap().is_none());
        let mut process = PooledProcess::adopt(folder.path(), "one").unwrap().unwrap();
        assert_eq!(process.id(), id);
        says_what_it_does(&mut process);
        assert_eq!(process.poll_exit().unwrap(), None);
        process.kill();
        assert_eq!(wait(|| process.poll_exit().unwrap()), ProcessEnd::Unknown);
        child.wait().unwrap();
        let number = std::fs::read(folder.path().join("one.pid")).unwrap();
        drop(process);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        // A stale file, and a file of another process with the same number.
        std::fs::write(folder.path().join("one.pid"), number).unwrap();
        assert!(PooledProcess::adopt(folder.path(), "one").unwrap().is_none());
        std::fs::write(folder.path().join("one.pid"), format!("{} 1", std::process::id())).unwrap();
        assert!(PooledProcess::adopt(folder.path(), "one").unwrap().is_none());
    }

    #[test]
    fn program_that_is_missing_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("/nonexistent/program");
        assert!(PooledProcess::start(&mut command, folder.path(), "one").is_err());
    }
}
