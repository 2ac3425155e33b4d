//! Multipath TCP options. RFC 8684 section 3 (version 1), RFC 6824 section 3 (version 0).
//!
//! They are the bytes of [`TcpOption::Mptcp`](super::tcp_option::TcpOption::Mptcp). Options that
//! begin connections and sub-flows and options that map data are read in full.

use super::WireError;
use super::bytes::{Field, fits, room};

const NAME: &str = "MPTCP";

/// Length of the message authentication code in the third packet of a joining handshake.
pub const HMAC_LEN: usize = 20;

const CAPABLE: u8 = 0;
const JOIN: u8 = 1;
const DATA_SEQUENCE: u8 = 2;

/// Bits of the flags of MP_CAPABLE.
const CHECKSUMS: u8 = 0x80;
const HMAC_SHA: u8 = 0x01;
/// Bits of the flags of DSS.
const DATA_FIN: u8 = 0x10;
const LONG_SEQUENCE: u8 = 0x08;
const HAS_MAPPING: u8 = 0x04;
const LONG_ACK: u8 = 0x02;
const HAS_ACK: u8 = 0x01;
/// The bit of MP_JOIN that makes a sub-flow a backup.
const BACKUP: u8 = 1;

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repr {
    /// MP_CAPABLE: begins a connection with its first sub-flow (3.1).
    Capable(MptcpCapable),
    /// MP_JOIN: begins another sub-flow (3.2).
    Join(MptcpJoin),
    /// DSS: maps a sub-flow's bytes to the connection's, and acknowledges those (3.3).
    DataSequence(DataSequenceSignal),
    /// Any other option.
    Other {
        /// The first four bits.
        subtype: u8,
    },
}

/// The option of the packets that begin a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MptcpCapable {
    /// Version of the protocol: 0 or 1 as yet, up to 15.
    pub version: u8,
    /// Data carries checksums.
    pub checksums: bool,
    /// The version's hash function is used; versions 0 and 1 have no other.
    pub uses_hmac: bool,
    /// Keys.
    pub keys: CapableKeys,
}

/// The keys that MP_CAPABLE carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CapableKeys {
    /// In a SYN of version 1.
    None,
    /// In a SYN of version 0, and in a SYN-ACK.
    Sender(u64),
    /// In the third packet, and until it is acknowledged.
    Both {
        /// Key of the packet's sender.
        sender: u64,
        /// Key of its receiver.
        receiver: u64,
        /// The first data, in version 1: bytes of payload, and their checksum.
        data: Option<(u16, Option<u16>)>,
    },
}

/// The option of the packets that begin a further sub-flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MptcpJoin {
    /// In a SYN.
    Syn {
        /// Other sub-flows are preferred.
        backup: bool,
        /// Number of the sender's address.
        address_id: u8,
        /// Token of the receiver, which names the connection.
        token: u32,
        /// The sender's random number.
        nonce: u32,
    },
    /// In a SYN-ACK.
    SynAck {
        /// Other sub-flows are preferred.
        backup: bool,
        /// Number of the sender's address.
        address_id: u8,
        /// The first eight bytes of the sender's message authentication code.
        hmac: [u8; 8],
        /// The sender's random number.
        nonce: u32,
    },
    /// In the third packet.
    Ack {
        /// The sender's message authentication code.
        hmac: [u8; HMAC_LEN],
    },
}

/// A data sequence signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataSequenceSignal {
    /// The sender of the option has no data after the mapping.
    pub data_fin: bool,
    /// The next byte of the connection that the sender expects.
    pub ack: Option<DataNumber>,
    /// The place of a sub-flow's bytes in the connection.
    pub mapping: Option<DataMapping>,
}

/// A data sequence number as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataNumber {
    /// The low 32 bits.
    Short(u32),
    /// All 64 bits.
    Long(u64),
}

