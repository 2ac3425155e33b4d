//! The names, types and flags of a DNS message (RFC 1035 4).
//!
//! ```
//! use applayer::dns::{Message, Name, Section};
//!
//! let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03Org\0\0\x01\0\x01";
//! let (mut entries, mut name) = (Message::read(query)?.entries(), Name::default());
//! let question = entries.next(&mut name).expect("there is a question")?;
//! assert_eq!((question.section, question.kind, name.as_bytes()), (Section::Question, 1, &b"example.Org"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod name;

use crate::input::Input;
pub use name::{NAME_BYTES_MAX, Name, NameFault, POINTER_MAX};

/// Length of a message's header, in bytes.
pub const HEADER_BYTES: usize = 12;

/// Most entries of a message that are read: names may point at one another, so that a message of 64
/// KiB would otherwise make work without measure.
pub const ENTRY_MAX: u32 = 1024;

/// A message: the payload of a datagram, or what [`over_tcp`] cuts out of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    bytes: &'a [u8],
    /// The number that an answer has in common with its question.
    pub id: u16,
    /// Whether it is a response.
    pub is_response: bool,
    /// What is asked: 0 query, 4 notify, 5 update. 4 bits.
    pub opcode: u8,
    /// How it is answered, without an extension's upper bits: 0 no error, 3 no such name. 4 bits.
    pub rcode: u8,
    /// The flags as they came, with opcode and rcode.
    pub flags: u16,
    /// How many entries each section says to have, in the order of [`Section::ALL`].
    pub counts: [u16; 4],
}

/// Fewer than [`HEADER_BYTES`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a DNS message of {len} bytes has no header")]
pub struct ShortHeader {
    /// Bytes that there are.
    pub len: usize,
}

impl<'a> Message<'a> {
    /// Reads the header (RFC 1035 4.1.1).
    ///
    /// # Errors
    /// The bytes are fewer than a header's.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ShortHeader> {
        Self::header(bytes).ok_or(ShortHeader { len: bytes.len() })
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

    /// The entries of all sections, from the first.
    pub fn entries(&self) -> Entries<'a> {
        Entries { message: self.bytes, at: HEADER_BYTES, section: 0, left: self.counts, read: 0 }
    }
}

/// The sections of a message, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// What is asked.
    Question,
    /// Answers to it.
    Answer,
    /// Who has authority.
    Authority,
    /// What may help.
    Additional,
}

impl Section {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Question, Self::Answer, Self::Authority, Self::Additional];
}

/// A question or a resource record; its name is in the [`Name`] that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where it stands.
    pub section: Section,
    /// Its type: 1 A, 28 AAAA, 15 MX.
    pub kind: u16,
    /// Its class: 1 Internet.
    pub class: u16,
    /// How long it holds, in seconds; 0 of a question.
    pub ttl_s: u32,
    /// A record's data as it came; empty of a question.
    pub data: &'a [u8],
    /// Whether the name is longer than [`NAME_BYTES_MAX`], and the [`Name`] has its beginning
    /// only.
    pub is_name_cut: bool,
}

/// Why a message cannot be read further. What was read of the entry's name is in the [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The message ends inside of an entry, or before all entries that its header counts.
    #[error("the message ends in an entry of section {0:?}")]
    Cut(Section),
    /// An entry's name is broken.
    #[error("a name in section {0:?}: {1}")]
    Name(Section, NameFault),
    /// There are more than [`ENTRY_MAX`] entries.
    #[error("the message has more than {ENTRY_MAX} entries")]
    TooManyEntries,
}

/// Goes through a message's entries.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    message: &'a [u8],
    at: usize,
    /// Index into [`Section::ALL`]; 4 behind the end.
    section: usize,
    left: [u16; 4],
    read: u32,
}

impl<'a> Entries<'a> {
    /// The next entry; writes its name.
    ///
    /// # Errors
    /// The message is malformed there; nothing follows.
    pub fn next(&mut self, name: &mut Name) -> Option<Result<Entry<'a>, Malformed>> {
        name.clear();
        while *self.left.get(self.section)? == 0 {
            self.section += 1;
        }
        self.left[self.section] -= 1;
        let entry = self.read(Section::ALL[self.section], name);
        if entry.is_err() {
            self.section = Section::ALL.len();
        }
        Some(entry)
    }

    /// The bytes that are not read yet: behind the last entry, what does not belong to the message.
    pub fn rest(&self) -> &'a [u8] {
        self.message.get(self.at..).unwrap_or_default()
    }

    fn read(&mut self, section: Section, name: &mut Name) -> Result<Entry<'a>, Malformed> {
        self.read += 1;
        if self.read > ENTRY_MAX {
            return Err(Malformed::TooManyEntries);
        }
        let end = name.read(self.message, self.at).map_err(|fault| match fault {
            NameFault::Cut => Malformed::Cut(section),
            fault => Malformed::Name(section, fault),
        })?;
        self.at = end;
        let mut input = Input(self.rest());
        let entry = fields(&mut input, section, name.is_cut()).ok_or(Malformed::Cut(section))?;
        self.at = self.message.len() - input.0.len();
        Ok(entry)
    }
}

/// What stands behind an entry's name (RFC 1035 4.1.2, 4.1.3).
fn fields<'a>(input: &mut Input<'a>, section: Section, is_name_cut: bool) -> Option<Entry<'a>> {
    let (kind, class) = (input.u16()?, input.u16()?);
    let (ttl_s, data) = match section {
        Section::Question => (0, &[][..]),
        _ => (input.u32()?, input.prefixed_u16()?),
    };
    Some(Entry { section, kind, class, ttl_s, data, is_name_cut })
}

/// What a stream of DNS over TCP begins with (RFC 1035 4.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framed<'a> {
    /// A whole message, and what follows.
    Message {
        /// The message, without its length.
        message: &'a [u8],
        /// What stands behind it.
        rest: &'a [u8],
    },
    /// So many bytes from the same beginning are needed before more can be said; at most 2 +
    /// 65,535.
    Needs(usize),
}

/// Looks for a message, behind its length of two bytes, at the beginning of bytes of a stream.
pub fn over_tcp(stream: &[u8]) -> Framed<'_> {
    let mut input = Input(stream);
    let Some(len) = input.u16() else { return Framed::Needs(2) };
    match input.take(usize::from(len)) {
        Some(message) => Framed::Message { message, rest: input.0 },
        None => Framed::Needs(2 + usize::from(len)),
    }
}
