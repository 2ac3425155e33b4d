//! Access over TCP: the server's certificate, and the clients that may use the API.
//!
//! Connections are TLS 1.3 (RFC 8446). A client shows a certificate of the authority in the
//! handshake, or a bearer token (RFC 6750) with each request. A certificate of another authority
//! ends the handshake. The role in a certificate decides what its holder may do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::identity::{
    CertifiedRole, CredentialError, IdentityError, Reread, RoleMap, RoleMapError, read_certificates,
    read_revoked,
};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use crate::token::{Token, TokenError, read_token};

/// Files that decide who may use the API over TCP, all in PEM but the token and the roles.
#[derive(Clone, Debug)]
pub struct AccessFiles {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority of clients' certificates.
    pub authority: Option<PathBuf>,
    /// A list of its revoked certificates, if it is there.
    pub revoked: Option<PathBuf>,
    /// Roles of certificates that do not say theirs, if it is there.
    pub roles: Option<PathBuf>,
    /// The token; see [`read_token`].
    pub token: Option<PathBuf>,
}

/// Credentials of a server, and the checks of its clients'. The files are read again when they have
/// changed.
#[derive(Clone)]
pub struct ApiAccess(Arc<Reread<AccessParts>>);

/// The content of the files.
pub(crate) struct AccessParts {
    pub tls: Arc<ServerConfig>,
    pub token: Option<Arc<Token>>,
    /// Checks clients' certificates.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    roles: RoleMap,
    /// The server's cluster, if its certificate says it.
    cluster: Option<String>,
}

/// The requests that a client may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// All.
    Operate,
    /// Requests that change nothing.
    View,
}

/// Why the API cannot be served over TCP.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// There is neither an authority nor a token.
    #[error("nobody could use it: expected an authority of client certificates, or a token")]
    Nobody,
    /// A file cannot be read, or has no key.
    #[error("{file}: {cause}: expected PEM of a {expected}")]
    File {
        /// The file.
        file: String,
        /// The cause.
        cause: pem::Error,
        /// The content that was expected.
        expected: &'static str,
    },
    /// A file of certificates cannot be used.
    #[error(transparent)]
    Certificates(#[from] IdentityError),
    /// The file of roles cannot be used.
    #[error(transparent)]
    Roles(#[from] RoleMapError),
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
    /// If one cannot be read or used, or no client could use the API.
    pub fn read(files: AccessFiles) -> Result<ApiAccess, AccessError> {
        let watched = [Some(&files.certificate), Some(&files.key), files.authority.as_ref()];
        let optional = [files.revoked.as_ref(), files.roles.as_ref(), files.token.as_ref()];
        let watched: Vec<PathBuf> = watched.into_iter().chain(optional).flatten().cloned().collect();
        let watched: Vec<&Path> = watched.iter().map(PathBuf::as_path).collect();
        Ok(ApiAccess(Arc::new(Reread::new(&watched, move || AccessParts::read(&files))?)))
    }

    /// Returns what the files have now.
    pub(crate) fn now(&self) -> Arc<AccessParts> {
        self.0.current()
    }
}

impl AccessParts {
    fn read(files: &AccessFiles) -> Result<AccessParts, AccessError> {
        let AccessFiles { certificate, key, authority, revoked, roles, token } = files;
        if authority.is_none() && token.is_none() {
            return Err(AccessError::Nobody);
        }
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(wrong(key, "private key"))?;
        let roles = roles.as_deref().map(RoleMap::read).transpose()?;
        let roles = roles.unwrap_or_default();
        // A server need not be a node: its certificate may have no role.
        let own = chain.first().and_then(|own| roles.credential(own).ok());
        let cluster = own.and_then(|own| own.cluster);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = match authority {
            // A client without a certificate may have a token; others get a problem.
            Some(authority) => {
                let authorities = certificates(authority)?;
                let revoked = revoked.as_deref().map(|file| read_revoked(file, &authorities)).transpose()?;
                let revoked = revoked.unwrap_or_default();
                let roots = Arc::new(read_authority(authority)?);
                let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .with_crls(revoked)
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status()
                    .allow_unauthenticated();
                Some(clients.build()?)
            }
            None => None,
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(clients.clone().unwrap_or_else(WebPkiClientVerifier::no_client_auth));
        let mut tls = builder.with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let token =
            token.as_deref().map(|token| Ok::<_, TokenError>(Arc::new(Token::of(&read_token(token)?))));
        Ok(AccessParts { tls: Arc::new(tls), token: token.transpose()?, clients, roles, cluster })
    }

    /// Returns what the holder of a certificate may do now, or why nothing. The certificate was
    /// right at the handshake.
    pub fn permission(&self, shown: &[CertificateDer<'_>]) -> Result<Permission, String> {
        let expected = || "expected a certificate of the server's authority".to_owned();
        let (own, more) = shown.split_first().ok_or_else(expected)?;
        let verified = self.clients.as_ref().ok_or_else(expected)?;
        let verified = verified.verify_client_cert(own, more, UnixTime::now());
        verified.map_err(|error| format!("the certificate is refused: {error}"))?;
        self.permission_of(own).map_err(|error| error.to_string())
    }

    fn permission_of(&self, certificate: &CertificateDer<'_>) -> Result<Permission, CredentialError> {
        let holder = self.roles.credential(certificate)?;
        holder.check_cluster(self.cluster.as_deref())?;
        match holder.role {
            CertifiedRole::Operator => Ok(Permission::Operate),
            CertifiedRole::Viewer => Ok(Permission::View),
            role => {
                let name = holder.name.unwrap_or_default();
                Err(CredentialError::Role { name, role, expected: "operator or viewer" })
            }
        }
    }
}

/// Reads certificates from a file in PEM.
///
/// # Errors
/// If it cannot be read, or has none.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    Ok(read_certificates(file)?)
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
