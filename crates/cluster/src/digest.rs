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

/// Returns the seed of graphs that several dispatchers of a cluster share: they must deal flows to
/// each other by the same hashes, whatever policies they have had. Who does not have the
/// authority's certificate cannot know it.
pub fn shared_seed(authority: &[u8]) -> u64 {
    fingerprint(authority)
}

/// Returns a number that other bytes hardly have.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}
