//! Bearer tokens (RFC 6750) in files.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Minimum length of a token, in bytes.
pub const TOKEN_LEN_MIN: usize = 32;
/// Maximum length of a token, in bytes.
pub const TOKEN_LEN_MAX: usize = 1024;

/// The digest of a token. Comparison takes the same time whatever a client shows.
pub(crate) struct Token([u8; 32]);

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{file}: {cause}")]
    Read {
        /// The file.
        file: String,
        /// The cause.
        cause: std::io::Error,
    },
    /// Others than the owner may read or write the file, or it is no regular file.
    #[error("{file}: expected a file that only its owner may use, not mode {mode:o}; run chmod 600")]
    Mode {
        /// The file.
        file: String,
        /// Its type and permissions.
        mode: u32,
    },
    /// The content is no token.
    #[error(
        "{0}: expected one line of {TOKEN_LEN_MIN} to {TOKEN_LEN_MAX} letters, digits and -._~+/=, such as of \
         `openssl rand -hex 32`"
    )]
    Content(String),
}

/// Reads a token from a file of one line, which only its owner may use.
///
/// # Errors
/// If the file cannot be read, others may use it, or its content is no token.
pub fn read_token(path: &Path) -> Result<String, TokenError> {
    let file = || path.display().to_string();
    let wrong = |cause| TokenError::Read { file: file(), cause };
    let opened = File::open(path).map_err(wrong)?;
    let data = opened.metadata().map_err(wrong)?;
    if !data.is_file() || data.mode() & 0o077 != 0 {
        return Err(TokenError::Mode { file: file(), mode: data.mode() });
    }
    let mut text = String::new();
    opened.take(2 * TOKEN_LEN_MAX as u64).read_to_string(&mut text).map_err(wrong)?;
    let token = text.strip_suffix('\n').unwrap_or(&text);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    match (TOKEN_LEN_MIN..=TOKEN_LEN_MAX).contains(&token.len()) && token.bytes().all(is_plain) {
        true => Ok(token.to_owned()),
        false => Err(TokenError::Content(file())),
    }
}

impl Token {
    /// Returns that of a text.
    pub fn of(text: &str) -> Token {
        Token(Sha256::digest(text).into())
    }

    /// Returns whether it is the token of an `Authorization` header.
    pub fn is_in(&self, header: &[u8]) -> bool {
        let Some((scheme, shown)) = header.split_at_checked(b"Bearer ".len()) else { return false };
        let shown: [u8; 32] = Sha256::digest(shown.trim_ascii()).into();
        bool::from(self.0.ct_eq(&shown)) && scheme.eq_ignore_ascii_case(b"Bearer ")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TEXT: &str = "0123456789abcdef0123456789ABCDEF";

    #[test]
    fn only_the_token_itself_is_right() {
        let token = Token::of(TEXT);
        for (header, is_right) in [
            (format!("Bearer {TEXT}"), true),
            (format!("bearer  {TEXT}"), true),
            (format!("Basic {TEXT}"), false),
            (format!("Bearer {}", TEXT.to_lowercase()), false),
            (format!("Bearer {TEXT}0"), false),
            ("Bearer ".to_owned(), false),
            (TEXT.to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(token.is_in(header.as_bytes()), is_right, "{header}");
        }
    }

    #[test]
    fn files_are_the_owners_and_have_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_token(&path)
        };
        assert_eq!(write(&format!("{TEXT}\n"), 0o600).unwrap(), TEXT);
        assert_eq!(write(TEXT, 0o400).unwrap(), TEXT);
        for mode in [0o640, 0o604, 0o620, 0o601] {
            assert!(matches!(write(TEXT, mode), Err(TokenError::Mode { .. })), "{mode:o}");
        }
        for text in
            ["", "short", &TEXT[1..], &format!("{TEXT}\n{TEXT}"), &format!("{TEXT} "), &TEXT.repeat(33)]
        {
            assert!(matches!(write(text, 0o600), Err(TokenError::Content(_))), "{text}");
        }
        assert!(matches!(read_token(folder.path()), Err(TokenError::Mode { .. })));
        assert!(matches!(read_token(&folder.path().join("none")), Err(TokenError::Read { .. })));
    }
}
