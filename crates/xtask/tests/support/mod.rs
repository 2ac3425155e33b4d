//! The workspace's files.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of files that are not written by hand.
const GENERATED: &[&str] = &[".git", "target", "corpus", "learned", "artifacts", "evaluation"];

/// Returns the workspace's top folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns all files with this extension, by their paths below the root, in order, with their text.
pub fn sources(extension: &str) -> Vec<(PathBuf, String)> {
    let root = root();
    let mut folders = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !GENERATED.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|this| this == extension) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 50, "the search is broken: {} files", found.len());
    found
}
