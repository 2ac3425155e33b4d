//! Capture files built field by field, so that the reader is not tested by its own writer.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use io::capture::{CaptureReader, CaptureRecord, ReadError};
use packet::LinkType;

/// A record that owns its bytes, to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub timestamp_ns: u64,
    pub interface: u32,
    pub link_type: LinkType,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

impl Owned {
    pub fn record(&self) -> CaptureRecord<'_> {
        CaptureRecord {
            timestamp_ns: self.timestamp_ns,
            interface: self.interface,
            link_type: self.link_type,
            wire_len: self.wire_len,
            data: &self.data,
        }
    }
}

impl From<CaptureRecord<'_>> for Owned {
    fn from(record: CaptureRecord<'_>) -> Owned {
        Owned {
            timestamp_ns: record.timestamp_ns,
            interface: record.interface,
            link_type: record.link_type,
            wire_len: record.wire_len,
            data: record.data.to_vec(),
        }
    }
}

/// Returns all records of a file, and the error that ended it.
pub fn read_all(file: &[u8]) -> (Vec<Owned>, Option<ReadError>) {
    match CaptureReader::new(Cursor::new(file.to_vec())) {
        Ok(mut reader) => drain(&mut reader),
        Err(error) => (Vec::new(), Some(error)),
    }
}

pub fn drain(reader: &mut CaptureReader) -> (Vec<Owned>, Option<ReadError>) {
    let mut records = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(record)) => records.push(record.into()),
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

pub fn gzipped(file: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(file).unwrap();
    encoder.finish().unwrap()
}

/// A file under construction, in one byte order.
#[derive(Clone, Default)]
pub struct Builder {
    pub big: bool,
    pub bytes: Vec<u8>,
}

impl Builder {
    pub fn new(big: bool) -> Builder {
        Builder { big, bytes: Vec::new() }
    }

    pub fn u8s(mut self, bytes: &[u8]) -> Builder {
        self.bytes.extend(bytes);
        self
    }

    pub fn u16(self, value: u16) -> Builder {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.u8s(&bytes)
    }

    pub fn u32(self, value: u32) -> Builder {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.u8s(&bytes)
    }

    pub fn u64(self, value: u64) -> Builder {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.u8s(&bytes)
    }

    pub fn pcap_header(self, magic: u32, minor: u16, link_type: u32) -> Builder {
        self.u32(magic).u16(2).u16(minor).u32(0).u32(0).u32(65_535).u32(link_type)
    }

    pub fn pcap_record(self, seconds: u32, fraction: u32, wire_len: u32, data: &[u8]) -> Builder {
        self.u32(seconds).u32(fraction).u32(data.len() as u32).u32(wire_len).u8s(data)
    }

    pub fn block(self, kind: u32, body: impl FnOnce(Builder) -> Builder) -> Builder {
        let mut inner = body(Builder::new(self.big)).bytes;
        inner.resize(inner.len().next_multiple_of(4), 0);
        let total = inner.len() as u32 + 12;
        self.u32(kind).u32(total).u8s(&inner).u32(total)
    }

    pub fn option(self, code: u16, value: &[u8]) -> Builder {
        let padding = value.len().next_multiple_of(4) - value.len();
        self.u16(code).u16(value.len() as u16).u8s(value).u8s(&[0, 0, 0][..padding])
    }

    pub fn section(self) -> Builder {
        self.block(0x0a0d_0d0a, |b| b.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX).option(4, b"by hand"))
    }

    pub fn interface(self, link_type: u16, options: impl FnOnce(Builder) -> Builder) -> Builder {
        self.block(1, |b| options(b.u16(link_type).u16(0).u32(0)).u32(0))
    }

    pub fn enhanced(self, interface: u32, ticks: u64, wire_len: u32, data: &[u8]) -> Builder {
        self.block(6, |b| {
            let mut b = b.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32).u32(data.len() as u32);
            b = b.u32(wire_len).u8s(data);
            b.bytes.resize(b.bytes.len().next_multiple_of(4), 0);
            b.option(2, &[0, 0, 0, 1]).u32(0)
        })
    }
}