impl DataNumber {
    /// Returns the low 32 bits.
    #[inline]
    pub fn low(self) -> u32 {
        match self {
            DataNumber::Short(low) => low,
            DataNumber::Long(number) => number as u32,
        }
    }

    fn is_long(self) -> bool {
        matches!(self, DataNumber::Long(_))
    }

    fn len(self) -> usize {
        if self.is_long() { 8 } else { 4 }
    }
}

/// The place of a sub-flow's bytes in the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataMapping {
    /// Data sequence number of the first byte.
    pub data: DataNumber,
    /// Sequence number of the first byte in the sub-flow, relative to that of its SYN; 0 if the
    /// option maps no payload.
    pub subflow: u32,
    /// Bytes, DATA_FIN included, which takes a data sequence number; 0 if the rest of the sub-flow
    /// is mapped (3.7).
    pub len: u16,
    /// The checksum, if the connection uses them.
    pub checksum: Option<u16>,
}

impl Repr {
    /// Parses the bytes after the option's length.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] if the length is none that the subtype has.
    #[inline]
    pub fn parse(data: &[u8]) -> Result<Repr, WireError> {
        let wrong = WireError::Malformed { header: NAME, field: "length" };
        let &[first, ..] = data else { return Err(wrong) };
        match first >> 4 {
            CAPABLE => MptcpCapable::parse(data).map(Repr::Capable).ok_or(wrong),
            JOIN => MptcpJoin::parse(data).map(Repr::Join).ok_or(wrong),
            DATA_SEQUENCE => DataSequenceSignal::parse(data).map(Repr::DataSequence).ok_or(wrong),
            subtype => Ok(Repr::Other { subtype }),
        }
    }

    /// Returns the bytes that [`Repr::emit`] writes.
    pub fn buffer_len(&self) -> usize {
        match self {
            Repr::Capable(capable) => match capable.keys {
                CapableKeys::None => 2,
                CapableKeys::Sender(_) => 10,
                CapableKeys::Both { data: None, .. } => 18,
                CapableKeys::Both { data: Some((_, None)), .. } => 20,
                CapableKeys::Both { data: Some((_, Some(_))), .. } => 22,
            },
            Repr::Join(MptcpJoin::Syn { .. }) => 10,
            Repr::Join(MptcpJoin::SynAck { .. }) => 14,
            Repr::Join(MptcpJoin::Ack { .. }) => 22,
            Repr::DataSequence(signal) => signal.len(),
            Repr::Other { .. } => 1,
        }
    }

    /// Writes the bytes after the option's length to the start of `buffer`; of another option, the
    /// subtype.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; [`WireError::Unrepresentable`] for a version or a subtype of more
    /// than four bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        let mut writer = Writer { rest: room(NAME, buffer, self.buffer_len())? };
        match *self {
            Repr::Capable(MptcpCapable { version, checksums, uses_hmac, keys }) => {
                fits(version < 16, NAME, "version")?;
                writer.put(CAPABLE << 4 | version);
                writer.put(flag(checksums, CHECKSUMS) | flag(uses_hmac, HMAC_SHA));
                match keys {
                    CapableKeys::None => {}
                    CapableKeys::Sender(key) => writer.put(key),
                    CapableKeys::Both { sender, receiver, data } => {
                        writer.put(sender);
                        writer.put(receiver);
                        if let Some((len, checksum)) = data {
                            writer.put(len);
                            checksum.into_iter().for_each(|checksum| writer.put(checksum));
                        }
                    }
                }
            }
            Repr::Join(MptcpJoin::Syn { backup, address_id, token, nonce }) => {
                writer.put(JOIN << 4 | flag(backup, BACKUP));
                writer.put(address_id);
                writer.put(token);
                writer.put(nonce);
            }
            Repr::Join(MptcpJoin::SynAck { backup, address_id, hmac, nonce }) => {
                writer.put(JOIN << 4 | flag(backup, BACKUP));
                writer.put(address_id);
                hmac.into_iter().for_each(|byte| writer.put(byte));
                writer.put(nonce);
            }
            Repr::Join(MptcpJoin::Ack { hmac }) => {
                writer.put(u16::from(JOIN) << 12);
                hmac.into_iter().for_each(|byte| writer.put(byte));
            }
            Repr::DataSequence(signal) => signal.emit(&mut writer),
            Repr::Other { subtype } => {
                fits(subtype < 16, NAME, "subtype")?;
                writer.put(subtype << 4);
            }
        }
        Ok(())
    }
}

