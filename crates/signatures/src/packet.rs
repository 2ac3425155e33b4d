//! Tests of a packet's headers and size.

use crate::flow::StreamSize;
use crate::number::Comparison;

/// A test of one packet. It fails if the packet lacks the tested header or option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketTest {
    /// `dsize`: bytes of payload after the TCP, UDP or ICMP header. Rules that inspect streams or
    /// application buffers cannot have it.
    PayloadBytes(Comparison<u16>),
    /// `ttl`: the time to live or hop limit.
    Ttl(Comparison<u8>),
    /// `tos`: the whole type-of-service byte of IPv4 or traffic class of IPv6.
    Tos {
        /// True if the value must differ.
        negated: bool,
        /// The byte.
        value: u8,
    },
    /// `id`: IPv4's identification.
    IpId(Comparison<u16>),
    /// `ip_proto`: the IP protocol number.
    IpProtocol(Comparison<u8>),
    /// `sameip`: source and destination address are equal.
    SameAddress,
    /// `ipopts`: an IPv4 option is present.
    IpOption(IpOption),
    /// `fragbits`: the flags next to the fragment offset.
    FragmentBits(FlagTest),
    /// `fragoffset`: the raw fragment offset, in units of eight bytes.
    FragmentOffset(Comparison<u16>),
    /// `flags`: TCP's flags.
    TcpFlags(FlagTest),
    /// `seq`: the raw TCP sequence number.
    Sequence(Comparison<u32>),
    /// `ack`: the raw TCP acknowledgement number.
    Acknowledgement(Comparison<u32>),
    /// `window`: the raw TCP window, not scaled.
    Window(Comparison<u16>),
    /// `tcp.mss`: the option's value.
    Mss(Comparison<u16>),
    /// `tcp.wscale`: the option's value.
    WindowScale(Comparison<u8>),
    /// `itype`: ICMP's type, of either version.
    IcmpType(Comparison<u8>),
    /// `icode`: ICMP's code, of either version.
    IcmpCode(Comparison<u8>),
    /// `icmp_id`: the identifier of an ICMP message that has one, such as echo.
    IcmpId(u16),
    /// `icmp_seq`: its sequence number.
    IcmpSequence(u16),
    /// `stream_size`.
    StreamSize(StreamSize),
}

/// A test of flags. Bits in `ignored` count as not set: in `flags:S,12`, the two reserved bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlagTest {
    /// The kind of comparison.
    pub mode: FlagTestMode,
    /// The bits, with their values in [`FlagTest::TCP`] or [`FlagTest::FRAGMENT`].
    pub bits: u8,
    /// Ignored bits.
    pub ignored: u8,
}

/// The kind of comparison of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlagTestMode {
    /// Exactly these; with no bits, `flags:0`, none at all.
    Exactly,
    /// `+`: all of these, and possibly others.
    All,
    /// `*`: any of these.
    Any,
    /// `!`: not all of these.
    NotAll,
}

impl FlagTest {
    /// TCP flags by letter, as in the header's 14th byte (RFC 9293, section 3.1). `C` and `E` are
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

    /// IPv4 flags by letter: more fragments, do not fragment, reserved; the top three bits of the
    /// header's seventh byte, shifted down (RFC 791, section 3.1).
    pub const FRAGMENT: [(char, u8); 3] = [('M', 0x01), ('D', 0x02), ('R', 0x04)];

    /// Returns whether these flags match.
    #[inline]
    pub fn holds(self, flags: u8) -> bool {
        let flags = flags & !self.ignored;
        match self.mode {
            FlagTestMode::Exactly => flags == self.bits,
            FlagTestMode::All => flags & self.bits == self.bits,
            FlagTestMode::Any => flags & self.bits != 0,
            FlagTestMode::NotAll => flags & self.bits != self.bits,
        }
    }
}

/// An IPv4 option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpOption {
    /// Any option.
    Any,
    /// The option of this type byte, including its copied flag and class.
    Type(u8),
}

impl IpOption {
    /// The option names in rules, and their type bytes (IANA, "IP Option Numbers").
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
