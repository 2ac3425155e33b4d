//! Text files that a command or a policy names: bounded, of whatever encoding, and from where they
//! may be.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, bail};
use policy::{FileAccess, FileText, SOURCE_BYTES_MAX, decode_text};

/// Folders, besides the policy's own, that `file("...")` of a policy may read from.
static INCLUDED: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Allows policies to read from these folders, too. Only the first call counts.
pub fn include(folders: Vec<PathBuf>) {
    let _ = INCLUDED.set(folders);
}

/// Reads a text file that the operator named, as UTF-8; `-` is standard input. A pipe will do, a
/// device will not.
pub fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        return bounded(std::io::stdin().lock()).context("cannot read standard input");
    }
    let read = || {
        let kind = fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_fifo() {
            bail!("it is neither a file nor a pipe");
        }
        bounded(File::open(path)?)
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}

/// Reads a file that a policy in `folder` names: a regular file in that folder, or in one that was
/// included.
pub fn read_named(folder: &Path, name: &str) -> anyhow::Result<FileText> {
    // Nothing blocks, as a pipe without a writer would, until it is known what it is.
    const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let path = folder.join(name).canonicalize()?;
    let own = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let included = INCLUDED.get().map_or(&[][..], Vec::as_slice);
    let folders = std::iter::once(own).chain(included.iter().map(PathBuf::as_path));
    if !folders.filter_map(|folder| folder.canonicalize().ok()).any(|folder| path.starts_with(folder)) {
        bail!("it is outside of the policy's folder; `--include DIR` allows another one");
    }
    let file = fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        bail!("it is not a regular file");
    }
    let access = FileAccess { path: path.display().to_string(), mode: found.permissions().mode() & 0o7777 };
    Ok(FileText { text: bounded(file)?, access: Some(access) })
}

fn bounded(source: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    source.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > SOURCE_BYTES_MAX {
        bail!("it has more than {SOURCE_BYTES_MAX} bytes");
    }
    Ok(decode_text(&bytes))
}
