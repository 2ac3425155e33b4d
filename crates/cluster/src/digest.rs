//! The policy digest, with which nodes compare their policies.

use sha2::{Digest, Sha256};

/// Returns the digest of a policy: of the texts of all its files and of the program's version,
/// which determines the formats of flow records.
pub fn policy_digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    for text in texts {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    digest.finalize().into()
}

/// Returns the seed of the graphs of all dispatchers of a cluster. They must assign flows by the
/// same hashes, whatever policies they have had. It is unpredictable without the authority's
/// certificate.
pub fn shared_seed(authority: &[u8]) -> u64 {
    fingerprint(authority)
}

/// Returns a 64-bit fingerprint; collisions are improbable.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}