impl MptcpCapable {
    fn parse(data: &[u8]) -> Option<MptcpCapable> {
        let (&[first, flags], mut rest) = data.split_first_chunk()?;
        let keys = match rest.len() {
            0 => CapableKeys::None,
            8 => CapableKeys::Sender(take(&mut rest)?),
            16 | 18 | 20 => CapableKeys::Both {
                sender: take(&mut rest)?,
                receiver: take(&mut rest)?,
                data: take(&mut rest).map(|len| (len, take(&mut rest))),
            },
            _ => return None,
        };
        Some(MptcpCapable {
            version: first & 0xf,
            checksums: flags & CHECKSUMS != 0,
            uses_hmac: flags & HMAC_SHA != 0,
            keys,
        })
    }
}

impl MptcpJoin {
    fn parse(data: &[u8]) -> Option<MptcpJoin> {
        let (&[first, address_id], mut rest) = data.split_first_chunk()?;
        let backup = first & BACKUP != 0;
        Some(match rest.len() {
            8 => MptcpJoin::Syn { backup, address_id, token: take(&mut rest)?, nonce: take(&mut rest)? },
            12 => {
                let (&hmac, mut rest) = rest.split_first_chunk()?;
                MptcpJoin::SynAck { backup, address_id, hmac, nonce: take(&mut rest)? }
            }
            HMAC_LEN => MptcpJoin::Ack { hmac: *rest.first_chunk()? },
            _ => return None,
        })
    }
}

impl DataSequenceSignal {
    fn parse(data: &[u8]) -> Option<DataSequenceSignal> {
        let (&[_, flags], mut rest) = data.split_first_chunk()?;
        let has = |flag| flags & flag != 0;
        let ack = if has(HAS_ACK) { Some(number(&mut rest, has(LONG_ACK))?) } else { None };
        let mapping = if has(HAS_MAPPING) {
            Some(DataMapping {
                data: number(&mut rest, has(LONG_SEQUENCE))?,
                subflow: take(&mut rest)?,
                len: take(&mut rest)?,
                checksum: take(&mut rest),
            })
        } else {
            None
        };
        rest.is_empty().then_some(DataSequenceSignal { data_fin: has(DATA_FIN), ack, mapping })
    }

    fn len(&self) -> usize {
        let ack = self.ack.map_or(0, DataNumber::len);
        let of_mapping = |mapping: DataMapping| mapping.data.len() + 6 + 2 * mapping.checksum.iter().len();
        2 + ack + self.mapping.map_or(0, of_mapping)
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        let DataSequenceSignal { data_fin, ack, mapping } = *self;
        let long_mapping = mapping.is_some_and(|mapping| mapping.data.is_long());
        writer.put(DATA_SEQUENCE << 4);
        writer.put(
            flag(data_fin, DATA_FIN)
                | flag(long_mapping, LONG_SEQUENCE)
                | flag(mapping.is_some(), HAS_MAPPING)
                | flag(ack.is_some_and(DataNumber::is_long), LONG_ACK)
                | flag(ack.is_some(), HAS_ACK),
        );
        ack.into_iter().for_each(|ack| writer.put_number(ack));
        if let Some(DataMapping { data, subflow, len, checksum }) = mapping {
            writer.put_number(data);
            writer.put(subflow);
            writer.put(len);
            checksum.into_iter().for_each(|checksum| writer.put(checksum));
        }
    }
}

