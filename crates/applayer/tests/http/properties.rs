//! Segmentation changes nothing, and no bytes and no state make the parser panic or lose its place.

use crate::support::Connection;
use applayer::http::{Exchange, ExchangeSide, FixedLineBuffer, HttpEvent};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

/// Parts of messages, valid or not.
const WORDS: [&str; 46] = [
    "GET / HTTP/1.1\r\n",
    "HEAD /a HTTP/1.1\r\n",
    "POST http://x/ HTTP/1.1\r\n",
    "CONNECT x:1 HTTP/1.1\r\n",
    "GET /\r\n",
    "PRI * HTTP/2.0\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 101 Up\r\n\r\n",
    "HTTP/1.0 304 No\r\n",
    "HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n",
    "Host: x\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 1\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 18446744073709551615\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding : xchunked\r\n",
    "Connection: close\r\n",
    "Upgrade: h2c\r\n",
    "Folded: a\r\n b\r\n\tc\r\n",
    " leading\r\n",
    "NoColon\r\n",
    "A: b\n",
    "A: b\rc\0d\r\n",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    "5\r\nhello\r\n",
    "5;ext\r\nhello\r\n",
    "0x2\r\nab\r\n",
    "0\r\n\r\n",
    "0\r\nTrailer: a\r\n\r\n",
    "zz\r\n",
    "ffffffffffffffff\r\n",
    "hello",
    "\x16\x03\x01",
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
    "Long: abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
    "HTTP/1.1 ",
    "HTT",
    "GET ",
    ": ",
];

#[derive(Debug, Clone)]
enum Action {
    Send(ExchangeSide, Vec<u8>, Vec<usize>),
    Gap(ExchangeSide, u64),
    End(ExchangeSide),
}

fn side() -> impl Strategy<Value = ExchangeSide> {
    prop_oneof![Just(ExchangeSide::Request), Just(ExchangeSide::Response)]
}

/// Generates sequences of words with occasional changed bytes.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::collection::vec(prop::sample::select(&WORDS[..]), 1..14);
    (words, prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>()))).prop_map(
        |(words, change)| {
            let mut bytes = words.concat().into_bytes();
            if let Some((at, byte)) = change {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => (side(), text(), prop::collection::vec(0usize..200, 0..12)).prop_map(|(s, t, c)| Action::Send(s, t, c)),
        1 => (side(), 1u64..40).prop_map(|(s, len)| Action::Gap(s, len)),
        1 => side().prop_map(Action::End),
    ]
}

/// Splits the bytes at these places.
fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn run(actions: &[Action], cut: impl for<'a> Fn(&'a [u8], &[usize]) -> Vec<&'a [u8]>) -> Connection {
    let mut connection = Connection::default();
    for action in actions {
        match action {
            Action::Send(side, bytes, cuts) => {
                cut(bytes, cuts).into_iter().for_each(|piece| connection.take(*side, piece));
            }
            Action::Gap(side, len) => drop(connection.gap(*side, *len)),
            Action::End(side) => drop(connection.end(*side)),
        }
    }
    connection
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn segmentation_does_not_change_the_events(actions in prop::collection::vec(action(), 1..8)) {
        let whole = run(&actions, |bytes, _| vec![bytes]);
        let cut = run(&actions, pieces);
        let bytewise = run(&actions, |bytes, _| bytes.chunks(1).collect());
        prop_assert_eq!(&whole.reported, &cut.reported);
        prop_assert_eq!(&whole.reported, &bytewise.reported);
        prop_assert_eq!(whole.exchange, cut.exchange);
        prop_assert_eq!(whole.exchange, bytewise.exchange);
    }

    #[test]
    fn a_copied_state_continues(actions in prop::collection::vec(action(), 1..6)) {
        let stayed = run(&actions, pieces);
        let mut moved = Connection::default();
        for action in &actions {
            let one = std::slice::from_ref(action);
            let bytes = moved.exchange.as_bytes().to_vec();
            moved.exchange = Exchange::read_from_bytes(&bytes).unwrap();
            for (side, piece) in sent(one) {
                moved.take(side, piece);
            }
            match action {
                Action::Gap(side, len) => drop(moved.gap(*side, *len)),
                Action::End(side) => drop(moved.end(*side)),
                Action::Send(..) => {}
            }
        }
        prop_assert_eq!(stayed.reported, moved.reported);
    }

    #[test]
    fn no_state_and_no_bytes_make_it_panic(
        state in prop::collection::vec(any::<u8>(), size_of::<Exchange>()),
        actions in prop::collection::vec(action(), 1..4),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut connection = Connection {
            exchange: Exchange::read_from_bytes(&state).unwrap(),
            ..Connection::default()
        };
        for side in [ExchangeSide::Request, ExchangeSide::Response] {
            for (_, piece) in sent(&actions) {
                connection.take(side, piece);
            }
            connection.take(side, &noise);
            connection.gap(side, u64::MAX);
            connection.take(side, &noise);
            connection.end(side);
        }
    }

    #[test]
    fn no_byte_is_reported_twice(bytes in text(), more in text()) {
        let mut exchange = Exchange::default();
        let mut line = FixedLineBuffer::<1024>::default();
        let mut reported = 0;
        for piece in [&bytes, &more] {
            exchange.request(piece, &mut line, &mut |event: HttpEvent<'_>| {
                reported += match event {
                    HttpEvent::Request(r) => r.raw.len(),
                    HttpEvent::Header(h) | HttpEvent::Trailer(h) => h.raw.len(),
                    HttpEvent::Body(b) | HttpEvent::Opaque(b) | HttpEvent::Skipped(b) | HttpEvent::ChunkExtension(b) => b.len(),
                    _ => 0,
                };
            });
        }
        prop_assert!(reported <= bytes.len() + more.len());
    }
}

fn sent(actions: &[Action]) -> impl Iterator<Item = (ExchangeSide, &[u8])> {
    actions.iter().flat_map(|action| match action {
        Action::Send(side, bytes, cuts) => {
            pieces(bytes, cuts).into_iter().map(|piece| (*side, piece)).collect()
        }
        _ => Vec::new(),
    })
}
