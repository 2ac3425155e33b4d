//! X.509 certificates (RFC 5280), parsed with `x509-parser`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use sha1::{Digest, Sha1};
use x509_parser::prelude::{ASN1Time, FromDer, GeneralName, X509Certificate};

/// Maximum alternative names reported per certificate.
pub const ALTERNATIVE_NAMES_MAX: usize = 256;

/// A parsed certificate. Parsing allocates in proportion to the size; call it once per connection.
#[derive(Debug, Clone)]
pub struct Certificate<'a> {
    parsed: X509Certificate<'a>,
}

/// The bytes are not a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes are not a certificate in DER")]
pub struct UnreadableCertificate {
    /// Length in bytes.
    pub len: usize,
}

impl<'a> Certificate<'a> {
    /// Parses a certificate in DER. Trailing bytes are ignored.
    ///
    /// # Errors
    /// The bytes are not a certificate, or are truncated.
    pub fn read(der: &'a [u8]) -> Result<Self, UnreadableCertificate> {
        match X509Certificate::from_der(der) {
            Ok((_rest, parsed)) => Ok(Self { parsed }),
            Err(_) => Err(UnreadableCertificate { len: der.len() }),
        }
    }

    /// Returns the subject, `C=US, O=Example, CN=example.org`, in the certificate's order. The
    /// attribute names are those of `x509-parser`, which Suricata uses too: `Email` for a mail
    /// address, `streetAddress` for a street.
    pub fn subject(&self) -> String {
        self.parsed.subject().to_string()
    }

    /// Returns the issuer in the same form.
    pub fn issuer(&self) -> String {
        self.parsed.issuer().to_string()
    }

    /// Returns the serial number as raw bytes, `00:FB:1A`.
    pub fn serial(&self) -> String {
        Hex { bytes: self.parsed.tbs_certificate.raw_serial(), is_upper: true }.to_string()
    }

    /// Returns up to [`ALTERNATIVE_NAMES_MAX`] alternative names, in order: host names, addresses,
    /// mail addresses and URIs. Other kinds are omitted.
    pub fn alternative_names(&self) -> Vec<String> {
        let extension = self.parsed.subject_alternative_name().ok().flatten();
        let names = extension.iter().flat_map(|extension| &extension.value.general_names);
        names.filter_map(shown).take(ALTERNATIVE_NAMES_MAX).collect()
    }

    /// Returns the start and end of validity, in UTC, as `2020-09-23T00:00:00`.
    pub fn validity(&self) -> (String, String) {
        let text = |time: &ASN1Time| {
            let time = time.to_datetime();
            let (date, (hour, minute, second)) = (time.date(), time.to_hms());
            let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
        };
        let validity = self.parsed.validity();
        (text(&validity.not_before), text(&validity.not_after))
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

/// The SHA-1 fingerprint of a certificate, displayed as `0f:3e:`...
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 20]);

impl Fingerprint {
    /// Length as text, in bytes.
    pub const TEXT_BYTES: usize = 59;

    /// Hashes a certificate in DER.
    pub fn of(der: &[u8]) -> Self {
        Self(Sha1::digest(der).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex { bytes: &self.0, is_upper: false }.fmt(f)
    }
}

/// Bytes in hexadecimal, separated by colons.
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
