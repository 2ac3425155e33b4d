//! Output files: readable by their owner and group alone, and never opened through a symbolic link.
//!
//! Anyone who may write to a folder may put a link there. A process with more rights would then
//! truncate, or append to, the link's target. So every output is opened by these functions.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use thiserror::Error;

/// Mode of a new file, before the process's umask. An existing file keeps its own.
pub const OUTPUT_MODE: u32 = 0o640;

/// Folders with links to the process's own open files, by number.
const OWN_DESCRIPTORS: [&str; 2] = ["/dev/fd", "/proc/self/fd"];

/// A path that is not opened because it is a symbolic link. The message omits the path, which
/// callers add.
#[derive(Debug, Error)]
#[error("it is a symbolic link{}; outputs do not follow links, so name the file itself", to(.target))]
pub struct IsLink {
    /// The link's target, if it can be read.
    pub target: Option<PathBuf>,
}

fn to(target: &Option<PathBuf>) -> String {
    target.as_ref().map_or_else(String::new, |target| format!(" to {}", target.display()))
}

/// Creates or truncates a file. Pipes and devices work, too.
///
/// # Errors
/// Those of the system; [`IsLink`], within an error of kind [`io::ErrorKind::InvalidInput`].
pub fn create(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().write(true).truncate(true))
}

/// Creates a file, or opens the existing one, to append to it.
///
/// # Errors
/// Those of [`create`].
pub fn append(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().append(true))
}

/// Writes a whole file, which is created or truncated.
///
/// # Errors
/// Those of [`create`], and of writing.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    create(path)?.write_all(contents.as_ref())
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.create(true).mode(OUTPUT_MODE);
    if !is_own_descriptor(path) {
        // The flags of Linux fit.
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    }
    options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        // A loop of links among the path's folders has the same error number.
        Some(Errno::LOOP) if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) => {
            io::Error::new(io::ErrorKind::InvalidInput, IsLink { target: fs::read_link(path).ok() })
        }
        _ => error,
    })
}

/// Returns whether the path names one of the process's own open files. Such a path is a link by
/// nature, and no other user can place it. `>(command)` of a shell is one, too.
fn is_own_descriptor(path: &Path) -> bool {
    let is_number = |name: &OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    ["/dev/stdout", "/dev/stderr"].iter().any(|name| path == Path::new(name))
        || path.parent().is_some_and(|folder| OWN_DESCRIPTORS.iter().any(|own| folder == Path::new(own)))
            && path.file_name().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_created_for_owner_and_group() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, c) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
        create(&a).unwrap().write_all(b"old").unwrap();
        append(&b).unwrap();
        write(&c, "new").unwrap();
        assert_eq!([&a, &b, &c].map(|path| mode(path) & 0o027), [0; 3]);
        append(&a).unwrap().write_all(b" and new").unwrap();
        assert_eq!(fs::read_to_string(&a).unwrap(), "old and new");
        write(&a, "x").unwrap();
        assert_eq!(fs::read_to_string(&a).unwrap(), "x");
        fs::set_permissions(&a, fs::Permissions::from_mode(0o604)).unwrap();
        create(&a).unwrap();
        assert_eq!(mode(&a), 0o604, "a file that exists keeps its mode");
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, dangling) = (dir.path().join("f"), dir.path().join("l"), dir.path().join("d"));
        fs::write(&file, "precious").unwrap();
        symlink(&file, &link).unwrap();
        symlink(dir.path().join("new"), &dangling).unwrap();
        for path in [&link, &dangling] {
            for error in [create(path).unwrap_err(), append(path).unwrap_err(), write(path, "").unwrap_err()]
            {
                let text = error.to_string();
                assert!(text.starts_with("it is a symbolic link to /"), "{text}");
            }
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        assert!(!dir.path().join("new").exists());
        // Folders may be reached by links.
        let folder = dir.path().join("folder");
        symlink(dir.path(), &folder).unwrap();
        write(&folder.join("f"), "rewritten").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "rewritten");
        // A loop among the folders is the system's error.
        symlink(dir.path().join("loop"), dir.path().join("loop")).unwrap();
        let text = create(&dir.path().join("loop/f")).unwrap_err().to_string();
        assert!(!text.contains("outputs do not"), "{text}");
    }

    #[test]
    fn own_descriptors_and_devices_are_opened() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for folder in OWN_DESCRIPTORS {
            let path = PathBuf::from(format!("{folder}/{}", file.as_file().as_raw_fd()));
            write(&path, folder).unwrap();
            assert_eq!(fs::read_to_string(file.path()).unwrap(), folder);
        }
        append(Path::new("/dev/null")).unwrap().write_all(b"x").unwrap();
        for name in ["/dev/stdout", "/dev/stderr"] {
            assert!(is_own_descriptor(Path::new(name)));
        }
        for name in ["/dev/fd/x", "/dev/fd/1/2", "dev/fd/1", "/proc/1/fd/1", "/tmp/stdout"] {
            assert!(!is_own_descriptor(Path::new(name)), "{name}");
        }
    }
}
