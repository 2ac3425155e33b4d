//! The digest by which nodes find out whether they run the same policy.

use sha2::{Digest, Sha256};

/// Returns the digest of a policy: of the texts of all its files, and of the program's version, on
/// which the formats of flow records depend.
pub fn policy_digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    for text in texts {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    digest.finalize().into()
}
