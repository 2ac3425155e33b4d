//! What rules ask of a packet's headers and size.

use crate::flow::StreamSize;
use crate::number::Comparison;

/// A test of one packet. A packet without the header or option that a test looks at fails it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketTest {
    /// `dsize`: bytes of payload behind the TCP, UDP or ICMP header. Rules that look at streams or
    /// application buffers do not have it.
    PayloadBytes(Comparison<u16>),
    /// `ttl`: the time to live or hop limit.
    Ttl(Comparison<u8>),
    /// `tos`: the whole byte of IPv4's type of service, or IPv6's traffic class.
    Tos {
        /// Whether the value is the one that it must not be.
        negated: bool,
        /// The byte.
        value: u8,
    },
    /// `id`: IPv4's identification.
    IpId(Comparison<u16>),
    /// `ip_proto`: the protocol of the payload by number.
    IpProtocol(Comparison<u8>),
    /// `sameip`: source and destination address are the same.
    SameAddress,
    /// `ipopts`: IPv4 has the option.
    IpOption(IpOption),
    /// `fragbits`: the flags beside the fragment offset.
    FragmentBits(Bits),
    /// `fragoffset`: the fragment offset as it stands in the header, in units of eight bytes.
    FragmentOffset(Comparison<u16>),
    /// `flags`: TCP's flags.
    TcpFlags(Bits),
    /// `seq`: TCP's sequence number as it stands in the header.
    Sequence(Comparison<u32>),
    /// `ack`: TCP's acknowledgement number, likewise.
    Acknowledgement(Comparison<u32>),
    /// `window`: TCP's window as it stands in the header, not scaled.
    Window(Comparison<u16>),
    /// `tcp.mss`: the option's value.
    Mss(Comparison<u16>),
    /// `tcp.wscale`: the option's value.
    WindowScale(Comparison<u8>),
    /// `itype`: ICMP's type, of either version.
    IcmpType(Comparison<u8>),
    /// `icode`: ICMP's code, of either version.
    IcmpCode(Comparison<u8>),
    /// `icmp_id`: the identifier of an ICMP message that has one (echo and the like).
    IcmpId(u16),
    /// `icmp_seq`: its sequence number.
    IcmpSequence(u16),
    /// `stream_size`.
    StreamSize(StreamSize),
}

/// A test of flags. `ignored` bits are taken as not set before the test: in `flags:S,12`, the two
/// reserved bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bits {
    /// How they are compared.
    pub mode: BitsMode,
    /// The bits, with the values that they have in [`Bits::TCP`] or [`Bits::FRAGMENT`].
    pub bits: u8,
    /// Bits that do not matter.
    pub ignored: u8,
}

/// How flags are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitsMode {
    /// Those and no other; `flags:0`, with no bits: none at all.
    Exactly,
    /// `+`: all of those, whatever the others are.
    All,
    /// `*`: any of those.
    Any,
    /// `!`: not all of those.
    NotAll,
}

impl Bits {
    /// TCP's flags by letter, as in the header's 14th byte (RFC 9293, section 3.1). `C` and `E` are
    /// also `1` and `2`.
    pub const TCP: [(char, u8); 8] = [
        ('F', 0x01),
        ('S', 0x02),
        ('R', 0x04),
        ('P', 0x08),
        ('A', 0x10),
        ('U', 0x20),
        ('E', 0x40),
        ('C', 0x80),
    ];

    /// IPv4's flags by letter: more fragments, do not fragment, reserved; the topmost three bits of
    /// the header's seventh byte, moved down (RFC 791, section 3.1).
    pub const FRAGMENT: [(char, u8); 3] = [('M', 0x01), ('D', 0x02), ('R', 0x04)];

    /// Whether the test holds for these flags.
    #[inline]
    pub fn holds(self, flags: u8) -> bool {
        let flags = flags & !self.ignored;
        match self.mode {
            BitsMode::Exactly => flags == self.bits,
            BitsMode::All => flags & self.bits == self.bits,
            BitsMode::Any => flags & self.bits != 0,
            BitsMode::NotAll => flags & self.bits != self.bits,
        }
    }
}

/// An option of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpOption {
    /// Any option.
    Any,
    /// The option of this type byte, with its copied flag and class.
    Type(u8),
}

impl IpOption {
    /// The names that rules have for options, and their type bytes (IANA, "IP Option Numbers").
    pub const NAMES: [(&'static str, u8); 12] = [
        ("eol", 0),
        ("nop", 1),
        ("rr", 7),
        ("qs", 25),
        ("ts", 68),
        ("sec", 130),
        ("lsrr", 131),
        ("esec", 133),
        ("cipso", 134),
        ("satid", 136),
        ("ssrr", 137),
        ("rtralt", 148),
    ];
}
