//! Text files named by a command or a policy: bounded, in any encoding, and from permitted folders.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, bail};
use policy::{FileAccess, FileText, SOURCE_BYTES_MAX, decode_text};

/// Folders, besides the policy's own, that `file("...")` in a policy may read from.
static INCLUDED: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Permits policies to read from these folders, too. Only the first call has an effect.
pub fn include(folders: Vec<PathBuf>) {
    let _ = INCLUDED.set(folders);
}

/// Reads a text file named by the operator, as UTF-8; `-` is standard input. Pipes are permitted,
/// devices are not.
pub fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        return bounded(std::io::stdin().lock()).context("cannot read standard input");
    }
    let read = || {
        let kind = fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_fifo() {
            bail!("neither a file nor a pipe");
        }
        bounded(File::open(path)?)
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}

/// Reads a file named by a policy in `folder`: a regular file there, or in an included folder.
pub fn read_named(folder: &Path, name: &str) -> anyhow::Result<FileText> {
    // Opening a pipe without a writer must not block before its kind is known.
    const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let path = folder.join(name).canonicalize()?;
    let own = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let included = INCLUDED.get().map_or(&[][..], Vec::as_slice);
    let folders = std::iter::once(own).chain(included.iter().map(PathBuf::as_path));
    if !folders.filter_map(|folder| folder.canonicalize().ok()).any(|folder| path.starts_with(folder)) {
        bail!("outside of the policy's folder; permit another one with `--include DIR`");
    }
    let file = fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        bail!("not a regular file");
    }
    let access = FileAccess { path: path.display().to_string(), mode: found.permissions().mode() & 0o7777 };
    Ok(FileText { text: bounded(file)?, access: Some(access) })
}

fn bounded(source: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    source.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > SOURCE_BYTES_MAX {
        bail!("longer than {SOURCE_BYTES_MAX} bytes");
    }
    Ok(decode_text(&bytes))
}
