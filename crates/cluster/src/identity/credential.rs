//! The cluster, role and name that a certificate is for.

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, ServerName};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::role::{CertifiedRole, SCHEME};

/// The content of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateContent {
    /// Names of hosts and nodes.
    pub hosts: Vec<String>,
    /// Its URIs.
    pub uris: Vec<String>,
    /// Its common name.
    pub common_name: Option<String>,
    /// Its organisation: in an authority of `rivulet cluster`, the cluster.
    pub organisation: Option<String>,
    /// Begin and end of its validity, in seconds since 1970.
    pub valid: (i64, i64),
    /// Its serial number.
    pub serial: Vec<u8>,
}

impl CertificateContent {
    /// Parses a certificate; `None` if it is malformed.
    pub fn read(certificate: &[u8]) -> Option<CertificateContent> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let (mut hosts, mut uris) = (Vec::new(), Vec::new());
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(name) => hosts.push((*name).to_owned()),
                GeneralName::URI(uri) => uris.push((*uri).to_owned()),
                GeneralName::IPAddress(bytes) => hosts.extend(ip_of(bytes)),
                _ => {}
            }
        }
        let text = |name: Option<&x509_parser::x509::AttributeTypeAndValue<'_>>| {
            name.and_then(|name| name.as_str().ok()).map(str::to_owned)
        };
        let (common_name, organisation) = (
            text(parsed.subject().iter_common_name().next()),
            text(parsed.subject().iter_organization().next()),
        );
        let valid = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        let serial = parsed.raw_serial().to_vec();
        Some(CertificateContent { hosts, uris, common_name, organisation, valid, serial })
    }
}

/// Returns true if a certificate is for a node or host of this name.
pub(super) fn is_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Ok(name) = ServerName::try_from(name) else { return false };
    let parsed = ParsedCertificate::try_from(certificate);
    parsed.is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

fn ip_of(bytes: &[u8]) -> Option<String> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|bytes| std::net::Ipv4Addr::from(bytes).to_string()),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|bytes| std::net::Ipv6Addr::from(bytes).to_string()),
        _ => None,
    }
}

/// The holder of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Its cluster; `None` for any cluster of the authority.
    pub cluster: Option<String>,
    /// Its role.
    pub role: CertifiedRole,
    /// Its name, if the certificate states it with the role.
    pub name: Option<String>,
}

/// The reason why a certificate is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// It cannot be parsed.
    #[error("the certificate is damaged")]
    Damaged,
    /// It has no role.
    #[error(
        "the certificate of `{0}` has no role; issue it again with `rivulet cluster init FOLDER ROLE:NAME`, or \
         name its subject in the file of roles (docs/cluster.md)"
    )]
    NoRole(String),
    /// It has more than one role.
    #[error("the certificate has several roles; expected one {SCHEME}CLUSTER/ROLE/NAME")]
    Several,
    /// Its role is malformed.
    #[error("the certificate has the role `{0}`; expected {SCHEME}CLUSTER/ROLE/NAME")]
    Malformed(String),
    /// It has another role than expected.
    #[error("the certificate of `{name}` is for the role {role}, and not for {expected}")]
    Role {
        /// The holder.
        name: String,
        /// Its role.
        role: CertifiedRole,
        /// The expected role.
        expected: &'static str,
    },
    /// It is for another name.
    #[error("the certificate is for `{0}`")]
    Name(String),
    /// It is for another cluster.
    #[error("the certificate is for the cluster `{theirs}`, and not for `{own}`")]
    Cluster {
        /// The certificate's cluster.
        theirs: String,
        /// The cluster here.
        own: String,
    },
}

/// Parses a role's URI without its scheme.
pub(super) fn parse_path(path: &str) -> Result<Credential, CredentialError> {
    let malformed = || CredentialError::Malformed(path.chars().take(200).collect());
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let (Some(cluster), Some(role), Some(name), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed());
    };
    let role = role.parse().map_err(|_| malformed())?;
    Ok(Credential { cluster: Some(cluster.to_owned()), role, name: Some(name.to_owned()) })
}

impl Credential {
    /// Checks that it is for the same cluster.
    ///
    /// # Errors
    /// If it is for another cluster.
    pub fn check_cluster(&self, own: Option<&str>) -> Result<(), CredentialError> {
        match (&self.cluster, own) {
            (Some(theirs), Some(own)) if theirs != own => {
                Err(CredentialError::Cluster { theirs: theirs.clone(), own: own.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Checks that it is for a node of this name and role.
    ///
    /// # Errors
    /// If it is for another name or role.
    pub fn check_node(&self, name: &str, role: CertifiedRole) -> Result<(), CredentialError> {
        if let Some(other) = self.name.as_ref().filter(|other| *other != name) {
            return Err(CredentialError::Name(other.clone()));
        }
        match self.role == role {
            true => Ok(()),
            false => {
                let (name, expected) = (name.to_owned(), role.name());
                Err(CredentialError::Role { name, role: self.role, expected })
            }
        }
    }
}
