//! The maximum segment size option of TCP (RFC 9293 3.7.1).

use super::{RewriteError, inside_checksummed_tunnel, put, word};
use crate::checksum::Delta;
use crate::parse::protocol;
use crate::{Meta, Packet};

/// Kinds of TCP options (RFC 9293 3.1).
mod kind {
    pub const END: u8 = 0;
    pub const NO_OPERATION: u8 = 1;
    pub const MSS: u8 = 2;
}

/// Length of a TCP header without options, and offsets within it.
const TCP_LEN: usize = 20;
const DATA_OFFSET_AT: usize = 12;
const CHECKSUM_AT: usize = 16;

/// Length of the option.
const MSS_LEN: usize = 4;

/// The options of a segment, as found by [`Packet::clamp_mss`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MssOptions {
    /// There is a maximum segment size.
    pub found: bool,
    /// It was above the limit, and is the limit now.
    pub lowered: bool,
    /// An option is malformed or not captured. It and all later options are untouched, as receivers
    /// skip them.
    pub malformed: bool,
}

impl Packet {
    /// Lowers the maximum segment size of a TCP segment to `limit` and updates the checksum. A
    /// lower one stays.
    pub fn clamp_mss(&mut self, limit: u16) -> MssOptions {
        let mut options = MssOptions::default();
        if self.meta().protocol != protocol::TCP || !self.meta().has_transport() {
            return options;
        }
        let end = self.flow_end();
        let (data, meta) = self.parts_mut();
        let mut change = |data: &mut [u8], meta: &Meta| {
            let end = end.min(data.len());
            let segment = data.get_mut(usize::from(meta.l4)..end).ok_or(RewriteError::NoHeader)?;
            options = clamp(segment, limit);
            Ok(())
        };
        let done = match meta.outer_udp {
            0 => change(data, meta),
            _ => inside_checksummed_tunnel(data, meta, change),
        };
        MssOptions { malformed: options.malformed || done.is_err(), ..options }
    }
}

/// Lowers the option in a segment that begins with its TCP header.
fn clamp(segment: &mut [u8], limit: u16) -> MssOptions {
    let header_len = segment.get(DATA_OFFSET_AT).map_or(0, |byte| usize::from(byte >> 4) * 4);
    // A first fragment may have a part of the header.
    let mut options = MssOptions { malformed: header_len > segment.len(), ..MssOptions::default() };
    let captured = header_len.min(segment.len());
    let Some(header) = segment.get_mut(..captured).filter(|header| header.len() >= TCP_LEN) else {
        return MssOptions { malformed: true, ..options };
    };
    let mut at = TCP_LEN;
    while let Some(&kind) = header.get(at) {
        let len = match kind {
            kind::END => break,
            kind::NO_OPERATION => 1,
            _ => header.get(at + 1).map_or(0, |&len| usize::from(len)),
        };
        let is_wrong = kind != kind::NO_OPERATION && len < 2 || kind == kind::MSS && len != MSS_LEN;
        if is_wrong || at + len > header.len() {
            options.malformed = true;
            break;
        }
        if kind == kind::MSS {
            options.found = true;
            options.lowered |= lower(header, at + 2, limit);
        }
        at += len;
    }
    options
}

/// Lowers the number at this offset; returns true if it was above the limit.
fn lower(header: &mut [u8], at: usize, limit: u16) -> bool {
    let mss = word(header, at);
    if mss <= limit {
        return false;
    }
    put(header, at, limit);
    // At an odd offset its bytes are halves of two words, as if swapped (RFC 1071 2 B).
    let delta = match at % 2 {
        0 => Delta::of16(mss, limit),
        _ => Delta::of16(mss.swap_bytes(), limit.swap_bytes()),
    };
    let sum = delta.apply(word(header, CHECKSUM_AT));
    put(header, CHECKSUM_AT, sum);
    true
}
