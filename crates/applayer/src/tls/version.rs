//! Versions of TLS and SSL.

use std::fmt;

/// A version as sent: 0x0002 SSL 2, 0x0300 SSL 3, 0x0301 TLS 1.0 to 0x0304 TLS 1.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtocolVersion(pub u16);

impl ProtocolVersion {
    /// SSL 2.
    pub const SSL_2: Self = Self(0x0002);
    /// SSL 3 (RFC 6101).
    pub const SSL_3: Self = Self(0x0300);
    /// TLS 1.0 (RFC 2246).
    pub const TLS_10: Self = Self(0x0301);
    /// TLS 1.1 (RFC 4346).
    pub const TLS_11: Self = Self(0x0302);
    /// TLS 1.2 (RFC 5246).
    pub const TLS_12: Self = Self(0x0303);
    /// TLS 1.3 (RFC 8446).
    pub const TLS_13: Self = Self(0x0304);

    /// Returns whether this is a GREASE value (RFC 8701).
    pub fn is_grease(self) -> bool {
        self.0 & 0x0f0f == 0x0a0a && self.0 >> 8 == self.0 & 0xff
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SSL_2 => f.write_str("SSLv2"),
            Self::SSL_3 => f.write_str("SSLv3"),
            Self::TLS_10 => f.write_str("TLS 1.0"),
            Self::TLS_11 => f.write_str("TLS 1.1"),
            Self::TLS_12 => f.write_str("TLS 1.2"),
            Self::TLS_13 => f.write_str("TLS 1.3"),
            Self(other) => write!(f, "0x{other:04x}"),
        }
    }
}
