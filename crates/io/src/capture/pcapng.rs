//! The pcapng format: sections of blocks, each section with its own interfaces
//! (draft-ietf-opsawg-pcapng).

use packet::LinkType;

use super::error::ReadError;
use super::fields::{ByteOrder, RecordFields, at_end, read_failure, require};
use super::source::Source;
use super::time::TimeScale;
use super::{
    BLOCK_BYTES_MAX, CaptureDirection, CaptureInterface, DIRECTIONS_APPLICATION, INTERFACES_MAX,
    RECORD_BYTES_MAX, bounded_name,
};

/// The type of a section header block as it stands in the file; it is a palindrome in both byte
/// orders.
pub(super) const SECTION_HEADER: [u8; 4] = BLOCK_SECTION_HEADER.to_be_bytes();

pub(super) const BLOCK_SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const BLOCK_INTERFACE: u32 = 1;
const BLOCK_OBSOLETE_PACKET: u32 = 2;
const BLOCK_SIMPLE_PACKET: u32 = 3;
pub(super) const BLOCK_ENHANCED_PACKET: u32 = 6;

pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
pub(super) const VERSION_MAJOR: u16 = 1;
/// Version 1.2 was written by mistake instead of 1.0.
const VERSIONS_MINOR: [u16; 2] = [0, 2];

pub(super) const OPTION_END: u16 = 0;
pub(super) const OPTION_COMMENT: u16 = 1;
/// Option of an enhanced packet block.
pub(super) const OPTION_FLAGS: u16 = 2;
/// Option of an enhanced packet block.
pub(super) const OPTION_PACKET_ID: u16 = 5;
pub(super) const OPTION_INTERFACE_NAME: u16 = 2;
pub(super) const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;
/// Option of a section header block.
pub(super) const OPTION_APPLICATION: u16 = 4;

/// Bytes of type and length before a block's body.
pub(super) const BLOCK_HEAD_BYTES: usize = 8;
/// Bytes of the second length after it.
pub(super) const BLOCK_TAIL_BYTES: usize = 4;
/// Bytes of a section's head: type, length and byte-order magic.
const SECTION_HEAD_BYTES: usize = 12;

/// Parses the records in a file's blocks.
#[derive(Debug)]
pub(super) struct Parser {
    order: ByteOrder,
    /// Number of the section's first interface, counted over the file.
    first_interface: usize,
    /// One per interface of the section.
    scales: Vec<TimeScale>,
    /// The application is [`super::DIRECTIONS_APPLICATION`].
    has_directions: bool,
}

/// A block at the front of the source's window.
#[derive(Clone, Copy)]
struct Block {
    kind: u32,
    total: usize,
}

impl Parser {
    /// Reads the first section's header.
    pub fn new(source: &mut Source) -> Result<Parser, ReadError> {
        let mut parser = Parser {
            order: ByteOrder::Little,
            first_interface: 0,
            scales: Vec::new(),
            has_directions: false,
        };
        let block = parser.head(source)?;
        parser.section(source, block, 0)?;
        source.consume(block.total);
        Ok(parser)
    }

    /// Returns the next packet block, or `None` at the end. Appends the interfaces of blocks before
    /// it.
    pub fn next(
        &mut self,
        source: &mut Source,
        interfaces: &mut Vec<CaptureInterface>,
    ) -> Result<Option<RecordFields>, ReadError> {
        while !at_end(source)? {
            let block = self.head(source)?;
            let found = match block.kind {
                BLOCK_ENHANCED_PACKET => self.enhanced_packet(source, block, interfaces)?,
                BLOCK_SIMPLE_PACKET => self.simple_packet(source, block, interfaces)?,
                BLOCK_OBSOLETE_PACKET => self.obsolete_packet(source, block, interfaces)?,
                BLOCK_INTERFACE => {
                    self.interface(source, block, interfaces)?;
                    source.consume(block.total);
                    continue;
                }
                BLOCK_SECTION_HEADER => {
                    self.section(source, block, interfaces.len())?;
                    source.consume(block.total);
                    continue;
                }
                _ => {
                    self.pass_over(source, block)?;
                    continue;
                }
            };
            return Ok(Some(found));
        }
        Ok(None)
    }

