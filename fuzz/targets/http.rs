//! Any bytes of both directions of a connection: the HTTP parser does not panic, and reports the
//! same however they are cut.
//!
//! Input: pieces of a connection. One byte gives direction, gap or end, one the length, one where
//! to cut; then the bytes.

#![no_main]

#[path = "../../crates/applayer/tests/http/support/mod.rs"]
mod support;

use applayer::http::ExchangeSide;
use libfuzzer_sys::fuzz_target;
use support::Connection;

fuzz_target!(|data: &[u8]| {
    let (mut whole, mut cut, mut bytewise) =
        (Connection::default(), Connection::default(), Connection::default());
    let mut rest = data;
    while let [kind, len, place, tail @ ..] = rest {
        let side = if kind & 1 == 0 { ExchangeSide::Request } else { ExchangeSide::Response };
        let (piece, next) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = next;
        match kind >> 1 & 0x1f {
            0x1e => {
                for connection in [&mut whole, &mut cut, &mut bytewise] {
                    connection.gap(side, u64::from(*place));
                }
            }
            0x1f => {
                for connection in [&mut whole, &mut cut, &mut bytewise] {
                    connection.end(side);
                }
            }
            _ => {
                whole.take(side, piece);
                let (first, second) = piece.split_at(usize::from(*place).min(piece.len()));
                cut.take(side, first);
                cut.take(side, second);
                piece.chunks(1).for_each(|byte| bytewise.take(side, byte));
            }
        }
    }
    for other in [&cut, &bytewise] {
        assert_eq!(whole.reported, other.reported);
        assert_eq!(whole.exchange, other.exchange);
    }
});
