//! Link types: the format of a frame's first header.

/// The format of the outermost header of a captured or received frame, by its `LINKTYPE_` number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkType {
    /// BSD loopback: a 4-byte address family in the byte order of the capturing host (0; 108 in
    /// network order).
    Null,
    /// Ethernet II or 802.3 (1).
    #[default]
    Ethernet,
    /// PPP, with or without the 0xff03 address and control bytes (9; 50 in HDLC framing).
    Ppp,
    /// Raw IP, IPv4 or IPv6 by the version nibble (101, 12, 14; 228 and 229 fix the version).
    RawIp,
    /// OpenBSD loopback: like [`LinkType::Null`], always in network byte order (108).
    Loop,
    /// Linux "cooked" capture, version 1 (113).
    LinuxSll,
    /// Linux "cooked" capture, version 2 (276).
    LinuxSll2,
    /// Any other number, passed through unchanged. `docs/link-types.md` lists the supported ones.
    Other(u16),
}

impl LinkType {
    /// Returns the link type of a capture file's number.
    pub fn from_number(number: u16) -> LinkType {
        match number {
            0 => LinkType::Null,
            1 => LinkType::Ethernet,
            9 | 50 => LinkType::Ppp,
            12 | 14 | 101 | 228 | 229 => LinkType::RawIp,
            108 => LinkType::Loop,
            113 => LinkType::LinuxSll,
            276 => LinkType::LinuxSll2,
            other => LinkType::Other(other),
        }
    }

    /// Returns the number for a capture file.
    pub fn number(self) -> u16 {
        match self {
            LinkType::Null => 0,
            LinkType::Ethernet => 1,
            LinkType::Ppp => 9,
            LinkType::RawIp => 101,
            LinkType::Loop => 108,
            LinkType::LinuxSll => 113,
            LinkType::LinuxSll2 => 276,
            LinkType::Other(number) => number,
        }
    }
}