    /// Returns type and length of the block at the front. A section header's byte order takes
    /// effect here.
    fn head(&mut self, source: &mut Source) -> Result<Block, ReadError> {
        require(source, BLOCK_HEAD_BYTES, "a block header")?;
        let kind = self.order.u32(source.bytes(), 0);
        if kind == BLOCK_SECTION_HEADER {
            require(source, SECTION_HEAD_BYTES, "a section header")?;
            self.order = byte_order(source)?;
        }
        let offset = source.offset();
        let length = self.order.u32(source.bytes(), 4);
        if length > BLOCK_BYTES_MAX {
            let (found, limit) = (length.into(), BLOCK_BYTES_MAX.into());
            return Err(ReadError::TooLarge { offset, expected: "a block length", found, limit });
        }
        let total = length as usize;
        if total < BLOCK_HEAD_BYTES + BLOCK_TAIL_BYTES || !total.is_multiple_of(4) {
            let expected = "a block length of 12 or more, a multiple of 4";
            return Err(ReadError::Malformed { offset: offset + 4, expected, found: length.into() });
        }
        Ok(Block { kind, total })
    }

    /// Returns the whole block up to its second length, which must equal the first.
    fn whole<'a>(&self, source: &'a mut Source, block: Block, least: usize) -> Result<&'a [u8], ReadError> {
        require(source, block.total, "a block")?;
        let end = block.total - BLOCK_TAIL_BYTES;
        self.check_tail(self.order.u32(source.bytes(), end), block, source.offset() + end as u64)?;
        if end < least {
            return Err(ReadError::Malformed {
                offset: source.offset(),
                expected: "a block that has room for its fixed fields",
                found: block.total as u64,
            });
        }
        Ok(&source.bytes()[..end])
    }

    /// Skips a block without keeping its body.
    fn pass_over(&self, source: &mut Source, block: Block) -> Result<(), ReadError> {
        let offset = source.offset();
        let whole =
            source.skip(block.total - BLOCK_TAIL_BYTES).map_err(|error| read_failure(source, error))?
                && source.fill(BLOCK_TAIL_BYTES).map_err(|error| read_failure(source, error))?;
        if !whole {
            let found = source.offset() + source.bytes().len() as u64 - offset;
            return Err(ReadError::Truncated {
                offset,
                expected: "a block",
                needed: block.total as u64,
                found,
            });
        }
        self.check_tail(self.order.u32(source.bytes(), 0), block, source.offset())?;
        source.consume(BLOCK_TAIL_BYTES);
        Ok(())
    }

    fn check_tail(&self, length: u32, block: Block, offset: u64) -> Result<(), ReadError> {
        if length as usize == block.total {
            return Ok(());
        }
        let expected = "the block's length, as at its beginning";
        Err(ReadError::Malformed { offset, expected, found: length.into() })
    }

    fn section(&mut self, source: &mut Source, block: Block, interfaces: usize) -> Result<(), ReadError> {
        const FIXED: usize = 24;
        let (offset, order) = (source.offset(), self.order);
        let body = self.whole(source, block, FIXED)?;
        let (major, minor) = (order.u16(body, 12), order.u16(body, 14));
        if major != VERSION_MAJOR || !VERSIONS_MINOR.contains(&minor) {
            let expected = "pcapng version 1.0";
            return Err(ReadError::Version { offset: offset + 12, expected, major, minor });
        }
        let mut has_directions = false;
        for option in Options::new(order, &body[FIXED..], offset + FIXED as u64) {
            let option = option?;
            has_directions |=
                option.code == OPTION_APPLICATION && option.value == DIRECTIONS_APPLICATION.as_bytes();
        }
        self.has_directions = has_directions;
        self.first_interface = interfaces;
        self.scales.clear();
        Ok(())
    }

    fn interface(
        &mut self,
        source: &mut Source,
        block: Block,
        interfaces: &mut Vec<CaptureInterface>,
    ) -> Result<(), ReadError> {
        const FIXED: usize = 16;
        let (offset, order) = (source.offset(), self.order);
        let body = self.whole(source, block, FIXED)?;
        if interfaces.len() >= INTERFACES_MAX {
            let (found, limit) = (interfaces.len() as u64 + 1, INTERFACES_MAX as u64);
            return Err(ReadError::TooLarge { offset, expected: "a number of interfaces", found, limit });
        }
        let link_type = LinkType::from_number(order.u16(body, 8));
        let mut interface = CaptureInterface { link_type, name: None, snapshot_bytes: order.u32(body, 12) };
        let mut scale = TimeScale::default();
        for option in Options::new(order, &body[FIXED..], offset + FIXED as u64) {
            let option = option?;
            match (option.code, option.value) {
                (OPTION_INTERFACE_NAME, name) => interface.name = Some(readable(name)),
                (OPTION_TIME_RESOLUTION, &[code]) => scale.set_resolution(code),
                (OPTION_TIME_OFFSET, value) if value.len() == 8 => {
                    scale.set_offset_seconds(order.u64(value, 0).cast_signed());
                }
                (OPTION_TIME_RESOLUTION | OPTION_TIME_OFFSET, value) => {
                    let expected = "a time option of its fixed length";
                    return Err(ReadError::Malformed {
                        offset: option.offset,
                        expected,
                        found: value.len() as u64,
                    });
                }
                _ => {}
            }
        }
        interfaces.push(interface);
        self.scales.push(scale);
        Ok(())
    }

    fn enhanced_packet(
        &self,
        source: &mut Source,
        block: Block,
        interfaces: &[CaptureInterface],
    ) -> Result<RecordFields, ReadError> {
        const FIXED: usize = 28;
        let (offset, order) = (source.offset(), self.order);
        let body = self.whole(source, block, FIXED)?;
        let packet = PacketFields {
            interface: order.u32(body, 8),
            ticks: u64::from(order.u32(body, 12)) << 32 | u64::from(order.u32(body, 16)),
            captured: order.u32(body, 20),
            wire_len: order.u32(body, 24),
        };
        let direction =
            if self.has_directions { direction(order, body, FIXED, packet.captured) } else { None };
        Ok(RecordFields { direction, ..self.found(packet, FIXED, body.len(), block, offset, interfaces)? })
    }

    fn obsolete_packet(
        &self,
        source: &mut Source,
        block: Block,
        interfaces: &[CaptureInterface],
    ) -> Result<RecordFields, ReadError> {
        const FIXED: usize = 28;
        let (offset, order) = (source.offset(), self.order);
        let body = self.whole(source, block, FIXED)?;
        let packet = PacketFields {
            interface: order.u16(body, 8).into(),
            ticks: u64::from(order.u32(body, 12)) << 32 | u64::from(order.u32(body, 16)),
            captured: order.u32(body, 20),
            wire_len: order.u32(body, 24),
        };
        self.found(packet, FIXED, body.len(), block, offset, interfaces)
    }

    /// Parses a simple packet block. It belongs to the section's first interface, has no time, and
    /// is cut to that interface's snapshot length.
    fn simple_packet(
        &self,
        source: &mut Source,
        block: Block,
        interfaces: &[CaptureInterface],
    ) -> Result<RecordFields, ReadError> {
        const FIXED: usize = 12;
        let (offset, order) = (source.offset(), self.order);
        let body = self.whole(source, block, FIXED)?;
        let wire_len = order.u32(body, 8);
        let limit = match interfaces.get(self.first_interface).map(|first| first.snapshot_bytes) {
            None | Some(0) => u32::MAX,
            Some(limit) => limit,
        };
        // The body is within BLOCK_BYTES_MAX, so its length fits.
        let captured = wire_len.min(limit).min((body.len() - FIXED) as u32);
        let packet = PacketFields { interface: 0, ticks: 0, captured, wire_len };
        let found = self.found(packet, FIXED, body.len(), block, offset, interfaces)?;
        Ok(RecordFields { timestamp_ns: None, ..found })
    }

    fn found(
        &self,
        packet: PacketFields,
        data_start: usize,
        data_limit: usize,
        block: Block,
        offset: u64,
        interfaces: &[CaptureInterface],
    ) -> Result<RecordFields, ReadError> {
        let number = packet.interface as usize;
        let Some(scale) = self.scales.get(number) else {
            let expected = "the number of an interface of this section";
            return Err(ReadError::Malformed {
                offset: offset + 8,
                expected,
                found: packet.interface.into(),
            });
        };
        if packet.captured > RECORD_BYTES_MAX {
            let (found, limit) = (packet.captured.into(), RECORD_BYTES_MAX.into());
            return Err(ReadError::TooLarge { offset, expected: "a captured length", found, limit });
        }
        let data = data_start..data_start + packet.captured as usize;
        if data.end > data_limit {
            let expected = "a captured length that its block has room for";
            return Err(ReadError::Malformed { offset, expected, found: packet.captured.into() });
        }
        debug_assert!(self.first_interface + number < interfaces.len());
        Ok(RecordFields {
            timestamp_ns: Some(scale.nanoseconds(packet.ticks)),
            // Within INTERFACES_MAX.
            interface: (self.first_interface + number) as u32,
            wire_len: packet.wire_len,
            data,
            total: block.total,
            direction: None,
        })
    }
}

