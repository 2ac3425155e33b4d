//! Locks of nodes: one supervisor per namespace and node.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use runtime::external::LegacyPlan;

use super::SIGNAL_INTERVAL;
use super::remains::Mark;
use crate::signals::Signals;

/// Prefix of the names of lock files. All network namespaces share their folder, unlike abstract
/// sockets.
const PREFIX: &str = "/run/rivulet-node-";
/// Limit on the bytes of a lock file that are read.
const FILE_MAX: u64 = 1_024;

/// A lock of a node. Its file is removed with it. The file has the mark of its holder, so that the
/// next holder finds the remains of a killed one.
pub(super) struct NodeLock {
    path: String,
    file: File,
}

impl NodeLock {
    /// Locks the node for this process. Waits: after `rivulet up` was killed, its supervisor may
    /// still be ending the program.
    pub fn take(plan: &LegacyPlan, signals: &Signals) -> anyhow::Result<NodeLock> {
        let path = format!("{PREFIX}{}-{}", plan.netns, plan.name);
        let patience = Duration::from_nanos(plan.stop_timeout_ns) + Duration::from_secs(5);
        let until = Instant::now() + patience;
        loop {
            let file = File::options().create(true).read(true).append(true).open(&path);
            let file = file.with_context(|| format!("cannot open {path}"))?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => return Ok(NodeLock { path, file }),
                // Its holder has removed it in the meantime.
                Ok(()) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {path}"));
                }
                Err(TryLockError::WouldBlock) if Instant::now() >= until || signals.stop().is_some() => {
                    bail!("another Rivulet runs a node of this name in the namespace {}", plan.netns);
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(SIGNAL_INTERVAL),
            }
        }
    }
}

impl NodeLock {
    /// Returns the mark of the holder before this one, if it was killed.
    pub fn former(&mut self) -> Option<Mark> {
        let mut text = String::new();
        self.file.rewind().ok()?;
        (&self.file).take(FILE_MAX).read_to_string(&mut text).ok()?;
        Mark::parse(&text)
    }

    /// Notes the mark of this holder.
    pub fn note(&mut self, mark: &Mark) -> anyhow::Result<()> {
        let written = self.file.set_len(0).and_then(|()| writeln!(self.file, "{}", mark.as_str()));
        written.with_context(|| format!("cannot write {}", self.path))
    }
}

impl Drop for NodeLock {
    /// Removes the file while it is locked, so that it is still this lock's.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns true if this is still the file of this name.
fn is_at(file: &File, path: &str) -> bool {
    let (Ok(own), Ok(found)) = (file.metadata(), fs::metadata(path)) else { return false };
    (own.dev(), own.ino()) == (found.dev(), found.ino())
}
