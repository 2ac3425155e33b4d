//! Files that a command names: none is both read and written, and none is written twice.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

/// A file, whatever path leads to it.
#[derive(PartialEq)]
enum File {
    /// One that is there.
    There { device: u64, inode: u64 },
    /// One that would be made.
    New(PathBuf),
}

impl File {
    /// None for what may be opened several times: the standard streams, pipes, devices; and for
    /// what cannot be written anyway.
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

/// Refuses to write a file that is read, or is written already: before anything is lost.
pub fn keep_apart<'a>(
    reads: impl IntoIterator<Item = &'a Path>,
    writes: impl IntoIterator<Item = &'a Path>,
) -> anyhow::Result<()> {
    let reads: Vec<_> = reads.into_iter().filter_map(File::at).collect();
    let mut written = Vec::new();
    for path in writes {
        let Some(file) = File::at(path) else { continue };
        if reads.contains(&file) {
            bail!("{} is to be read and written", path.display());
        }
        if written.contains(&file) {
            bail!("{} is to be written twice; without a port, `--write` takes all ports", path.display());
        }
        written.push(file);
    }
    Ok(())
}

/// Creates a file, or empties it, as [`io::files::create`] does; with its name.
pub fn create(path: &Path) -> anyhow::Result<(String, fs::File)> {
    let name = path.display().to_string();
    let file = io::files::create(path).with_context(|| format!("cannot write {name}"))?;
    Ok((name, file))
}

/// Writes a value as JSON, in one go.
pub fn write_json(mut file: fs::File, value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(file.write_all(&text)?)
}
