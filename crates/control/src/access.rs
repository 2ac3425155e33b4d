//! Access over TCP: the server's certificate, and the clients that may use the API.
//!
//! Connections are TLS 1.3 (RFC 8446). A client shows a certificate of the authority in the
//! handshake, or a bearer token (RFC 6750) with each request. A certificate of another authority
//! ends the handshake.

use std::path::Path;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::token::{Token, TokenError, read_token};

/// Files that decide who may use the API over TCP, all in PEM but the token.
#[derive(Clone, Copy, Debug)]
pub struct AccessFiles<'a> {
    /// The server's certificate, and those between it and its authority.
    pub certificate: &'a Path,
    /// Its private key.
    pub key: &'a Path,
    /// The authority of clients' certificates.
    pub authority: Option<&'a Path>,
    /// The token; see [`read_token`].
    pub token: Option<&'a Path>,
}

/// Credentials of a server, and those that it asks of its clients.
#[derive(Clone)]
pub struct ApiAccess {
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) token: Option<Arc<Token>>,
}

/// Why the API cannot be served over TCP.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// There is neither an authority nor a token.
    #[error("nobody could use it: expected an authority of client certificates, or a token")]
    Nobody,
    /// A file cannot be read, or has no certificate or key.
    #[error("{file}: {cause}: expected PEM of a {expected}")]
    File {
        /// The file.
        file: String,
        /// The cause.
        cause: pem::Error,
        /// The content that was expected.
        expected: &'static str,
    },
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Certificate and key do not fit together, or are not usable.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// The authority's certificate cannot be used.
    #[error("the authority cannot be used: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
}

impl ApiAccess {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be read or used, or nobody could use the API.
    pub fn read(files: AccessFiles<'_>) -> Result<ApiAccess, AccessError> {
        let AccessFiles { certificate, key, authority, token } = files;
        if authority.is_none() && token.is_none() {
            return Err(AccessError::Nobody);
        }
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(wrong(key, "private key"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = match authority {
            // A client without a certificate may have a token; others get a problem.
            Some(authority) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(read_authority(authority)?), provider)
                    .allow_unauthenticated()
                    .build()?,
            ),
            None => builder.with_no_client_auth(),
        };
        let mut tls = builder.with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let token =
            token.map(|token| Ok::<_, TokenError>(Arc::new(Token::of(&read_token(token)?)))).transpose()?;
        Ok(ApiAccess { tls: Arc::new(tls), token })
    }
}

/// Reads certificates from a file in PEM.
///
/// # Errors
/// If it cannot be read, or has none.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read.map_err(wrong(file, "certificate"))? {
        none if none.is_empty() => Err(wrong(file, "certificate")(pem::Error::NoItemsFound)),
        some => Ok(some),
    }
}

/// Reads the certificates of an authority from a file in PEM.
///
/// # Errors
/// If it cannot be read, or has none.
pub fn read_authority(file: &Path) -> Result<RootCertStore, AccessError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn wrong(file: &Path, expected: &'static str) -> impl FnOnce(pem::Error) -> AccessError {
    let file = file.display().to_string();
    move |cause| AccessError::File { file, cause, expected }
}
