//! A decoder of IPFIX messages for tests, strict about all rules of RFC 7011 for the messages sent
//! here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{HashMap, HashSet};

/// (element, enterprise) with its value.
pub type Record = HashMap<(u16, u32), Vec<u8>>;

pub struct Message {
    pub export_time_s: u32,
    pub sequence: u32,
    pub domain: u32,
    /// Identifiers of the templates in it.
    pub templates: Vec<u16>,
    pub records: Vec<Record>,
    /// Records of options templates, each with the number of `records` before it.
    pub options: Vec<(usize, Record)>,
}

/// One session: remembers templates.
#[derive(Default)]
pub struct Decoder {
    templates: HashMap<u16, Vec<(u16, u32, usize)>>,
    /// The options templates among them.
    options: HashSet<u16>,
}

impl Decoder {
    /// Decodes the message at the front of `bytes`, and returns what follows it.
    pub fn message<'b>(&mut self, bytes: &'b [u8]) -> (Message, &'b [u8]) {
        let (header, _) = bytes.split_at(16);
        assert_eq!(u16_at(header, 0), 10, "version");
        let (bytes, rest) = bytes.split_at(usize::from(u16_at(header, 2)));
        let mut message = Message {
            export_time_s: u32_at(header, 4),
            sequence: u32_at(header, 8),
            domain: u32_at(header, 12),
            templates: Vec::new(),
            records: Vec::new(),
            options: Vec::new(),
        };
        let mut sets = &bytes[16..];
        while !sets.is_empty() {
            let (set, after) = sets.split_at(usize::from(u16_at(sets, 2)));
            sets = after;
            assert!(set.len() > 4, "a set has at least one record (RFC 7011 3.3.1)");
            match u16_at(set, 0) {
                2 => self.template_set(&set[4..], &mut message),
                3 => self.options_template_set(&set[4..]),
                id @ 256.. => self.data_set(id, &set[4..], &mut message),
                id => panic!("set {id}"),
            }
        }
        (message, rest)
    }

    /// Decodes messages one after the other (RFC 5655).
    pub fn file(&mut self, mut bytes: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let (message, rest) = self.message(bytes);
            messages.push(message);
            bytes = rest;
        }
        messages
    }

    fn template_set(&mut self, mut bytes: &[u8], message: &mut Message) {
        while !bytes.is_empty() {
            let (id, count) = (u16_at(bytes, 0), u16_at(bytes, 2));
            assert!(id >= 256 && count > 0);
            bytes = &bytes[4..];
            let mut fields = Vec::new();
            for _ in 0..count {
                let (element, len) = (u16_at(bytes, 0), usize::from(u16_at(bytes, 2)));
                bytes = &bytes[4..];
                let mut enterprise = 0;
                if element & 0x8000 != 0 {
                    enterprise = u32_at(bytes, 0);
                    bytes = &bytes[4..];
                }
                fields.push((element & 0x7fff, enterprise, len));
            }
            message.templates.push(id);
            let before = self.templates.insert(id, fields.clone());
            assert!(before.is_none_or(|before| before == fields), "a template does not change");
        }
    }

    fn options_template_set(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (id, count, scopes) = (u16_at(bytes, 0), u16_at(bytes, 2), u16_at(bytes, 4));
            assert!(id >= 256 && 0 < scopes && scopes <= count);
            bytes = &bytes[6..];
            let (fields, rest) = bytes.split_at(4 * usize::from(count));
            bytes = rest;
            let fields: Vec<_> =
                fields.chunks(4).map(|field| (u16_at(field, 0), 0, usize::from(u16_at(field, 2)))).collect();
            self.options.insert(id);
            let before = self.templates.insert(id, fields.clone());
            assert!(before.is_none_or(|before| before == fields), "a template does not change");
        }
    }

    fn data_set(&mut self, id: u16, mut bytes: &[u8], message: &mut Message) {
        let fields = self.templates.get(&id).expect("the template comes first");
        while !bytes.is_empty() {
            let mut record = Record::new();
            for &(element, enterprise, len) in fields {
                let (value, rest) = bytes.split_at(len);
                bytes = rest;
                assert!(record.insert((element, enterprise), value.to_vec()).is_none(), "an element twice");
            }
            match self.options.contains(&id) {
                true => message.options.push((message.records.len(), record)),
                false => message.records.push(record),
            }
        }
    }
}

/// Returns a value as a number.
pub fn number(record: &Record, element: u16, enterprise: u32) -> u64 {
    let value = record.get(&(element, enterprise)).unwrap_or_else(|| panic!("no {element}/{enterprise}"));
    assert!(value.len() <= 8);
    value.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}
