//! Files that a policy names. The caller loads them and reports their access rights.

/// Loads the file that a policy names with `file("...")`, or returns the reason why it cannot.
pub type Files<'f> = dyn FnMut(&str) -> Result<FileText, String> + 'f;

/// A loaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    /// Its text.
    pub text: String,
    /// Its access rights; `None` if it is not a file of the system. It may then be a secret.
    pub access: Option<FileAccess>,
}

/// The access rights of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// Its path, as an operator can use it.
    pub path: String,
    /// Its mode bits, such as `0o640`.
    pub mode: u32,
}

impl FileAccess {
    /// Checks if only its owner may read and write it.
    pub fn is_private(&self) -> bool {
        const GROUP_AND_OTHERS: u32 = 0o066;
        self.mode & GROUP_AND_OTHERS == 0
    }
}

impl From<String> for FileText {
    fn from(text: String) -> Self {
        Self { text, access: None }
    }
}
