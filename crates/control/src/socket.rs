//! The Unix socket of a server: its path, and who may use it.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::umask;

/// The end of a socket's file name.
pub const EXTENSION: &str = "sock";

/// The folder of the system's sockets.
const SYSTEM_FOLDER: &str = "/run/rivulet";

/// Returns the folder of sockets: that of the system for root, otherwise the user's.
pub fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root()) {
        Some(folder) => Path::new(&folder).join("rivulet"),
        None => PathBuf::from(SYSTEM_FOLDER),
    }
}

/// Returns the path of a server's socket. Characters that no file name should have become `-`.
pub fn path_of(name: &str) -> PathBuf {
    let safe = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let name: String = name.chars().map(|letter| if safe(letter) { letter } else { '-' }).collect();
    folder().join(format!("{}.{EXTENSION}", name.trim_start_matches('.')))
}

/// Returns the sockets in the [`folder`] on which a server listens, in order.
pub fn all() -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(folder()) else { return Vec::new() };
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == EXTENSION);
    let paths = files.filter_map(|file| file.ok().map(|file| file.path())).filter(is_socket);
    let mut paths: Vec<PathBuf> = paths.filter(|path| UnixStream::connect(path).is_ok()).collect();
    paths.sort();
    paths
}

/// Creates a socket that only this user may use, and its folder. A socket on which no server
/// listens any more is replaced.
///
/// # Errors
/// If a server listens on it, the path is another file, or it cannot be created.
pub fn bind(path: &Path) -> Result<UnixListener> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    remove_stale(path)?;
    // The file must not be open to others for a moment. No other thread creates files now.
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    listener
}

/// Removes a socket on which no server listens.
fn remove_stale(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(data) if !data.file_type().is_socket() => {
            return Err(Error::new(ErrorKind::AlreadyExists, "the file is no socket"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(Error::new(ErrorKind::AddrInUse, "another process listens on it")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_user_may_use_it_and_stale_ones_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/test.sock");
        let listener = bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        assert!(path.exists());
        bind(&path).unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(bind(&file).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
    }

    #[test]
    fn names_make_one_file_name() {
        for (name, expected) in
            [("dispatcher", "dispatcher.sock"), ("a/../b c", "a-..-b-c.sock"), ("..", ".sock")]
        {
            assert_eq!(path_of(name), folder().join(expected));
        }
    }
}
