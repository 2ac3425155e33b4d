//! The folder of a manager's files, which lead its next process to the units.

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::process::geteuid;

/// The file that the manager locks.
const LOCK: &str = "manager.lock";

/// A manager's folder, which is no other manager's.
pub(super) struct PoolFolder {
    path: PathBuf,
    _lock: File,
}

impl PoolFolder {
    /// Opens the folder of a manager: `path`, or by default a folder of this name in the runtime
    /// folder of systemd or of the user.
    pub fn open(path: Option<&Path>, name: &str) -> anyhow::Result<PoolFolder> {
        let path = path.map_or_else(|| usual(name), Path::to_owned);
        let shown = path.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot create {shown}; name another folder"))?;
        // Files of other users there would be taken for units.
        let metadata = path.metadata().with_context(|| format!("cannot use {shown}"))?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            bail!("{shown} can be written by other users; expected a folder of this one alone");
        }
        let lock = path.join(LOCK);
        let lock = File::options().create(true).append(true).open(&lock);
        let lock = lock.with_context(|| format!("cannot open {LOCK} in {shown}"))?;
        match lock.try_lock() {
            Ok(()) => Ok(PoolFolder { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => bail!("another manager runs with {shown}"),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {shown}")),
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the folder of a manager of this name that names none.
fn usual(name: &str) -> PathBuf {
    let of_systemd = std::env::var_os("RUNTIME_DIRECTORY");
    let folder = of_systemd.and_then(|folders| std::env::split_paths(&folders).next());
    folder.unwrap_or_else(control::socket::folder).join(format!("{name}.units"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test fails by panicking.

    use super::*;

    #[test]
    fn folder_has_one_manager() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/units");
        let first = PoolFolder::open(Some(&path), "host").unwrap();
        let error = PoolFolder::open(Some(&path), "host").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("another manager runs"), "{error}");
        drop(first);
        PoolFolder::open(Some(&path), "host").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let error = PoolFolder::open(Some(&path), "host").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("other users"), "{error}");
    }
}
