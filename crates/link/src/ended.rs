//! The rest of a link that this end has ended: the way to tell its peer.

use crate::datagram::{HEADER_LEN, Header, VERSION};
use crate::frames::push_close;
use crate::keys::SendKeys;

/// Least time between two datagrams that tell the peer.
const AGAIN_NS: u64 = 20_000_000;

/// A link that this end has ended. Its peer may not know that, and still send: each of its
/// datagrams is a reason to tell it again.
pub struct EndedLink {
    send_id: u64,
    receive_id: u64,
    send_keys: SendKeys,
    next_number: u64,
    told_ns: Option<u64>,
}

impl EndedLink {
    pub(crate) fn new(ids: (u64, u64), send_keys: SendKeys, next_number: u64) -> EndedLink {
        let (send_id, receive_id) = ids;
        EndedLink { send_id, receive_id, send_keys, next_number, told_ns: None }
    }

    /// Returns the connection id of datagrams to this end.
    #[must_use]
    pub fn receive_id(&self) -> u64 {
        self.receive_id
    }

    /// Fills `out` with a datagram that notifies the peer; false if that was done a moment ago.
    pub fn notify(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        let is_soon = |told_ns: u64| now_ns.saturating_sub(told_ns) < AGAIN_NS;
        if self.told_ns.is_some_and(is_soon) {
            return false;
        }
        self.told_ns = Some(now_ns);
        out.clear();
        out.resize(HEADER_LEN, 0);
        push_close(out);
        let (phase, number) = (self.send_keys.mark(), self.next_number);
        let header = Header { version: VERSION, phase, connection: self.send_id, number };
        if let Some((bytes, frames)) = out.split_first_chunk_mut::<HEADER_LEN>() {
            header.write(bytes);
            let tag = self.send_keys.seal(number, bytes, frames);
            out.extend_from_slice(&tag);
        }
        self.next_number += 1;
        true
    }
}

impl std::fmt::Debug for EndedLink {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EndedLink").finish_non_exhaustive()
    }
}
