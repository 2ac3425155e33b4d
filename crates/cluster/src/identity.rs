//! Identities: a node has a certificate of the cluster's authority. In a handshake two nodes
//! show theirs to each other and agree on the keys of a link (TLS 1.3, RFC 8446).
//!
//! The handshake goes over TCP, and so does one [`Hello`](crate::wire::Hello) from each end. Then
//! the connection ends: keys exported from it (RFC 5705) protect the datagrams of the link.
//! Handshakes are made on threads of their own; packets never wait for one.

mod authority;
mod handshake;
mod key_log;
mod listener;

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

pub use authority::{Authority, AuthorityError, IssuedIdentity};
pub use handshake::{HANDSHAKE_TIMEOUT, HELLO_LEN_MAX, HandshakeError, LinkSecrets, Session, connect};
pub use key_log::{KEY_LOG_VARIABLE, KeyLog};
pub use listener::{HANDSHAKES_MAX, Listener, ListenerCounters};

/// A node's name, certificate and key, and the authority that it trusts.
#[derive(Clone, Debug)]
pub struct Identity {
    name: String,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    key_log: Option<Arc<KeyLog>>,
}

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read, or has no certificate or key.
    #[error("{file}: {cause}: expected PEM of a {expected}")]
    File {
        /// The file.
        file: String,
        /// The cause.
        cause: rustls_pki_types::pem::Error,
        /// The content that was expected.
        expected: &'static str,
    },
    /// Certificate and key do not fit together, or are not usable.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// The authority's certificate cannot be used.
    #[error("the authority cannot be used: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
    /// The certificate is not this node's.
    #[error("the certificate is not for a node `{0}`")]
    OtherName(String),
}

impl Identity {
    /// Reads an identity: a chain of certificates, the key, and the authority's certificate.
    ///
    /// # Errors
    /// If a file cannot be read, or they do not fit together.
    pub fn read(name: &str, chain: &Path, key: &Path, authority: &Path) -> Result<Identity, IdentityError> {
        let wrong = |file: &Path, expected| {
            let file = file.display().to_string();
            move |cause| IdentityError::File { file, cause, expected }
        };
        let certificates = |file: &Path| {
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let read = read.map_err(wrong(file, "certificate"))?;
            match read.is_empty() {
                true => Err(wrong(file, "certificate")(rustls_pki_types::pem::Error::NoItemsFound)),
                false => Ok(read),
            }
        };
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(wrong(key, "private key"))?;
        Identity::new(name, certificates(chain)?, key_der, certificates(authority)?)
    }

    /// Creates an identity.
    ///
    /// # Errors
    /// If certificate, key and authority do not fit together.
    pub fn new(
        name: &str,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authority: Vec<CertificateDer<'static>>,
    ) -> Result<Identity, IdentityError> {
        let own = chain.first().cloned().ok_or_else(|| IdentityError::OtherName(name.to_owned()))?;
        handshake::check_name(&own, name).map_err(|_| IdentityError::OtherName(name.to_owned()))?;
        let mut roots = RootCertStore::empty();
        for certificate in authority {
            roots.add(certificate)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build()?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(chain, key)?;
        let (client, server) = (Arc::new(client), Arc::new(server));
        Ok(Identity { name: name.to_owned(), client, server, key_log: None })
    }

    /// Writes the secrets of all links to this file, for debugging.
    #[must_use]
    pub fn with_key_log(self, key_log: KeyLog) -> Identity {
        Identity { key_log: Some(Arc::new(key_log)), ..self }
    }

    /// Returns the file to which the secrets of links are written, if any.
    pub fn key_log(&self) -> Option<&Path> {
        self.key_log.as_deref().map(KeyLog::path)
    }

    /// Returns the node's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}
