//! The pcap format: one header, one link type, then records (draft-ietf-opsawg-pcap).

use packet::LinkType;

use super::error::ReadError;
use super::fields::{ByteOrder, RecordFields, at_end, require};
use super::source::Source;
use super::{CaptureInterface, RECORD_BYTES_MAX, time};

/// Bytes of the file header.
pub(super) const FILE_HEADER_BYTES: usize = 24;
/// Bytes of a record header.
pub(super) const RECORD_HEADER_BYTES: usize = 16;
/// Bytes of the modified record header, which also has an interface index, a protocol and a packet
/// type.
const MODIFIED_RECORD_HEADER_BYTES: usize = 24;

pub(super) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

pub(super) const VERSION_MAJOR: u16 = 2;
pub(super) const VERSION_MINOR: u16 = 4;
/// Before this version, a record's two lengths were in reverse order; in it, both orders were
/// written.
const VERSION_MINOR_MIXED_LENGTHS: u16 = 3;

/// Properties that follow from the magic number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    order: ByteOrder,
    fraction_ns: u64,
    record_header_bytes: usize,
}

impl Variant {
    pub fn of_magic(magic: [u8; 4]) -> Option<Variant> {
        Variant::of_number(u32::from_le_bytes(magic), ByteOrder::Little)
            .or_else(|| Variant::of_number(u32::from_be_bytes(magic), ByteOrder::Big))
    }

    fn of_number(magic: u32, order: ByteOrder) -> Option<Variant> {
        let (fraction_ns, record_header_bytes) = match magic {
            MAGIC_MICROSECONDS => (1_000, RECORD_HEADER_BYTES),
            MAGIC_NANOSECONDS => (1, RECORD_HEADER_BYTES),
            MAGIC_MODIFIED => (1_000, MODIFIED_RECORD_HEADER_BYTES),
            _ => return None,
        };
        Some(Variant { order, fraction_ns, record_header_bytes })
    }
}

/// Order of a record's two length fields.
#[derive(Clone, Copy, Debug)]
enum LengthOrder {
    CapturedFirst,
    WireFirst,
    /// The smaller one is the captured length.
    Either,
}

/// Parses the records after a file header.
#[derive(Debug)]
pub(super) struct Parser {
    variant: Variant,
    length_order: LengthOrder,
}

impl Parser {
    /// Reads the file header and adds the file's one interface.
    pub fn new(
        variant: Variant,
        source: &mut Source,
        interfaces: &mut Vec<CaptureInterface>,
    ) -> Result<Parser, ReadError> {
        require(source, FILE_HEADER_BYTES, "a pcap file header")?;
        let (header, order) = (source.bytes(), variant.order);
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        if major != VERSION_MAJOR {
            return Err(ReadError::Version { offset: 4, expected: "pcap version 2", major, minor });
        }
        // The upper half of the field is the length of the frame check sequence, the lower half the
        // link type.
        let link_type = LinkType::from_number(order.u32(header, 20) as u16);
        interfaces.push(CaptureInterface { link_type, name: None, snapshot_bytes: order.u32(header, 16) });
        source.consume(FILE_HEADER_BYTES);
        let length_order = match minor {
            ..VERSION_MINOR_MIXED_LENGTHS => LengthOrder::WireFirst,
            VERSION_MINOR_MIXED_LENGTHS => LengthOrder::Either,
            _ => LengthOrder::CapturedFirst,
        };
        Ok(Parser { variant, length_order })
    }

    /// Returns the record at the front of `source`, or `None` at the end.
    pub fn next(&mut self, source: &mut Source) -> Result<Option<RecordFields>, ReadError> {
        if at_end(source)? {
            return Ok(None);
        }
        let Variant { order, fraction_ns, record_header_bytes } = self.variant;
        require(source, record_header_bytes, "a record header")?;
        let header = source.bytes();
        let timestamp_ns = Some(time::from_parts(order.u32(header, 0), order.u32(header, 4), fraction_ns));
        let (captured, wire_len) = self.lengths(order.u32(header, 8), order.u32(header, 12));
        if captured > RECORD_BYTES_MAX {
            return Err(ReadError::TooLarge {
                offset: source.offset(),
                expected: "a captured length",
                found: captured.into(),
                limit: RECORD_BYTES_MAX.into(),
            });
        }
        let total = record_header_bytes + captured as usize;
        require(source, total, "a record")?;
        Ok(Some(RecordFields {
            timestamp_ns,
            interface: 0,
            wire_len,
            data: record_header_bytes..total,
            total,
            direction: None,
        }))
    }

    /// Returns the captured and the wire length, given the two fields in the file's order.
    fn lengths(&self, first: u32, second: u32) -> (u32, u32) {
        match self.length_order {
            LengthOrder::CapturedFirst => (first, second),
            LengthOrder::WireFirst => (second, first),
            LengthOrder::Either => (first.min(second), first.max(second)),
        }
    }
}