/// Takes a field from the front; `None`, and nothing is taken, if there are too few bytes.
#[inline]
fn take<T: Field>(rest: &mut &[u8]) -> Option<T> {
    let (field, after) = rest.split_at_checked(size_of::<T>())?;
    *rest = after;
    Some(T::read(field))
}

fn number(rest: &mut &[u8], is_long: bool) -> Option<DataNumber> {
    if is_long { take(rest).map(DataNumber::Long) } else { take(rest).map(DataNumber::Short) }
}

fn flag(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

/// Writes fields one after another to a buffer that has room for all.
struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    fn put<T: Field>(&mut self, value: T) {
        let (field, rest) = std::mem::take(&mut self.rest).split_at_mut(size_of::<T>());
        value.write(field);
        self.rest = rest;
    }

    fn put_number(&mut self, number: DataNumber) {
        match number {
            DataNumber::Short(low) => self.put(low),
            DataNumber::Long(all) => self.put(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options that Linux 6.18 sent, as captured, after kind and length.
    #[test]
    fn options_of_linux() {
        let capable =
            |keys| Repr::Capable(MptcpCapable { version: 1, checksums: false, uses_hmac: true, keys });
        let (client, server) = (0xac37_d97a_1ecb_8bcb, 0xaf93_9f8b_892a_a3c1);
        let third = "0101ac37d97a1ecb8bcbaf939f8b892aa3c1";
        let cases = [
            ("0101".to_owned(), capable(CapableKeys::None)),
            ("0101af939f8b892aa3c1".to_owned(), capable(CapableKeys::Sender(server))),
            (third.to_owned(), capable(CapableKeys::Both { sender: client, receiver: server, data: None })),
            (
                format!("{third}03e8"),
                capable(CapableKeys::Both { sender: client, receiver: server, data: Some((1000, None)) }),
            ),
            (
                "1001c01f82fae660ca28".to_owned(),
                Repr::Join(MptcpJoin::Syn {
                    backup: false,
                    address_id: 1,
                    token: 0xc01f_82fa,
                    nonce: 3_865_102_888,
                }),
            ),
            (
                "10003f042a292239746ff630e8e0".to_owned(),
                Repr::Join(MptcpJoin::SynAck {
                    backup: false,
                    address_id: 0,
                    hmac: 0x3f04_2a29_2239_746f_u64.to_be_bytes(),
                    nonce: 4_130_400_480,
                }),
            ),
            (
                "1000af49998d7140dabd646ae6f0936cea2e8220546f".to_owned(),
                Repr::Join(MptcpJoin::Ack {
                    hmac:
                        *b"\xaf\x49\x99\x8d\x71\x40\xda\xbd\x64\x6a\xe6\xf0\x93\x6c\xea\x2e\x82\x20\x54\x6f",
                }),
            ),
        ];
        for (text, repr) in cases {
            let bytes = hex(&text);
            assert_eq!(Repr::parse(&bytes), Ok(repr), "{text}");
            let mut written = vec![0xa5; repr.buffer_len()];
            repr.emit(&mut written).unwrap();
            assert_eq!(written, bytes, "{text}");
        }
    }

    #[test]
    fn foreign_lengths_are_malformed() {
        for text in ["", "01", "010100", "10", "1000", "20", "200400", "2001000000", "200101020304ff"] {
            assert!(Repr::parse(&hex(text)).is_err(), "{text}");
        }
        assert_eq!(Repr::parse(&[0x3f, 1, 2]), Ok(Repr::Other { subtype: 3 }));
        // A data sequence signal of nothing.
        let nothing = DataSequenceSignal { data_fin: false, ack: None, mapping: None };
        assert_eq!(Repr::parse(&[0x20, 0]), Ok(Repr::DataSequence(nothing)));
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits = text.as_bytes().chunks(2);
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }
}
