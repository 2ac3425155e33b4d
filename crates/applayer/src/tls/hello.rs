//! ClientHello and ServerHello.

use super::ProtocolVersion;
use crate::input::Input;

/// The random of a HelloRetryRequest (RFC 8446 4.1.3): the SHA-256 hash of `HelloRetryRequest`.
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// A ClientHello (RFC 8446 4.1.2), possibly partial: missing parts are empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientHello<'a> {
    common: Common<'a>,
    ciphers: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// Parses the body of a message, possibly partial.
    pub fn read(body: &'a [u8]) -> Self {
        let mut hello = Self::default();
        hello.common.is_whole = hello.fill(body).is_some();
        hello
    }

    /// Returns the legacy_version field: that of TLS 1.2 if later versions are offered.
    pub fn legacy_version(&self) -> ProtocolVersion {
        self.common.version
    }

    /// Returns the latest version offered.
    pub fn version(&self) -> ProtocolVersion {
        self.supported_versions()
            .filter(|version| !version.is_grease())
            .max()
            .unwrap_or(self.legacy_version())
    }

    /// Returns the supported_versions extension (RFC 8446 4.2.1), in the client's order.
    pub fn supported_versions(&self) -> impl Iterator<Item = ProtocolVersion> + use<'a> {
        let list = self.common.extension(SUPPORTED_VERSIONS).and_then(|data| Input(data).prefixed_u8());
        pairs(list.unwrap_or_default()).map(ProtocolVersion)
    }

    /// Returns the 32-byte random.
    pub fn random(&self) -> &'a [u8] {
        self.common.random
    }

    /// Returns the session identifier.
    pub fn session_id(&self) -> &'a [u8] {
        self.common.session_id
    }

    /// Returns the raw server name (RFC 6066 3).
    pub fn server_name(&self) -> Option<&'a [u8]> {
        let mut list = Input(Input(self.common.extension(SERVER_NAME)?).prefixed_u16()?);
        loop {
            let (kind, name) = (list.u8()?, list.prefixed_u16()?);
            if kind == 0 {
                return Some(name);
            }
        }
    }

    /// Returns the ALPN protocols offered (RFC 7301 3.1), in the client's order.
    pub fn protocols(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.common.protocols()
    }

    /// Returns the cipher suites offered, in the client's order.
    pub fn cipher_suites(&self) -> impl Iterator<Item = u16> + use<'a> {
        pairs(self.ciphers)
    }

    /// Returns type and data of the extensions, in the client's order.
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        self.common.extensions()
    }

    /// Returns whether all lengths agree.
    pub fn is_whole(&self) -> bool {
        self.common.is_whole
    }

    fn fill(&mut self, body: &'a [u8]) -> Option<()> {
        let mut input = Input(body);
        self.common.begin(&mut input)?;
        self.common.session_id = input.prefixed_u8()?;
        self.ciphers = input.prefixed_u16()?;
        let _compressions = input.prefixed_u8()?;
        self.common.end(input)
    }
}

/// A ServerHello (RFC 8446 4.1.3), possibly partial: missing parts are empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerHello<'a> {
    common: Common<'a>,
    cipher: u16,
}

impl<'a> ServerHello<'a> {
    /// Parses the body of a message, possibly partial.
    pub fn read(body: &'a [u8]) -> Self {
        let mut hello = Self::default();
        hello.common.is_whole = hello.fill(body).is_some();
        hello
    }

    /// Returns the legacy_version field: that of TLS 1.2 for later versions.
    pub fn legacy_version(&self) -> ProtocolVersion {
        self.common.version
    }

    /// Returns the version chosen (RFC 8446 4.2.1).
    pub fn version(&self) -> ProtocolVersion {
        let named = self.common.extension(SUPPORTED_VERSIONS).and_then(|data| Input(data).u16());
        named.map_or(self.legacy_version(), ProtocolVersion)
    }

    /// Returns whether this is a HelloRetryRequest.
    pub fn is_retry(&self) -> bool {
        self.random() == RETRY
    }

    /// Returns the 32-byte random.
    pub fn random(&self) -> &'a [u8] {
        self.common.random
    }

    /// Returns the session identifier.
    pub fn session_id(&self) -> &'a [u8] {
        self.common.session_id
    }

    /// Returns the ALPN protocol chosen (RFC 7301 3.1), unless it is encrypted.
    pub fn protocol(&self) -> Option<&'a [u8]> {
        self.common.protocols().next()
    }

    /// Returns the cipher suite chosen.
    pub fn cipher_suite(&self) -> u16 {
        self.cipher
    }

    /// Returns type and data of the extensions, in the server's order.
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        self.common.extensions()
    }

    /// Returns whether all lengths agree.
    pub fn is_whole(&self) -> bool {
        self.common.is_whole
    }

    fn fill(&mut self, body: &'a [u8]) -> Option<()> {
        let mut input = Input(body);
        // Drafts of TLS 1.3 up to 21 had neither a session identifier nor a compression method
        // here.
        let is_draft = matches!(body, [0x7f, ..=21, ..]);
        self.common.begin(&mut input)?;
        if !is_draft {
            self.common.session_id = input.prefixed_u8()?;
        }
        self.cipher = input.u16()?;
        if !is_draft {
            let _compression = input.u8()?;
        }
        self.common.end(input)
    }
}

/// The fields that both hellos share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Common<'a> {
    version: ProtocolVersion,
    random: &'a [u8],
    session_id: &'a [u8],
    extensions: &'a [u8],
    is_whole: bool,
}

impl Default for Common<'_> {
    fn default() -> Self {
        Self { version: ProtocolVersion(0), random: &[], session_id: &[], extensions: &[], is_whole: false }
    }
}

impl<'a> Common<'a> {
    fn begin(&mut self, input: &mut Input<'a>) -> Option<()> {
        self.version = ProtocolVersion(input.u16()?);
        self.random = input.take(32)?;
        Some(())
    }

    /// Parses the extensions, which may be absent or truncated.
    fn end(&mut self, mut input: Input<'a>) -> Option<()> {
        if input.0.is_empty() {
            return Some(());
        }
        let len = usize::from(input.u16()?);
        self.extensions = input.0.get(..len).unwrap_or(input.0);
        let reported: usize = self.extensions().map(|(_, data)| data.len() + 4).sum();
        (len == input.0.len() && reported == len).then_some(())
    }

    fn extensions(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut input = Input(self.extensions);
        std::iter::from_fn(move || Some((input.u16()?, input.prefixed_u16()?)))
    }

    fn extension(&self, kind: u16) -> Option<&'a [u8]> {
        self.extensions().find(|(other, _)| *other == kind).map(|(_, data)| data)
    }

    fn protocols(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let list = self.extension(ALPN).and_then(|data| Input(data).prefixed_u16());
        let mut input = Input(list.unwrap_or_default());
        std::iter::from_fn(move || input.prefixed_u8())
    }
}

fn pairs<'a>(bytes: &'a [u8]) -> impl Iterator<Item = u16> + use<'a> {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}
