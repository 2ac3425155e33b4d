//! Files named by a command: none is both read and written, or written twice.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

/// The identity of a file, independent of its path.
#[derive(PartialEq)]
enum File {
    /// An existing file.
    There { device: u64, inode: u64 },
    /// A file that would be created.
    New(PathBuf),
}

impl File {
    /// Returns `None` for files that may be opened several times (standard streams, pipes, devices)
    /// and for files that cannot be written.
    fn at(path: &Path) -> Option<File> {
        if path == Path::new("-") {
            return None;
        }
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Some(File::There { device: found.dev(), inode: found.ino() }),
            Ok(_) => None,
            Err(_) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
                Some(File::New(folder.join(path.file_name()?)))
            }
        }
    }
}

/// Refuses to write a file that is also read, or is written twice, before any is opened.
pub fn keep_apart<'a>(
    reads: impl IntoIterator<Item = &'a Path>,
    writes: impl IntoIterator<Item = &'a Path>,
) -> anyhow::Result<()> {
    let reads: Vec<_> = reads.into_iter().filter_map(File::at).collect();
    let mut written = Vec::new();
    for path in writes {
        let Some(file) = File::at(path) else { continue };
        if reads.contains(&file) {
            bail!("{} would be both read and written; name another file", path.display());
        }
        if written.contains(&file) {
            bail!("{} would be written twice; `--write` without a port writes all ports", path.display());
        }
        written.push(file);
    }
    Ok(())
}

/// Creates or truncates a file as [`io::files::create`] does. Returns its name, too.
pub fn create(path: &Path) -> anyhow::Result<(String, fs::File)> {
    let name = path.display().to_string();
    let file = io::files::create(path).with_context(|| format!("cannot write {name}"))?;
    Ok((name, file))
}

/// Writes a value as JSON.
pub fn write_json(mut file: fs::File, value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(file.write_all(&text)?)
}
