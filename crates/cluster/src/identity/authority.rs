//! An authority that issues certificates to the nodes and operators of a cluster.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
    date_time_ymd,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

use super::credential::CertificateContent;
use super::issued;
use super::role::{SCHEME, Subject, check_name};

/// Validity of certificates by default, in days.
pub const CERTIFICATE_DAYS: u32 = 365;
/// Limit on that validity.
pub const CERTIFICATE_DAYS_MAX: u32 = 3_650;
/// Validity of an authority, in days.
pub const AUTHORITY_DAYS: u32 = 3_650;
/// Name of an authority's cluster by default.
pub const DEFAULT_CLUSTER: &str = "rivulet";

/// Time before its issue at which a certificate becomes valid, because clocks of hosts differ.
const EARLIER: Duration = Duration::from_secs(DAY_S);
const DAY_S: u64 = 86_400;

/// Names of the authority's files in a folder.
pub const CERTIFICATE_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca.key";
/// List of issued certificates, in the authority's folder.
pub(super) const ISSUED_FILE: &str = "issued";

/// File names in the folder that no holder may have.
const RESERVED: [&str; 2] = ["ca", "crl"];

/// The authority of a cluster. Its key admits nodes to the cluster.
pub struct Authority {
    pub(super) issuer: Issuer<'static, KeyPair>,
    certificate: String,
    cluster: String,
}

/// An issued certificate with its key, in PEM.
pub struct IssuedIdentity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// The reason why a certificate or key cannot be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The name is not valid for a host.
    #[error("`{0}` is neither a name of a host nor an IP address")]
    Host(String),
    /// The holder's name is invalid.
    #[error("{0}")]
    Subject(String),
    /// The authority is another cluster's.
    #[error("{folder} has the authority of the cluster `{found}`, not `{wanted}`; use another folder")]
    Cluster {
        /// The folder.
        folder: String,
        /// Its cluster.
        found: String,
        /// The wanted one.
        wanted: String,
    },
    /// A folder has the authority's certificate, but not its key.
    #[error(
        "{0} has the certificate of an authority, {CERTIFICATE_FILE}, but not its key, {KEY_FILE}: issue \
         certificates where the key is kept"
    )]
    NoKey(String),
    /// A certificate or key cannot be made or parsed.
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    /// A file has no certificate.
    #[error("{0}: expected PEM of a certificate")]
    NoCertificate(String),
    /// A file cannot be read or written.
    #[error("{file}: {cause}")]
    File {
        /// The file.
        file: String,
        /// The cause.
        cause: std::io::Error,
    },
}

