//! Files that a policy names. The caller loads them, and says who may use them.

/// Gives the text of a file that a policy names with `file("...")`, or says why it cannot.
pub type Files<'f> = dyn FnMut(&str) -> Result<FileText, String> + 'f;

/// A file that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    /// Its text.
    pub text: String,
    /// Who may use it; `None` if it is no file of the system. Then it can be a secret.
    pub access: Option<FileAccess>,
}

/// Who may use a file of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// Its path, as an operator can use it.
    pub path: String,
    /// Its mode bits, such as `0o640`.
    pub mode: u32,
}

impl FileAccess {
    /// Returns whether its owner alone may read and write it.
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
