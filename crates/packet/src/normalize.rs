//! Normalization: changes that leave receivers no choice in how to read a packet.

use crate::checksum::{Delta, sum};
use crate::rewrite::{inside_checksummed_tunnel, put, word};
use crate::{Meta, Packet, RewriteError};

/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: usize = 16;

impl Packet {
    /// Raises the time to live or hop limit of the flow's IP header to `least`. Returns false if it
    /// was not lower.
    pub fn raise_ttl(&mut self, least: u8) -> bool {
        self.change(|data, meta| match (meta.version, data.get_mut(meta.l3 as usize..).unwrap_or_default()) {
            (4, [_, _, _, _, _, _, _, _, ttl, next, high, low, ..]) if *ttl < least => {
                let old = u16::from_be_bytes([*ttl, *next]);
                *ttl = least;
                let delta = Delta::of16(old, u16::from_be_bytes([*ttl, *next]));
                [*high, *low] = delta.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
                Ok(())
            }
            (6, [_, _, _, _, _, _, _, hop_limit, ..]) if *hop_limit < least => {
                *hop_limit = least;
                Ok(())
            }
            _ => Err(RewriteError::NoHeader),
        })
    }

    /// Overwrites TCP payload bytes from `at` on; a wrong checksum stays equally wrong. Returns
    /// false and changes nothing if the payload is too short.
    pub fn overwrite_tcp_payload(&mut self, at: usize, bytes: &[u8]) -> bool {
        let end = self.flow_end();
        self.change(|data, meta| {
            let l4 = usize::from(meta.l4);
            let segment = data.get_mut(l4..end).ok_or(RewriteError::NoHeader)?;
            let header_len = segment.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
            let before = sum(segment);
            let payload =
                segment.get_mut(header_len.max(TCP_CHECKSUM + 4)..).ok_or(RewriteError::NoHeader)?;
            let place = payload.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()));
            place.ok_or(RewriteError::NoHeader)?.copy_from_slice(bytes);
            let delta = Delta::of_sums(before, sum(segment));
            let fixed = delta.apply(word(data, l4 + TCP_CHECKSUM));
            put(data, l4 + TCP_CHECKSUM, fixed);
            Ok(())
        })
    }

    fn change(&mut self, change: impl FnOnce(&mut [u8], &Meta) -> Result<(), RewriteError>) -> bool {
        let (data, meta) = self.parts_mut();
        let changed = match meta.outer_udp {
            0 => change(data, meta),
            _ => inside_checksummed_tunnel(data, meta, change),
        };
        changed.is_ok()
    }
}
