//! The content of an identity's files.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::credential::{CertificateContent, Credential, CredentialError, is_for};
use super::role_map::RoleMap;
use super::{IdentityError, IdentityFiles};

/// The content of the files.
pub(crate) struct IdentityParts {
    pub client: Arc<ClientConfig>,
    pub server: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<WebPkiServerVerifier>,
    /// The node's own credential.
    pub credential: Credential,
    roles: RoleMap,
    chain: Vec<CertificateDer<'static>>,
    /// Begin and end of the certificate's validity, in seconds since 1970.
    pub valid: (i64, i64),
}

impl IdentityParts {
    /// Reads the files of a node of this name.
    pub fn read(name: &str, files: &IdentityFiles) -> Result<IdentityParts, IdentityError> {
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(wrong(&files.key, "private key"))?;
        let chain = read_certificates(&files.certificate)?;
        let other_name = || IdentityError::OtherName(name.to_owned());
        let own = chain.first().ok_or_else(other_name)?;
        if !is_for(own, name) {
            return Err(other_name());
        }
        let roles = RoleMap::read(&files.roles)?;
        let refused =
            |cause| IdentityError::Credential { file: files.certificate.display().to_string(), cause };
        let credential = roles.credential(own).map_err(refused)?;
        credential.check_node(name, credential.role).map_err(refused)?;
        let authorities = read_certificates(&files.authority)?;
        let revoked = read_revoked(&files.revoked, &authorities)?;
        let valid = validity(own, &authorities);
        let mut roots = RootCertStore::empty();
        for certificate in authorities {
            roots.add(certificate)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .with_crls(revoked.clone())
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .with_crls(revoked)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::clone(&clients))
            .with_single_cert(chain.clone(), key.clone_key())?;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_webpki_verifier(Arc::clone(&servers))
            .with_client_auth_cert(chain.clone(), key)?;
        // A resumed session shows no certificate, which may have expired or been revoked.
        (server.send_tls13_tickets, client.resumption) = (0, Resumption::disabled());
        let (client, server) = (Arc::new(client), Arc::new(server));
        Ok(IdentityParts { client, server, clients, servers, credential, roles, valid, chain })
    }

    /// Checks that other nodes will accept the node's own certificate, apart from revocation.
    /// `before`: its present chain. Neither that chain nor the first one fails for its validity
    /// period, because the clock may be set later.
    pub fn check_own(&self, before: Option<&[CertificateDer<'static>]>) -> Result<(), IdentityError> {
        let Some((own, more)) = self.chain.split_first() else { return Ok(()) };
        let fault = match self.verify((own, more), "", false, UnixTime::now()) {
            Ok(()) => return Ok(()),
            Err(fault) => fault,
        };
        let is_of_time = matches!(
            &fault,
            rustls::Error::InvalidCertificate(
                CertificateError::Expired
                    | CertificateError::ExpiredContext { .. }
                    | CertificateError::NotValidYet
                    | CertificateError::NotValidYetContext { .. }
                    | CertificateError::Revoked
            )
        );
        match is_of_time && before.is_none_or(|before| before == self.chain) {
            true => Ok(()),
            false => Err(IdentityError::Own(fault)),
        }
    }

    /// Returns the node's own certificate chain.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Returns the holder of another node's certificate, which must be of the same cluster.
    pub fn holder(&self, certificate: &CertificateDer<'_>) -> Result<Credential, CredentialError> {
        let holder = self.roles.credential(certificate)?;
        holder.check_cluster(self.credential.cluster.as_deref())?;
        Ok(holder)
    }

    /// Verifies a certificate chain, as in a handshake at this time.
    pub fn verify(
        &self,
        (own, more): (&CertificateDer<'_>, &[CertificateDer<'_>]),
        name: &str,
        is_server: bool,
        time: UnixTime,
    ) -> Result<(), rustls::Error> {
        if !is_server {
            return self.clients.verify_client_cert(own, more, time).map(drop);
        }
        let name = ServerName::try_from(name).map_err(|error| rustls::Error::General(error.to_string()))?;
        self.servers.verify_server_cert(own, more, &name, &[], time).map(drop)
    }
}

/// Returns begin and end of a certificate's validity, in seconds since 1970; the end of its
/// authorities, if that is earlier.
fn validity(own: &CertificateDer<'_>, authorities: &[CertificateDer<'_>]) -> (i64, i64) {
    let (begin, end) = CertificateContent::read(own).map_or((0, 0), |content| content.valid);
    let ends = authorities.iter().filter_map(|authority| CertificateContent::read(authority));
    (begin, ends.map(|authority| authority.valid.1).max().map_or(end, |latest| latest.min(end)))
}

fn wrong(file: &Path, expected: &'static str) -> impl FnOnce(rustls_pki_types::pem::Error) -> IdentityError {
    let file = file.display().to_string();
    move |cause| IdentityError::File { file, cause, expected }
}

/// Reads the certificates of a PEM file.
///
/// # Errors
/// If it cannot be read, or has no certificate.
pub fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read.map_err(wrong(file, "certificate"))? {
        none if none.is_empty() => {
            Err(wrong(file, "certificate")(rustls_pki_types::pem::Error::NoItemsFound))
        }
        some => Ok(some),
    }
}

/// Reads the revocation lists of these authorities from a PEM file; empty if there is no file.
///
/// # Errors
/// If it cannot be read, has no list, or has a list of another authority, which would have no
/// effect.
pub fn read_revoked(
    file: &Path,
    authorities: &[CertificateDer<'_>],
) -> Result<Vec<CertificateRevocationListDer<'static>>, IdentityError> {
    const EXPECTED: &str = "list of revoked certificates";
    if !file.exists() {
        return Ok(Vec::new());
    }
    let read = CertificateRevocationListDer::pem_file_iter(file);
    let lists = read.and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(wrong(file, EXPECTED))?;
    if lists.is_empty() {
        return Err(wrong(file, EXPECTED)(rustls_pki_types::pem::Error::NoItemsFound));
    }
    match lists.iter().all(|list| authorities.iter().any(|authority| is_list_of(list, authority))) {
        true => Ok(lists),
        false => Err(IdentityError::OtherList(file.display().to_string())),
    }
}

/// Returns true if an authority has issued a list, by its name and, if the list has one, its key
/// identifier.
fn is_list_of(list: &[u8], authority: &[u8]) -> bool {
    let (Ok((_, list)), Ok((_, authority))) =
        (CertificateRevocationList::from_der(list), X509Certificate::from_der(authority))
    else {
        return false;
    };
    let of_list = list.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(key) => Some(key.key_identifier.as_ref()?.0),
        _ => None,
    });
    let of_authority =
        authority.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(key) => Some(key.0),
            _ => None,
        });
    let is_key = of_list.zip(of_authority).is_none_or(|(one, other)| one == other);
    list.issuer().as_raw() == authority.subject().as_raw() && is_key
}
