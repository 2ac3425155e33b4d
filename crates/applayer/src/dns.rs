//! The names, types and flags of a DNS message (RFC 1035 4).
//!
//! ```
//! use applayer::dns::{DnsMessage, DnsName, DnsSection};
//!
//! let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03Org\0\0\x01\0\x01";
//! let (mut entries, mut name) = (DnsMessage::read(query)?.entries(), DnsName::default());
//! let question = entries.next(&mut name).expect("there is a question")?;
//! assert_eq!((question.section, question.kind, name.as_bytes()), (DnsSection::Question, 1, &b"example.Org"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod name;

use crate::input::Input;
pub use name::{DnsName, DnsNameError, NAME_BYTES_MAX, POINTER_MAX};

/// Length of a message header, in bytes.
pub const HEADER_BYTES: usize = 12;

/// Maximum entries of a message. Names may point at one another, so without a limit a message of 64
/// KiB could cost unbounded work.
pub const ENTRY_MAX: u32 = 1024;

/// A message: the payload of a datagram, or a frame from [`over_tcp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnsMessage<'a> {
    bytes: &'a [u8],
    /// The identifier that a response shares with its query.
    pub id: u16,
    /// True for a response.
    pub is_response: bool,
    /// The kind of query: 0 query, 4 notify, 5 update. 4 bits.
    pub opcode: u8,
    /// The response code, without an extension's upper bits: 0 no error, 3 no such name. 4 bits.
    pub rcode: u8,
    /// The raw flags, with opcode and rcode.
    pub flags: u16,
    /// The entry counts in the header, in the order of [`DnsSection::ALL`].
    pub counts: [u16; 4],
}

/// The message is shorter than [`HEADER_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a DNS message of {len} bytes is too short for its header of {HEADER_BYTES} bytes")]
pub struct ShortDnsHeader {
    /// Length of the message in bytes.
    pub len: usize,
}

impl<'a> DnsMessage<'a> {
    /// Parses the header (RFC 1035 4.1.1).
    ///
    /// # Errors
    /// The message is shorter than a header.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ShortDnsHeader> {
        Self::header(bytes).ok_or(ShortDnsHeader { len: bytes.len() })
    }

    fn header(bytes: &'a [u8]) -> Option<Self> {
        let mut input = Input(bytes);
        let (id, flags) = (input.u16()?, input.u16()?);
        let counts = [input.u16()?, input.u16()?, input.u16()?, input.u16()?];
        Some(Self {
            bytes,
            id,
            is_response: flags & 0x8000 != 0,
            opcode: (flags >> 11 & 0xf) as u8,
            rcode: (flags & 0xf) as u8,
            flags,
            counts,
        })
    }

    /// Returns an iterator over the entries of all sections.
    pub fn entries(&self) -> DnsEntries<'a> {
        DnsEntries { message: self.bytes, at: HEADER_BYTES, section: 0, left: self.counts, read: 0 }
    }
}

impl<'a> DnsMessage<'a> {
    /// Reads the name in the data of a record of this message: of CNAME, NS and PTR (RFC 1035 3.3),
    /// and of MX, after the preference. Returns `None` for other records and for malformed names.
    pub fn name_in_data<'n>(&self, record: &DnsEntry<'a>, name: &'n mut DnsName) -> Option<&'n [u8]> {
        let before = match record.kind {
            2 | 5 | 12 => 0,
            15 => 2,
            _ => return None,
        };
        let data = record.data.get(before..).filter(|data| !data.is_empty())?;
        let at = (data.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        name.read(self.bytes, at).ok()?;
        Some(name.as_bytes())
    }
}

/// A section of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DnsSection {
    /// Questions.
    Question,
    /// Answers to the questions.
    Answer,
    /// Authoritative name servers.
    Authority,
    /// Additional records.
    Additional,
}

impl DnsSection {
    /// All sections, in order.
    pub const ALL: [Self; 4] = [Self::Question, Self::Answer, Self::Authority, Self::Additional];
}

