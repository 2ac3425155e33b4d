//! An authority that issues certificates to the nodes of a cluster.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::ServerName;

/// The authority of a cluster: who has its key can let nodes in.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate that was issued, and its key, in PEM.
pub struct IssuedIdentity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// A certificate or key cannot be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The name cannot be that of a node.
    #[error("`{0}` is not a valid name of a node: expected letters, digits, hyphens and dots")]
    Name(String),
    /// A certificate or key cannot be made or understood.
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    /// A file cannot be read or written.
    #[error("{file}: {cause}")]
    File {
        /// The file.
        file: String,
        /// The cause.
        cause: std::io::Error,
    },
}

/// Names of the authority's files in a folder.
const CERTIFICATE_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca.key";

impl Authority {
    /// Creates an authority with a new key.
    ///
    /// # Errors
    /// If there is no source of random numbers.
    pub fn new() -> Result<Authority, AuthorityError> {
        let params = params()?;
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: Issuer::new(params, key), certificate })
    }

    /// Reads the authority of a folder; creates it, and the folder, if there is none.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn open(folder: &Path) -> Result<Authority, AuthorityError> {
        let (certificate, key) = (folder.join(CERTIFICATE_FILE), folder.join(KEY_FILE));
        if !key.exists() {
            fs::create_dir_all(folder).map_err(wrong(folder))?;
            let authority = Authority::new()?;
            write_secret(&key, &authority.issuer.key().serialize_pem())?;
            fs::write(&certificate, &authority.certificate).map_err(wrong(&certificate))?;
            return Ok(authority);
        }
        let read = |file: &Path| fs::read_to_string(file).map_err(wrong(file));
        let (pem, key) = (read(&certificate)?, KeyPair::from_pem(&read(&key)?)?);
        Ok(Authority { issuer: Issuer::new(params()?, key), certificate: pem })
    }

    /// Returns the authority's certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a node.
    ///
    /// # Errors
    /// If the name is none: letters, digits, hyphens and dots.
    pub fn issue(&self, name: &str) -> Result<IssuedIdentity, AuthorityError> {
        self.issue_with_hosts(name, &[])
    }

    /// Issues a certificate for a node that clients also reach by these names of hosts or IP
    /// addresses.
    ///
    /// # Errors
    /// If a name is none.
    pub fn issue_with_hosts(&self, name: &str, hosts: &[&str]) -> Result<IssuedIdentity, AuthorityError> {
        let names: Vec<String> = std::iter::once(&name).chain(hosts).map(|&name| name.to_owned()).collect();
        if let Some(wrong) = names.iter().find(|name| ServerName::try_from(name.as_str()).is_err()) {
            return Err(AuthorityError::Name(wrong.clone()));
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(IssuedIdentity { certificate, key: key.serialize_pem() })
    }

    /// Issues a certificate for a node, and writes `NAME.pem` and `NAME.key` to a folder.
    ///
    /// # Errors
    /// If the name is none, or a file cannot be written.
    pub fn issue_to(&self, folder: &Path, name: &str) -> Result<(), AuthorityError> {
        self.issue_with_hosts_to(folder, name, &[])
    }

    /// The same for a node that clients also reach by these names of hosts or IP addresses.
    ///
    /// # Errors
    /// If a name is none, or a file cannot be written.
    pub fn issue_with_hosts_to(
        &self,
        folder: &Path,
        name: &str,
        hosts: &[&str],
    ) -> Result<(), AuthorityError> {
        let issued = self.issue_with_hosts(name, hosts)?;
        let certificate = folder.join(format!("{name}.pem"));
        write_secret(&folder.join(format!("{name}.key")), &issued.key)?;
        fs::write(&certificate, &issued.certificate).map_err(wrong(&certificate))
    }
}

/// Parameters of the authority's certificate. They are always the same.
fn params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "Rivulet cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn wrong(file: &Path) -> impl FnOnce(std::io::Error) -> AuthorityError {
    let file = file.display().to_string();
    move |cause| AuthorityError::File { file, cause }
}

/// Writes a file that only its owner can read.
fn write_secret(file: &Path, content: &str) -> Result<(), AuthorityError> {
    let open = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    open.and_then(|mut open| open.write_all(content.as_bytes())).map_err(wrong(file))
}
