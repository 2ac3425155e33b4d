//! Renewal and revocation of the certificates of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber, date_time_ymd};
use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::authority::{
    AUTHORITY_DAYS, Authority, AuthorityError, CERTIFICATE_FILE, ISSUED_FILE, read_certificate, since_1970,
    write_file, wrong,
};
use super::credential::CertificateContent;
use super::issued;
use super::role::{SCHEME, Subject};

/// File name of the revocation list in a folder.
pub const REVOKED_FILE: &str = "crl.pem";
/// Limit on the certificates of a list.
const REVOKED_MAX: usize = 10_000;

/// A certificate of a folder.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Its file.
    pub file: PathBuf,
    /// File name without extension.
    pub name: String,
    /// Its holder, if it states a role, or its name implies one.
    pub subject: Option<Subject>,
    /// True if it states its role itself, as nodes expect.
    pub has_role: bool,
    /// Begin and end of its validity, in seconds since 1970.
    pub valid: (i64, i64),
}

impl Holder {
    /// Returns true if it must be issued again: less than a third of its validity is left, or it
    /// has no role.
    pub fn is_due(&self) -> bool {
        is_due(self.valid) || !self.has_role
    }
}

fn is_due((begin, end): (i64, i64)) -> bool {
    end - since_1970().as_secs() as i64 <= (end - begin) / 3
}

/// Returns the certificates of a folder that have a key there, by name, without the authority's.
///
/// # Errors
/// If the folder or a certificate cannot be read.
pub fn holders(folder: &Path) -> Result<Vec<Holder>, AuthorityError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong(folder))? {
        let file = entry.map_err(wrong(folder))?.path();
        let is_certificate = file.extension().is_some_and(|end| end == "pem");
        let Some(name) = file.file_stem().and_then(|name| name.to_str()) else { continue };
        if !is_certificate || !file.with_extension("key").exists() || file.ends_with(CERTIFICATE_FILE) {
            continue;
        }
        let content = read_certificate(&file)?;
        let (name, valid) = (name.to_owned(), content.valid);
        let has_role = content.uris.iter().any(|uri| uri.starts_with(SCHEME));
        found.push(Holder { subject: subject_of(&name, content), has_role, file, name, valid });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn subject_of(name: &str, content: CertificateContent) -> Option<Subject> {
    let stated_role = content.uris.iter().find_map(|uri| uri.strip_prefix(SCHEME)?.split('/').nth(1));
    let subject = match stated_role {
        Some(role) => format!("{role}:{name}"),
        None => name.to_owned(),
    };
    let subject: Subject = subject.parse().ok()?;
    let hosts = content.hosts.into_iter().filter(|host| host != name).collect();
    Some(Subject { hosts, ..subject })
}

/// Returns true if less than a third of the validity of a folder's authority is left.
///
/// # Errors
/// If its certificate cannot be read.
pub fn is_authority_due(folder: &Path) -> Result<bool, AuthorityError> {
    Ok(is_due(read_certificate(&folder.join(CERTIFICATE_FILE))?.valid))
}

impl Authority {
    /// Adds certificates to the folder's revocation list: those of files, and all that were issued
    /// here for names. Returns the number of new entries.
    ///
    /// # Errors
    /// If a certificate cannot be read or is the authority's, or the list cannot be read or
    /// written.
    pub fn revoke(&self, folder: &Path, files: &[PathBuf], names: &[&str]) -> Result<usize, AuthorityError> {
        let list = folder.join(REVOKED_FILE);
        let mut revoked = read_revoked(&list)?;
        let before = revoked.len();
        let mut serials = Vec::new();
        for file in files {
            if file.ends_with(CERTIFICATE_FILE) {
                let reason = format!("{}: an authority cannot revoke itself", file.display());
                return Err(AuthorityError::Subject(reason));
            }
            serials.push(read_certificate(file)?.serial);
        }
        for name in names {
            let now_s = since_1970().as_secs() as i64;
            let file = folder.join(ISSUED_FILE);
            serials.extend(issued::serials(&file, name, now_s).map_err(wrong(&file))?);
        }
        for serial in serials {
            if !revoked.iter().any(|(known, _)| *known == serial) {
                revoked.push((serial, since_1970().as_secs()));
            }
        }
        if revoked.len() > REVOKED_MAX {
            let reason = format!("{} has {REVOKED_MAX} certificates, as many as may be", list.display());
            return Err(AuthorityError::Subject(reason));
        }
        let epoch = date_time_ymd(1970, 1, 1);
        let now = since_1970();
        let entry = |(serial, at): &(Vec<u8>, u64)| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: epoch + std::time::Duration::from_secs(*at),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: epoch + now,
            next_update: epoch + now + std::time::Duration::from_secs(u64::from(AUTHORITY_DAYS) * 86_400),
            crl_number: SerialNumber::from(now.as_secs()),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        write_file(&list, &params.signed_by(&self.issuer)?.pem()?, 0o644)?;
        Ok(revoked.len() - before)
    }
}

/// Reads serial numbers and times of revoked certificates; empty without a list.
fn read_revoked(list: &Path) -> Result<Vec<(Vec<u8>, u64)>, AuthorityError> {
    if !list.exists() {
        return Ok(Vec::new());
    }
    let damaged = || {
        AuthorityError::Subject(format!("{}: expected PEM of a list of revoked certificates", list.display()))
    };
    let der = CertificateRevocationListDer::from_pem_file(list).map_err(|_| damaged())?;
    let (_, parsed) = CertificateRevocationList::from_der(&der).map_err(|_| damaged())?;
    let entries = parsed.iter_revoked_certificates();
    Ok(entries
        .map(|entry| (entry.raw_serial().to_vec(), entry.revocation_date.timestamp().unsigned_abs()))
        .collect())
}