/// A question or a resource record. Its name is in the [`DnsName`] that the caller passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnsEntry<'a> {
    /// The section that the entry is in.
    pub section: DnsSection,
    /// Its type: 1 A, 28 AAAA, 15 MX.
    pub kind: u16,
    /// Its class: 1 Internet.
    pub class: u16,
    /// Time to live in seconds; 0 for a question.
    pub ttl_s: u32,
    /// The raw record data; empty for a question.
    pub data: &'a [u8],
    /// True if the name is longer than [`NAME_BYTES_MAX`] and the [`DnsName`] holds only its
    /// beginning.
    pub is_name_cut: bool,
}

/// The reason why parsing stopped. The [`DnsName`] holds the part of the entry's name that was
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// The message ends within an entry, or before the last entry that its header counts.
    #[error("the message ends within an entry of section {0:?}")]
    Cut(DnsSection),
    /// The name of an entry is malformed.
    #[error("malformed name in section {0:?}: {1}")]
    Name(DnsSection, DnsNameError),
    /// There are more than [`ENTRY_MAX`] entries.
    #[error("the message has more than {ENTRY_MAX} entries")]
    TooManyEntries,
}

/// A cursor over the entries of a message.
#[derive(Debug, Clone)]
pub struct DnsEntries<'a> {
    message: &'a [u8],
    at: usize,
    /// Index into [`DnsSection::ALL`]; 4 after the last section.
    section: usize,
    left: [u16; 4],
    read: u32,
}

impl<'a> DnsEntries<'a> {
    /// Returns the next entry and writes its name.
    ///
    /// # Errors
    /// The message is malformed there; nothing follows.
    pub fn next(&mut self, name: &mut DnsName) -> Option<Result<DnsEntry<'a>, DnsError>> {
        name.clear();
        while *self.left.get(self.section)? == 0 {
            self.section += 1;
        }
        self.left[self.section] -= 1;
        let entry = self.read(DnsSection::ALL[self.section], name);
        if entry.is_err() {
            self.section = DnsSection::ALL.len();
        }
        Some(entry)
    }

    /// Returns the unread bytes: after the last entry, these do not belong to the message.
    pub fn rest(&self) -> &'a [u8] {
        self.message.get(self.at..).unwrap_or_default()
    }

    fn read(&mut self, section: DnsSection, name: &mut DnsName) -> Result<DnsEntry<'a>, DnsError> {
        self.read += 1;
        if self.read > ENTRY_MAX {
            return Err(DnsError::TooManyEntries);
        }
        let end = name.read(self.message, self.at).map_err(|fault| match fault {
            DnsNameError::Cut => DnsError::Cut(section),
            fault => DnsError::Name(section, fault),
        })?;
        self.at = end;
        let mut input = Input(self.rest());
        let entry = fields(&mut input, section, name.is_cut()).ok_or(DnsError::Cut(section))?;
        self.at = self.message.len() - input.0.len();
        Ok(entry)
    }
}

/// Parses the fields after an entry's name (RFC 1035 4.1.2, 4.1.3).
fn fields<'a>(input: &mut Input<'a>, section: DnsSection, is_name_cut: bool) -> Option<DnsEntry<'a>> {
    let (kind, class) = (input.u16()?, input.u16()?);
    let (ttl_s, data) = match section {
        DnsSection::Question => (0, &[][..]),
        _ => (input.u32()?, input.prefixed_u16()?),
    };
    Some(DnsEntry { section, kind, class, ttl_s, data, is_name_cut })
}

/// The beginning of a stream of DNS over TCP (RFC 1035 4.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpFrame<'a> {
    /// A whole message.
    Message {
        /// The message, without its length prefix.
        message: &'a [u8],
        /// The bytes after it.
        rest: &'a [u8],
    },
    /// The number of bytes, from the same beginning, that are needed to continue; at most 2 +
    /// 65,535.
    Needs(usize),
}

/// Parses a message with its two-byte length prefix from the beginning of a stream.
pub fn over_tcp(stream: &[u8]) -> TcpFrame<'_> {
    let mut input = Input(stream);
    let Some(len) = input.u16() else { return TcpFrame::Needs(2) };
    match input.take(usize::from(len)) {
        Some(message) => TcpFrame::Message { message, rest: input.0 },
        None => TcpFrame::Needs(2 + usize::from(len)),
    }
}
