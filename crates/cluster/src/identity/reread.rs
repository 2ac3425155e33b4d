//! Files that are read again when they have changed, while a process runs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use telemetry::event;

/// The state of a file by which a change is noticed: its inode, length, and time of change.
type Stamp = Option<(u64, u64, i64, i64)>;

/// The outcome of reading files, again when one has changed or could not be used. That is logged
/// once for each change and reason, and the earlier outcome stays.
pub struct Reread<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, String> + Send + Sync>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    stamps: Vec<Stamp>,
    /// Why the files of now cannot be used; empty if they can.
    fault: String,
}

impl<T> Reread<T> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn new<E: ToString>(
        files: &[&Path],
        read: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Reread<T>, E> {
        let files: Vec<PathBuf> = files.iter().map(|&file| file.to_owned()).collect();
        // A change while they are read is noticed later.
        let stamps = stamps(&files);
        let value = Arc::new(read()?);
        let read = Box::new(move || read().map_err(|error| error.to_string()));
        Ok(Reread { files, read, state: Mutex::new(State { value, stamps, fault: String::new() }) })
    }

    /// Returns the outcome for the files of now.
    pub fn current(&self) -> Arc<T> {
        let now = stamps(&self.files);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_changed = now != state.stamps;
        if !has_changed && state.fault.is_empty() {
            return Arc::clone(&state.value);
        }
        state.stamps = now;
        let shown = self.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        match (self.read)() {
            Ok(value) => {
                (state.value, state.fault) = (Arc::new(value), String::new());
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

    /// Returns the latest outcome, without a look at the files.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

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
        std::fs::write(&path, "333").unwrap();
        assert_eq!(*number.current(), 333);
    }
}
