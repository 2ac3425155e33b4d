//! Files that are read again after a change, while a process runs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use telemetry::event;

/// Fingerprint of a file: inode, length, and time of change.
type Stamp = Option<(u64, u64, i64, i64)>;

/// The parsed content of files, read again after a change or a failure. A failure is logged once
/// per change and reason, and the former content stays, even if a file is gone.
pub struct Reread<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, String> + Send + Sync>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    stamps: Vec<Stamp>,
    /// Existence of each file when the content was read.
    were_there: Vec<bool>,
    /// The reason why the present files cannot be used; empty if they can.
    fault: String,
}

impl<T> Reread<T> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn new<E: ToString>(
        files: &[&Path],
        read: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Reread<T>, E> {
        let files: Vec<PathBuf> = files.iter().map(|&file| file.to_owned()).collect();
        // A change during the read is noticed later.
        let stamps = stamps(&files);
        let value = Arc::new(read()?);
        let read = Box::new(move || read().map_err(|error| error.to_string()));
        let (were_there, fault) = (are_there(&stamps), String::new());
        Ok(Reread { files, read, state: Mutex::new(State { value, stamps, were_there, fault }) })
    }

    /// Returns the content of the present files.
    pub fn current(&self) -> Arc<T> {
        let now = stamps(&self.files);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_changed = now != state.stamps;
        if !has_changed && state.fault.is_empty() {
            return Arc::clone(&state.value);
        }
        let is_there = are_there(&now);
        state.stamps = now;
        let shown = self.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        let missing = self.missing(&state.were_there, &is_there);
        match missing.map_or_else(|| (self.read)(), Err) {
            Ok(value) => {
                (state.value, state.fault) = (Arc::new(value), String::new());
                state.were_there = is_there;
                event::certificates_read(&shown);
            }
            Err(fault) => {
                if has_changed || fault != state.fault {
                    event::certificates_unusable(&shown, &fault);
                }
                state.fault = fault;
            }
        }
        Arc::clone(&state.value)
    }

    /// Describes a file that is gone or not regular, if there is one.
    fn missing(&self, were_there: &[bool], are_there: &[bool]) -> Option<String> {
        let mut files = self.files.iter().zip(were_there.iter().zip(are_there));
        files.find_map(|(file, (was_there, is_there))| match is_there {
            true if !file.is_file() => Some(format!("{}: expected a regular file", file.display())),
            false if *was_there => Some(format!("{} is gone", file.display())),
            _ => None,
        })
    }

    /// Returns the latest content, without a check of the files.
    pub fn latest(&self) -> Arc<T> {
        Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner).value)
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let data = std::fs::metadata(file).ok()?;
        Some((data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
    };
    files.iter().map(stamp).collect()
}

fn are_there(stamps: &[Stamp]) -> Vec<bool> {
    stamps.iter().map(Option::is_some).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test fails by panicking.

    use super::*;

    #[test]
    fn a_changed_file_is_read_and_a_bad_one_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        std::fs::write(&path, "1").unwrap();
        let file = path.clone();
        let read = move || {
            let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
            text.parse::<u32>().map_err(|error| error.to_string())
        };
        let number = Reread::new(&[&path], read).unwrap();
        assert_eq!(*number.current(), 1);
        std::fs::write(&path, "22").unwrap();
        assert_eq!(*number.current(), 22);
        std::fs::write(&path, "no number").unwrap();
        assert_eq!(*number.current(), 22);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(*number.current(), 22);
        std::fs::create_dir(&path).unwrap();
        assert_eq!(*number.current(), 22);
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "333").unwrap();
        assert_eq!(*number.current(), 333);
    }

    #[test]
    fn a_file_may_come_and_its_content_stays_when_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let file = path.clone();
        let read = move || Ok::<_, String>(std::fs::read_to_string(&file).unwrap_or_default());
        let list = Reread::new(&[&path], read).unwrap();
        assert_eq!(*list.current(), "");
        std::fs::write(&path, "revoked").unwrap();
        assert_eq!(*list.current(), "revoked");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(*list.current(), "revoked");
    }
}
