//! The file of a planted bug: three lines about it, and the difference that plants it.
//!
//! ```text
//! Bug: The epoch stays the same when the owner changes
//! Rule: design.md 3.1
//! Found by: cluster, protocol
//!
//! diff --git a/crates/... b/crates/...
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::suite::Suite;

/// A planted bug.
pub struct PlantedBug {
    /// The name of its file, without extension.
    pub name: String,
    /// The patch.
    pub path: PathBuf,
    /// One sentence.
    pub title: String,
    /// The rule that it breaks.
    pub rule: String,
    /// Suites that find it.
    pub found_by: Vec<Suite>,
}

impl PlantedBug {
    /// Reads the head of a patch.
    ///
    /// # Errors
    /// If the file cannot be read, or a line of its head is missing or wrong.
    pub fn read(path: &Path) -> io::Result<PlantedBug> {
        let text = fs::read_to_string(path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let field = |key: &str| {
            let mut lines = text.lines().take_while(|line| !line.starts_with("diff "));
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            value.map(str::to_owned).ok_or_else(|| io::Error::other(format!("{name}: no line `{key}: `")))
        };
        let found_by = field("Found by")?.split(", ").map(Suite::of_name).collect::<Option<Vec<_>>>();
        let found_by = found_by.ok_or_else(|| io::Error::other(format!("{name}: unknown suite")))?;
        let (title, rule) = (field("Bug")?, field("Rule")?);
        Ok(PlantedBug { name, path: path.to_owned(), title, rule, found_by })
    }
}
