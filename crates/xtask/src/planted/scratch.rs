//! The copy of the workspace for planted bugs: `target/planted`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the workspace's files, and a folder for what is built from it.
pub struct Scratch {
    root: PathBuf,
    /// The copy.
    pub tree: PathBuf,
    /// Cargo's target folder.
    pub build: PathBuf,
}

impl Scratch {
    /// Makes the copy, or brings it up to date: files that are the same keep their time, so that
    /// little is built again.
    ///
    /// # Errors
    /// If git does not list the files, or one cannot be copied.
    pub fn of(root: &Path) -> io::Result<Scratch> {
        let root = root.canonicalize()?;
        let planted = root.join("target/planted");
        let scratch = Scratch { tree: planted.join("tree"), build: planted.join("build"), root };
        scratch.restore()?;
        Ok(scratch)
    }

    /// Makes the copy the same as the workspace again.
    ///
    /// # Errors
    /// As for [`of`](Scratch::of).
    pub fn restore(&self) -> io::Result<()> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .output()?;
        let listed = String::from_utf8(listed.stdout).map_err(io::Error::other)?;
        let files: BTreeSet<PathBuf> = listed
            .split_terminator('\0')
            .map(PathBuf::from)
            .filter(|file| self.root.join(file).is_file())
            .collect();
        if files.is_empty() {
            return Err(io::Error::other("git lists no files: is this a checkout?"));
        }
        for file in &files {
            let (from, to) = (self.root.join(file), self.tree.join(file));
            let text = fs::read(&from)?;
            if fs::read(&to).is_ok_and(|copy| copy == text) {
                continue;
            }
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            fs::write(&to, text)?;
        }
        remove_others(&self.tree, &self.tree, &files)
    }

    /// Saves a failure, for readers.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, name: &str, text: &str) -> io::Result<()> {
        let folder = self.root.join("target/planted/failures");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), text)
    }

    /// Plants a bug.
    ///
    /// # Errors
    /// If the patch does not apply.
    pub fn plant(&self, patch: &Path) -> io::Result<()> {
        apply(&self.tree, patch, &[])
    }
}

/// Applies a patch to the files below a folder, whatever repository it is in.
///
/// # Errors
/// If it does not apply.
pub fn apply(folder: &Path, patch: &Path, options: &[&str]) -> io::Result<()> {
    let (folder, patch) = (folder.canonicalize()?, patch.canonicalize()?);
    let applied = Command::new("git")
        .arg("apply")
        .args(options)
        .arg(&patch)
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(&folder))
        .env("GIT_DIR", folder.join("no-repository"))
        .current_dir(&folder)
        .output()?;
    match applied.status.success() {
        true => Ok(()),
        false => {
            let name = patch.display();
            Err(io::Error::other(format!("{name}: {}", String::from_utf8_lossy(&applied.stderr))))
        }
    }
}

/// Removes files of a copy that the workspace does not have any more.
fn remove_others(tree: &Path, folder: &Path, files: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_known = path.strip_prefix(tree).is_ok_and(|name| files.contains(name));
        match path.is_dir() && !path.is_symlink() {
            true => remove_others(tree, &path, files)?,
            false if !is_known => fs::remove_file(&path)?,
            false => {}
        }
    }
    Ok(())
}
