//! Identities: a node has a certificate of the cluster's authority. In a handshake two nodes show
//! theirs and agree on the keys of a link (TLS 1.3, RFC 8446).
//!
//! A handshake uses TCP, as does one [`Hello`](crate::wire::Hello) from each end. Then the
//! connection ends: keys exported from it (RFC 5705) protect the datagrams of the link. Handshakes
//! run on threads of their own; packets never wait for one.

mod authority;
mod credential;
mod handshake;
mod issued;
mod key_log;
mod listener;
mod parts;
mod peer;
mod renewal;
mod reread;
mod role;
mod role_map;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls_pki_types::CertificateDer;

pub use authority::{
    AUTHORITY_DAYS, Authority, AuthorityError, CERTIFICATE_DAYS, CERTIFICATE_DAYS_MAX, DEFAULT_CLUSTER,
    IssuedIdentity, read_certificate,
};
pub use credential::{CertificateContent, Credential, CredentialError};
pub use handshake::{HANDSHAKE_TIMEOUT, HELLO_LEN_MAX, HandshakeError, LinkSecrets, Session, connect};
pub use key_log::{KEY_LOG_VARIABLE, KeyLog};
pub use listener::{HANDSHAKES_MAX, Listener, ListenerCounters};
use parts::IdentityParts;
pub use parts::{read_certificates, read_revoked};
pub use peer::PeerCertificate;
pub use renewal::{Holder, REVOKED_FILE, holders, is_authority_due};
pub use reread::Reread;
pub use role::{CertifiedRole, NAME_LEN_MAX, SCHEME, Subject, check_name};
pub use role_map::{ROLES_LEN_MAX, RoleMap, RoleMapError};

/// File name of the role map in a folder of certificates.
pub const ROLES_FILE: &str = "roles.toml";

/// Files of a node's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// Its certificate chain, up to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificate of the cluster's authority.
    pub authority: PathBuf,
    /// Revoked certificates; optional.
    pub revoked: PathBuf,
    /// Roles of certificates that state none; optional.
    pub roles: PathBuf,
}

impl IdentityFiles {
    /// Returns the files of a node in a folder, as `rivulet cluster` writes them.
    pub fn in_folder(folder: &Path, name: &str) -> IdentityFiles {
        IdentityFiles {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
            authority: folder.join(authority::CERTIFICATE_FILE),
            revoked: folder.join(REVOKED_FILE),
            roles: folder.join(ROLES_FILE),
        }
    }

    /// Returns all files; the certificate is the first.
    pub fn all(&self) -> [&Path; 5] {
        [&self.certificate, &self.key, &self.authority, &self.revoked, &self.roles]
    }
}

/// A node's name, certificate and key, and the authority that it trusts. Changed files are read
/// again.
#[derive(Clone)]
pub struct Identity {
    shared: Arc<Shared>,
    key_log: Option<Arc<KeyLog>>,
}

/// The part shared by copies of an identity.
struct Shared {
    name: String,
    files: Reread<IdentityParts>,
    /// Certificates of the other ends of links.
    links: Mutex<Vec<Weak<PeerCertificate>>>,
}

/// The reason why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read, or has no certificate or key.
    #[error("{file}: {cause}: expected PEM of a {expected}")]
    File {
        /// The file.
        file: String,
        /// The cause.
        cause: rustls_pki_types::pem::Error,
        /// The expected content.
        expected: &'static str,
    },
    /// Certificate and key do not match, or are unusable.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// The authority's certificate cannot be used.
    #[error("the authority cannot be used: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
    /// Other nodes would refuse the certificate.
    #[error("other nodes would refuse the certificate: {0}")]
    Own(rustls::Error),
    /// A revocation list is of another authority.
    #[error("{0}: expected lists of revoked certificates of the authority, and found another one's")]
    OtherList(String),
    /// The certificate is not this node's.
    #[error("the certificate is not for a node `{0}`")]
    OtherName(String),
    /// The certificate has no role, or a wrong one.
    #[error("{file}: {cause}")]
    Credential {
        /// The file.
        file: String,
        /// The reason.
        cause: CredentialError,
    },
    /// The file of roles cannot be used.
    #[error(transparent)]
    Roles(#[from] RoleMapError),
}

impl Identity {
    /// Reads an identity: a chain of certificates, the key, and the authority's certificate.
    ///
    /// # Errors
    /// If a file cannot be read, they do not fit together, or the certificate is for another name.
    pub fn read(name: &str, files: &IdentityFiles) -> Result<Identity, IdentityError> {
        let (own, from) = (name.to_owned(), files.clone());
        let before = Mutex::new(None::<Vec<CertificateDer<'static>>>);
        let read = move || {
            let parts = IdentityParts::read(&own, &from)?;
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            parts.check_own(before.as_deref())?;
            *before = Some(parts.chain().to_vec());
            Ok::<_, IdentityError>(parts)
        };
        let read = Reread::new(&files.all(), read)?;
        let shared = Shared { name: name.to_owned(), files: read, links: Mutex::default() };
        Ok(Identity { shared: Arc::new(shared), key_log: None })
    }

    /// Checks that the certificate is for this role.
    ///
    /// # Errors
    /// If it is for another role.
    pub fn check_role(&self, role: CertifiedRole) -> Result<(), CredentialError> {
        self.now().credential.check_node(self.name(), role)
    }

    /// Writes the secrets of all links to this file, for debugging.
    #[must_use]
    pub fn with_key_log(self, key_log: KeyLog) -> Identity {
        Identity { key_log: Some(Arc::new(key_log)), ..self }
    }

    /// Returns the file that receives the secrets of links, if any.
    pub fn key_log(&self) -> Option<&Path> {
        self.key_log.as_deref().map(KeyLog::path)
    }

    /// Returns the node's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns begin and end of the certificate's validity, in seconds since 1970, as last read;
    /// the end of its authority, if that is earlier.
    pub fn valid(&self) -> (i64, i64) {
        self.shared.files.latest().valid
    }

    /// Checks the files each second, on a thread, while the identity is in use. Marks links to
    /// nodes that would be refused now, and warns operators before the certificate expires.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn watch(&self) -> std::io::Result<()> {
        watch::start(&self.shared)
    }

    /// Returns the present content of the files.
    fn now(&self) -> Arc<IdentityParts> {
        self.shared.files.current()
    }

    /// Remembers the other end of a link, which was accepted with these files.
    fn remember(&self, peer: &Arc<PeerCertificate>, files: &Arc<IdentityParts>) {
        let mut links = self.shared.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(peer));
        let latest = self.shared.files.latest();
        if !Arc::ptr_eq(&latest, files) {
            peer.check(&latest);
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<PeerCertificate>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the other ends of links against changed files.
    fn check_links(&self, parts: &IdentityParts) {
        let links: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        links.iter().for_each(|peer| peer.check(parts));
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("name", &self.name()).finish_non_exhaustive()
    }
}
