//! A certificate (RFC 5280), read with the library `x509-parser`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use sha1::{Digest, Sha1};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Most alternative names of a certificate that are told.
pub const ALTERNATIVE_NAMES_MAX: usize = 256;

/// A certificate. Reading it allocates, in proportion to its size; it is meant for once per
/// connection.
#[derive(Debug, Clone)]
pub struct Certificate<'a> {
    parsed: X509Certificate<'a>,
}

/// The bytes are no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes that are no certificate")]
pub struct UnreadableCertificate {
    /// Bytes that there are.
    pub len: usize,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// It is none, or cut; bytes behind it are passed over.
    pub fn read(der: &'a [u8]) -> Result<Self, UnreadableCertificate> {
        match X509Certificate::from_der(der) {
            Ok((_rest, parsed)) => Ok(Self { parsed }),
            Err(_) => Err(UnreadableCertificate { len: der.len() }),
        }
    }

    /// Whose it is: `C=US, O=Example, CN=example.org`, in the certificate's order. The short names
    /// are those of `x509-parser`, which Suricata uses too: a mail address is `Email`, a street
    /// `streetAddress`.
    pub fn subject(&self) -> String {
        self.parsed.subject().to_string()
    }

    /// Who signed it, likewise.
    pub fn issuer(&self) -> String {
        self.parsed.issuer().to_string()
    }

    /// Its number: bytes as they came, `00:FB:1A`.
    pub fn serial(&self) -> String {
        Hex { bytes: self.parsed.tbs_certificate.raw_serial(), is_upper: true }.to_string()
    }

    /// Its alternative names in their order, [`ALTERNATIVE_NAMES_MAX`] at most: names of hosts,
    /// addresses, mail addresses and URIs; other kinds are left out.
    pub fn alternative_names(&self) -> Vec<String> {
        let extension = self.parsed.subject_alternative_name().ok().flatten();
        let names = extension.iter().flat_map(|extension| &extension.value.general_names);
        names.filter_map(shown).take(ALTERNATIVE_NAMES_MAX).collect()
    }

    /// From when to when it is valid, in seconds since 1970.
    pub fn validity_s(&self) -> (i64, i64) {
        let validity = self.parsed.validity();
        (validity.not_before.timestamp(), validity.not_after.timestamp())
    }
}

fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
            Some((*name).to_owned())
        }
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| Ipv4Addr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| Ipv6Addr::from(bytes).to_string()),
        },
        _ => None,
    }
}

/// The SHA-1 hash of a certificate's bytes; shows as `0f:3e:`...
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 20]);

impl Fingerprint {
    /// Length as text, in bytes.
    pub const TEXT_BYTES: usize = 59;

    /// Of a certificate in DER.
    pub fn of(der: &[u8]) -> Self {
        Self(Sha1::digest(der).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex { bytes: &self.0, is_upper: false }.fmt(f)
    }
}

/// Bytes in hexadecimal, between colons.
struct Hex<'a> {
    bytes: &'a [u8],
    is_upper: bool,
}

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.bytes.iter().enumerate() {
            let colon = if at == 0 { "" } else { ":" };
            match self.is_upper {
                true => write!(f, "{colon}{byte:02X}")?,
                false => write!(f, "{colon}{byte:02x}")?,
            }
        }
        Ok(())
    }
}