/// Returns the direction in the flags after a packet's bytes; none if an option is damaged.
fn direction(order: ByteOrder, body: &[u8], fixed: usize, captured: u32) -> Option<CaptureDirection> {
    let options = body.get(fixed + (captured as usize).next_multiple_of(4)..)?;
    let mut options = Options::new(order, options, 0).map_while(Result::ok);
    let flags = options.find(|option| option.code == OPTION_FLAGS && option.value.len() == 4)?;
    match order.u32(flags.value, 0) & 3 {
        1 => Some(CaptureDirection::In),
        2 => Some(CaptureDirection::Out),
        _ => None,
    }
}

struct PacketFields {
    /// Counted within the section.
    interface: u32,
    ticks: u64,
    captured: u32,
    wire_len: u32,
}

/// Returns the byte order of the section header at the front.
fn byte_order(source: &Source) -> Result<ByteOrder, ReadError> {
    let magic = ByteOrder::Little.u32(source.bytes(), 8);
    if magic == BYTE_ORDER_MAGIC {
        return Ok(ByteOrder::Little);
    }
    if magic.swap_bytes() == BYTE_ORDER_MAGIC {
        return Ok(ByteOrder::Big);
    }
    let expected = "the byte-order magic 0x1a2b3c4d in either order";
    Err(ReadError::Malformed { offset: source.offset() + 8, expected, found: magic.into() })
}

