//! TCP options. RFC 9293 section 3.1, RFC 7323, RFC 2018, RFC 8684.

use super::WireError;
use super::bytes::Tlvs;

const NAME: &str = "TCP";

/// The most blocks of a SACK option that fit into a header.
pub const SACK_BLOCKS_MAX: usize = 4;

/// An option of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TcpOption<'a> {
    /// Padding (kind 1).
    NoOperation,
    /// The largest segment that the sender of the option can receive, in bytes of payload (kind 2).
    MaximumSegmentSize(u16),
    /// By how many bits the sender's window is shifted (kind 3); above 14 counts as 14. RFC 7323
    /// section 2.3.
    WindowScale(u8),
    /// Selective acknowledgments may be sent (kind 4).
    SackPermitted,
    /// Selective acknowledgments (kind 5).
    Sack(SackBlocks<'a>),
    /// Timestamps (kind 8), in units of the sender's choice.
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The clock that the sender got last; without meaning unless ACK is set.
        echo_reply: u32,
    },
    /// Multipath TCP (kind 30): the bytes after the length, for [`super::mptcp::Repr::parse`].
    Mptcp(&'a [u8]),
    /// Any other option.
    Unknown {
        /// Message type.
        kind: u8,
        /// The bytes after the length.
        data: &'a [u8],
    },
}

impl<'a> TcpOption<'a> {
    fn parse(kind: u8, data: &'a [u8]) -> Result<Self, WireError> {
        Ok(match (kind, data) {
            (1, _) => TcpOption::NoOperation,
            (2, &[high, low]) => TcpOption::MaximumSegmentSize(u16::from_be_bytes([high, low])),
            (3, &[shift]) => TcpOption::WindowScale(shift),
            (4, []) => TcpOption::SackPermitted,
            (5, blocks) if !blocks.is_empty() && blocks.len().is_multiple_of(8) => {
                TcpOption::Sack(SackBlocks { bytes: blocks })
            }
            (8, &[a, b, c, d, e, f, g, h]) => TcpOption::Timestamps {
                value: u32::from_be_bytes([a, b, c, d]),
                echo_reply: u32::from_be_bytes([e, f, g, h]),
            },
            (30, [_, ..]) => TcpOption::Mptcp(data),
            (2 | 3 | 4 | 5 | 8 | 30, _) => {
                return Err(WireError::Malformed { header: NAME, field: "option length" });
            }
            (kind, data) => TcpOption::Unknown { kind, data },
        })
    }
}

/// The blocks of a SACK option: the sequence numbers of a block's first byte and of the byte after
/// its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SackBlocks<'a> {
    /// A multiple of eight bytes.
    bytes: &'a [u8],
}

impl Iterator for SackBlocks<'_> {
    /// Left and right edge.
    type Item = (u32, u32);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&[a, b, c, d, e, f, g, h], rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
    }
}

/// Walks the options of a header, padding included; the list's end is not an item.
#[derive(Clone, Debug)]
pub struct Options<'a>(Tlvs<'a>);

impl<'a> Options<'a> {
    /// Returns the options in `bytes`, those between the fixed fields and the payload.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Options(Tlvs { header: NAME, rest: bytes })
    }
}

impl<'a> Iterator for Options<'a> {
    /// An error for a length that is not an option's own is followed by the options after it; one
    /// for a length that cannot be is the last item.
    type Item = Result<TcpOption<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.and_then(|(kind, data)| TcpOption::parse(kind, data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_syn() {
        let bytes = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7, 30, 4, 0, 1, 0, 9, 9];
        let options: Vec<_> = Options::new(&bytes).map(Result::unwrap).collect();
        assert_eq!(
            options,
            [
                TcpOption::MaximumSegmentSize(1460),
                TcpOption::SackPermitted,
                TcpOption::Timestamps { value: 1, echo_reply: 2 },
                TcpOption::NoOperation,
                TcpOption::WindowScale(7),
                TcpOption::Mptcp(&[0, 1]),
            ]
        );
    }

    #[test]
    fn sack_blocks() {
        let bytes = [5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 254, 3, 1];
        let mut options = Options::new(&bytes);
        let Some(Ok(TcpOption::Sack(blocks))) = options.next() else { panic!("no SACK") };
        assert_eq!(blocks.collect::<Vec<_>>(), [(1, 2), (3, 4)]);
        assert_eq!(options.next(), Some(Ok(TcpOption::Unknown { kind: 254, data: &[1] })));
        assert_eq!(options.next(), None);
    }

    #[test]
    fn wrong_lengths() {
        let wrong_for_mss = [2, 3, 0, 4, 2];
        let mut options = Options::new(&wrong_for_mss);
        assert!(options.next().unwrap().is_err());
        assert_eq!(options.next(), Some(Ok(TcpOption::SackPermitted)));
        for impossible in [&[9, 1][..], &[9, 0], &[9], &[9, 3]] {
            let mut options = Options::new(impossible);
            assert!(options.next().unwrap().is_err());
            assert_eq!(options.next(), None);
        }
    }
}
