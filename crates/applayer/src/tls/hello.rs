//! Hellos of clients and servers.

use super::Version;
use crate::input::Input;

/// The random of a server's hello that asks for another hello of the client (RFC 8446 4.1.3): the
/// SHA-256 hash of `HelloRetryRequest`.
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// A client's hello (RFC 8446 4.1.2), or what there is of it: missing parts are empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientHello<'a> {
    common: Common<'a>,
    ciphers: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// Reads a message's body, or what there is of it.
    pub fn read(body: &'a [u8]) -> Self {
        let mut hello = Self::default();
        hello.common.is_whole = hello.fill(body).is_some();
        hello
    }

    /// The version in the hello itself; that of TLS 1.2 where later ones are offered.
    pub fn legacy_version(&self) -> Version {
        self.common.version
    }

    /// The latest version that is offered.
    pub fn version(&self) -> Version {
        self.supported_versions()
            .filter(|version| !version.is_grease())
            .max()
            .unwrap_or(self.legacy_version())
    }

    /// The versions that are offered by name (RFC 8446 4.2.1), in the client's order.
    pub fn supported_versions(&self) -> impl Iterator<Item = Version> + use<'a> {
        let list = self.common.extension(SUPPORTED_VERSIONS).and_then(|data| Input(data).prefixed_u8());
        pairs(list.unwrap_or_default()).map(Version)
    }

    /// The 32 bytes of the random.
    pub fn random(&self) -> &'a [u8] {
        self.common.random
    }

    /// The session's identifier.
    pub fn session_id(&self) -> &'a [u8] {
        self.common.session_id
    }

    /// The server's name that is asked for (RFC 6066 3), as it was sent.
    pub fn server_name(&self) -> Option<&'a [u8]> {
        let mut list = Input(Input(self.common.extension(SERVER_NAME)?).prefixed_u16()?);
        loop {
            let (kind, name) = (list.u8()?, list.prefixed_u16()?);
            if kind == 0 {
                return Some(name);
            }
        }
    }

    /// The protocols that are offered (RFC 7301 3.1), in the client's order.
    pub fn protocols(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.common.protocols()
    }

    /// The suites of ciphers that are offered, in the client's order.
    pub fn cipher_suites(&self) -> impl Iterator<Item = u16> + use<'a> {
        pairs(self.ciphers)
    }

    /// The extensions, in the client's order: type and data.
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        self.common.extensions()
    }

    /// Whether all lengths agree.
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

/// A server's hello (RFC 8446 4.1.3), or what there is of it: missing parts are empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerHello<'a> {
    common: Common<'a>,
    cipher: u16,
}

impl<'a> ServerHello<'a> {
    /// Reads a message's body, or what there is of it.
    pub fn read(body: &'a [u8]) -> Self {
        let mut hello = Self::default();
        hello.common.is_whole = hello.fill(body).is_some();
        hello
    }

    /// The version in the hello itself; that of TLS 1.2 for later ones.
    pub fn legacy_version(&self) -> Version {
        self.common.version
    }

    /// The version that was chosen (RFC 8446 4.2.1).
    pub fn version(&self) -> Version {
        let named = self.common.extension(SUPPORTED_VERSIONS).and_then(|data| Input(data).u16());
        named.map_or(self.legacy_version(), Version)
    }

    /// Whether it asks for another hello of the client.
    pub fn is_retry(&self) -> bool {
        self.random() == RETRY
    }

    /// The 32 bytes of the random.
    pub fn random(&self) -> &'a [u8] {
        self.common.random
    }

    /// The session's identifier.
    pub fn session_id(&self) -> &'a [u8] {
        self.common.session_id
    }

    /// The protocol that was chosen (RFC 7301 3.1), unless it is told encrypted.
    pub fn protocol(&self) -> Option<&'a [u8]> {
        self.common.protocols().next()
    }

    /// The suite of ciphers that was chosen.
    pub fn cipher_suite(&self) -> u16 {
        self.cipher
    }

    /// The extensions, in the server's order: type and data.
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        self.common.extensions()
    }

    /// Whether all lengths agree.
    pub fn is_whole(&self) -> bool {
        self.common.is_whole
    }

    fn fill(&mut self, body: &'a [u8]) -> Option<()> {
        let mut input = Input(body);
        // The drafts of TLS 1.3 up to 21 had neither session nor compression here.
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

/// What both hellos have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Common<'a> {
    version: Version,
    random: &'a [u8],
    session_id: &'a [u8],
    extensions: &'a [u8],
    is_whole: bool,
}

impl Default for Common<'_> {
    fn default() -> Self {
        Self { version: Version(0), random: &[], session_id: &[], extensions: &[], is_whole: false }
    }
}

impl<'a> Common<'a> {
    fn begin(&mut self, input: &mut Input<'a>) -> Option<()> {
        self.version = Version(input.u16()?);
        self.random = input.take(32)?;
        Some(())
    }

    /// Reads the extensions, which may be absent; those of a hello that is cut are read as far as
    /// they go.
    fn end(&mut self, mut input: Input<'a>) -> Option<()> {
        if input.0.is_empty() {
            return Some(());
        }
        let len = usize::from(input.u16()?);
        self.extensions = input.0.get(..len).unwrap_or(input.0);
        let told: usize = self.extensions().map(|(_, data)| data.len() + 4).sum();
        (len == input.0.len() && told == len).then_some(())
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
