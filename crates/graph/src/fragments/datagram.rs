//! The identity of a fragmented datagram.

use nf::source_of;
use packet::{Addr, FlowHasher, FlowKey, Packet, parse, split_mix};

/// The identity of a fragment's datagram: addresses and protocol in one direction, and the
/// identification field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    pub(crate) key: FlowKey,
    pub(crate) reversed: bool,
    pub(crate) id: u32,
}

impl Datagram {
    /// Returns its parts, for a message: the key of its fragments, true if they go from the key's
    /// second end to its first, and the identification.
    pub fn parts(&self) -> (FlowKey, bool, u32) {
        (self.key, self.reversed, self.id)
    }

    /// Creates a datagram from its parts.
    pub fn from_parts(key: FlowKey, reversed: bool, id: u32) -> Datagram {
        Datagram { key, reversed, id }
    }

    /// Returns the datagram of a fragment.
    pub(crate) fn of(packet: &Packet) -> Datagram {
        let (mut key, reversed) = parse::portless_key(packet);
        if key.version == 6 {
            key.protocol = 0; // The first fragment may have extension headers that the others have not.
        }
        Datagram { key, reversed, id: parse::fragment_id(packet) }
    }

    /// Returns its source for accounts: the IPv4 address or the IPv6 /64.
    pub(crate) fn source(&self) -> Addr {
        source_of(self.key.ends(self.reversed).0.addr)
    }

    /// Returns a hash that is the same for all fragments.
    pub(crate) fn mixed(&self, hasher: &FlowHasher) -> u64 {
        split_mix(&mut (hasher.hash(&self.key) ^ u64::from(self.id)))
    }
}