impl Authority {
    /// Creates an authority with a new key, for a cluster.
    ///
    /// # Errors
    /// If there is no source of random numbers, or the cluster's name is invalid.
    pub fn new(cluster: &str) -> Result<Authority, AuthorityError> {
        check_word(cluster)?;
        let key = KeyPair::generate()?;
        // Revocation lists are matched by the name of their authority.
        let number: [u8; 4] = *key.public_key_raw().last_chunk().unwrap_or(&[0; 4]);
        let common_name = format!("{COMMON_NAME} {:08x}", u32::from_be_bytes(number));
        let params = params(cluster, &common_name)?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: Issuer::new(params, key), certificate, cluster: cluster.to_owned() })
    }

    /// Reads the authority of a folder; creates both if they do not exist. `cluster`: the name of
    /// its cluster, [`DEFAULT_CLUSTER`] by default.
    ///
    /// # Errors
    /// If a file cannot be read or written, or the authority is another cluster's.
    pub fn open(folder: &Path, cluster: Option<&str>) -> Result<Authority, AuthorityError> {
        let (certificate, key) = (folder.join(CERTIFICATE_FILE), folder.join(KEY_FILE));
        if !key.exists() {
            if certificate.exists() {
                return Err(AuthorityError::NoKey(folder.display().to_string()));
            }
            let authority = Authority::new(cluster.unwrap_or(DEFAULT_CLUSTER))?;
            fs::create_dir_all(folder).map_err(wrong(folder))?;
            write_file(&key, &authority.issuer.key().serialize_pem(), 0o600)?;
            write_file(&certificate, &authority.certificate, 0o644)?;
            return Ok(authority);
        }
        let authority = Authority::read(folder)?;
        match cluster.filter(|wanted| *wanted != authority.cluster) {
            None => Ok(authority),
            Some(wanted) => Err(AuthorityError::Cluster {
                folder: folder.display().to_string(),
                found: authority.cluster,
                wanted: wanted.to_owned(),
            }),
        }
    }

    /// Reads the authority of a folder.
    ///
    /// # Errors
    /// If there is none.
    pub fn read(folder: &Path) -> Result<Authority, AuthorityError> {
        let (certificate, key) = (folder.join(CERTIFICATE_FILE), folder.join(KEY_FILE));
        let read = |file: &Path| fs::read_to_string(file).map_err(wrong(file));
        let (pem, key) = (read(&certificate)?, KeyPair::from_pem(&read(&key)?)?);
        let cluster = read_certificate(&certificate)?.organisation;
        let cluster = cluster.unwrap_or_else(|| DEFAULT_CLUSTER.to_owned());
        Ok(Authority { issuer: Issuer::from_ca_cert_pem(&pem, key)?, certificate: pem, cluster })
    }

    /// Returns the authority's certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the name of its cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Issues a certificate for its role and name, valid for this number of days.
    ///
    /// # Errors
    /// If the name of the holder or a host is invalid: letters, digits, hyphens and dots.
    pub fn issue(&self, subject: &Subject, days: u32) -> Result<IssuedIdentity, AuthorityError> {
        let Subject { role, name, hosts } = subject;
        check_word(name)?;
        let names: Vec<String> = std::iter::once(name).chain(hosts).cloned().collect();
        if let Some(wrong) = names.iter().find(|name| ServerName::try_from(name.as_str()).is_err()) {
            return Err(AuthorityError::Host(wrong.clone()));
        }
        let mut params = CertificateParams::new(names)?;
        let uri = format!("{SCHEME}{}/{role}/{name}", self.cluster);
        params.subject_alt_names.push(SanType::URI(uri.as_str().try_into()?));
        params.distinguished_name.push(DnType::CommonName, name.as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        set_validity(&mut params, days);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(IssuedIdentity { certificate, key: key.serialize_pem() })
    }

    /// Issues a certificate, and writes `NAME.pem` and `NAME.key` to a folder. Processes with the
    /// former files use the new ones from their next handshake.
    ///
    /// # Errors
    /// If the name is invalid, or a file cannot be written.
    pub fn issue_to(&self, folder: &Path, subject: &Subject, days: u32) -> Result<PathBuf, AuthorityError> {
        if RESERVED.contains(&&*subject.name) {
            let reason = format!("`{}` cannot be a name: its files are those of the authority", subject.name);
            return Err(AuthorityError::Subject(reason));
        }
        let issued = self.issue(subject, days)?;
        let file = |end: &str| folder.join(format!("{}.{end}", subject.name));
        let list = folder.join(ISSUED_FILE);
        let content = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).ok();
        let content = content.and_then(|der| CertificateContent::read(&der));
        let content = content.ok_or_else(|| AuthorityError::NoCertificate(subject.name.clone()))?;
        issued::note(&list, &subject.name, &content).map_err(wrong(&list))?;
        write_file(&file("key"), &issued.key, 0o600)?;
        write_file(&file("pem"), &issued.certificate, 0o644)?;
        Ok(file("pem"))
    }

    /// As [`issue_to`](Authority::issue_to), for a holder as text, such as `unit:u1`, with the
    /// default validity.
    ///
    /// # Errors
    /// If the text names no holder, or a file cannot be written.
    pub fn issue_named(&self, folder: &Path, subject: &str) -> Result<PathBuf, AuthorityError> {
        let subject: Subject = subject.parse().map_err(AuthorityError::Subject)?;
        self.issue_to(folder, &subject, CERTIFICATE_DAYS)
    }

    /// Writes the authority's certificate again, with the same key and another end. Certificates
    /// that it has issued stay valid.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn renew(&mut self, folder: &Path) -> Result<(), AuthorityError> {
        let before = read_certificate(&folder.join(CERTIFICATE_FILE))?;
        // The issuer's name in its certificates must stay.
        let common_name = before.common_name.as_deref().unwrap_or(COMMON_NAME);
        let mut params = params(&self.cluster, common_name)?;
        if before.organisation.is_none() {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        self.certificate = params.self_signed(self.issuer.key())?.pem();
        write_file(&folder.join(CERTIFICATE_FILE), &self.certificate, 0o644)
    }
}

const COMMON_NAME: &str = "Rivulet cluster";

/// Parameters of the authority's certificate.
fn params(cluster: &str, common_name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, cluster);
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, AUTHORITY_DAYS);
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, days: u32) {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_1970().saturating_sub(EARLIER);
    params.not_after = epoch + since_1970() + Duration::from_secs(u64::from(days) * DAY_S);
}

pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn check_word(word: &str) -> Result<(), AuthorityError> {
    check_name(word).map_err(AuthorityError::Subject)
}

/// Reads the first certificate of a PEM file.
///
/// # Errors
/// If there is none.
pub fn read_certificate(file: &Path) -> Result<CertificateContent, AuthorityError> {
    let der = CertificateDer::from_pem_file(file).ok();
    let content = der.and_then(|der| CertificateContent::read(&der));
    content.ok_or_else(|| AuthorityError::NoCertificate(file.display().to_string()))
}

pub(super) fn wrong(file: &Path) -> impl FnOnce(std::io::Error) -> AuthorityError {
    let file = file.display().to_string();
    move |cause| AuthorityError::File { file, cause }
}

/// Writes a file atomically: readers see the former file, or the whole new one.
pub(super) fn write_file(file: &Path, content: &str, mode: u32) -> Result<(), AuthorityError> {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    // A leftover file may have other permissions.
    let _ = fs::remove_file(&part);
    let open = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&part);
    let written = open.and_then(|mut open| open.write_all(content.as_bytes()).and_then(|()| open.sync_all()));
    written.and_then(|()| fs::rename(&part, file)).map_err(wrong(file))
}