/// Returns a name as text, up to a zero byte or the limit, with invalid UTF-8 replaced.
fn readable(name: &[u8]) -> String {
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    bounded_name(&String::from_utf8_lossy(&name[..name.len().min(4 * super::NAME_BYTES_MAX)])).to_owned()
}

struct RawOption<'a> {
    code: u16,
    value: &'a [u8],
    offset: u64,
}

/// Iterates over the options in `rest`, which lies at `offset` in the file. An option that leaves
/// its block is an error.
struct Options<'a> {
    order: ByteOrder,
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Options<'a> {
    fn new(order: ByteOrder, rest: &'a [u8], offset: u64) -> Options<'a> {
        Options { order, rest, offset }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<RawOption<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        const HEAD: usize = 4;
        let rest = std::mem::take(&mut self.rest);
        if rest.len() < HEAD {
            return None;
        }
        let (code, length) = (self.order.u16(rest, 0), usize::from(self.order.u16(rest, 2)));
        if code == OPTION_END {
            return None;
        }
        let offset = self.offset;
        let Some(value) = rest.get(HEAD..HEAD + length) else {
            let expected = "an option that ends within its block";
            return Some(Err(ReadError::Malformed { offset, expected, found: length as u64 }));
        };
        let padded = HEAD + length.next_multiple_of(4);
        self.rest = rest.get(padded..).unwrap_or_default();
        self.offset += padded as u64;
        Some(Ok(RawOption { code, value, offset }))
    }
}
