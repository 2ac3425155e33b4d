//! IPv6 extension headers: recognition, and the walk to the transport header or, in a later
//! fragment, to the fragment's data.

use super::EXTENSION_MAX;
use super::found::{Found, fragment_class};
use crate::{DropReason, PacketClass};

const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// Checks for an extension header rather than the transport's (IANA).
#[inline]
pub(crate) fn is_extension(next_header: u8) -> bool {
    matches!(next_header, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | 135 | 139 | 140)
}

/// Walks the extension headers up to the transport's (RFC 8200 4.1), in a later fragment up to its
/// data.
#[cold]
pub(super) fn skip(data: &[u8], found: &mut Found) -> Result<(), DropReason> {
    // If a capture truncated the headers, neither the ports nor their position are known.
    let cut = if found.whole.complete { DropReason::Ipv6Extension } else { DropReason::Ipv6Truncated };
    for _ in 0..EXTENSION_MAX {
        if !is_extension(found.protocol) {
            return Ok(());
        }
        let Some(&[next_header, len, high, low]) = data.get(found.l4..).and_then(|d| d.first_chunk()) else {
            return Err(cut);
        };
        let units = usize::from(len);
        let len = match found.protocol {
            FRAGMENT => 8,
            AUTHENTICATION => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        if found.protocol == FRAGMENT {
            let word = u16::from_be_bytes([high, low]);
            found.class = fragment_class(word >> 3, word & 1 != 0, next_header)?;
        }
        found.protocol = next_header;
        found.l4 += len;
        if found.l4 > data.len() {
            return Err(cut);
        }
        if found.class == PacketClass::LaterFragment {
            return Ok(());
        }
    }
    if is_extension(found.protocol) { Err(DropReason::Ipv6ExtensionChain) } else { Ok(()) }
}
