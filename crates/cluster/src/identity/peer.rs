//! Certificates of the other ends of links; they may be revoked while the links exist.

use std::sync::OnceLock;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};

use super::credential::CertificateContent;
use super::parts::IdentityParts;
use super::role::CertifiedRole;

/// The certificate of a link's other end, as shown in the handshake.
pub struct PeerCertificate {
    /// Its chain, up to its authority.
    chain: Vec<CertificateDer<'static>>,
    name: String,
    role: CertifiedRole,
    /// True if the other end has accepted the connection.
    is_server: bool,
    refused: OnceLock<String>,
}

impl PeerCertificate {
    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        (name, role): (&str, CertifiedRole),
        is_server: bool,
    ) -> PeerCertificate {
        PeerCertificate { chain, name: name.to_owned(), role, is_server, refused: OnceLock::new() }
    }

    /// Returns the reason why the link must end, if it must.
    pub fn refused(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }

    /// Checks the certificate again. Its expiry is no reason: existing links continue.
    pub(super) fn check(&self, parts: &IdentityParts) {
        if let Err(error) = self.verify(parts) {
            // The first reason stays.
            let _ = self.refused.set(format!("its certificate is refused now: {error}"));
        }
    }

    fn verify(&self, parts: &IdentityParts) -> Result<(), String> {
        let (own, more) = self.chain.split_first().ok_or("none was shown")?;
        let (begin, end) = CertificateContent::read(own).map_or((0, i64::MAX), |content| content.valid);
        let bound = |seconds: i64| UnixTime::since_unix_epoch(Duration::from_secs(seconds.unsigned_abs()));
        let time = UnixTime::now().max(bound(begin)).min(bound(end));
        let verified = parts.verify((own, more), &self.name, self.is_server, time);
        verified.map_err(|error| error.to_string())?;
        let credential = parts.holder(own).and_then(|holder| holder.check_node(&self.name, self.role));
        credential.map_err(|error| error.to_string())
    }
}
