//! The speed of parsing heads and bodies:
//! `cargo run --profile dist -p applayer --example http_speed`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use applayer::http::{Exchange, ExchangeSide, FixedLineBuffer, HttpEvent};

/// A browser's request of 500 bytes.
const REQUEST: &str = "GET /wiki/Special:Search?search=network+functions&go=Go HTTP/1.1\r\n\
    Host: en.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br\r\n\
    Referer: https://en.example.org/wiki/Main_Page\r\n\
    Cookie: session=0123456789abcdef; theme=dark\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: max-age=0\r\n\
    X-Padding: 0123456789012\r\n\r\n";

/// A server's response head.
const RESPONSE: &str = "HTTP/1.1 200 OK\r\n\
    Date: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
    Server: Apache/2.4.57 (Debian)\r\n\
    Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
    ETag: \"2d-432a5e4a73a80\"\r\n\
    Accept-Ranges: bytes\r\n\
    Content-Length: 0\r\n\
    Cache-Control: max-age=3600\r\n\
    Content-Type: text/html; charset=utf-8\r\n\r\n";

/// Measuring time per line of the table.
const TIME: Duration = Duration::from_millis(500);

fn main() {
    println!("{:44} {:>6} {:>8} {:>8}", "", "bytes", "ns", "GB/s");
    time("a request's head", &[REQUEST.as_bytes()], ExchangeSide::Request);
    time("a request's head, in two segments", &split(REQUEST, 250), ExchangeSide::Request);
    time("a request's head, in segments of 16 bytes", &split(REQUEST, 16), ExchangeSide::Request);
    time("a response's head", &[RESPONSE.as_bytes()], ExchangeSide::Response);
    let body = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000));
    time("a body of known length, in segments of 1460", &split(&body, 1460), ExchangeSide::Request);
    let chunks = format!("{:x}\r\n{}\r\n", 4000, "x".repeat(4000)).repeat(25);
    let chunked = format!("PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    time("chunks of 4000, in segments of 1460", &split(&chunked, 1460), ExchangeSide::Request);
}

fn split(text: &str, len: usize) -> Vec<&[u8]> {
    text.as_bytes().chunks(len).collect()
}

/// Messages per round.
const ROUND: usize = 1024;

/// Prints the best round.
fn time(what: &str, pieces: &[&[u8]], side: ExchangeSide) {
    let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut asked = Exchange::default();
    for _ in 0..applayer::http::PIPELINE_MAX {
        asked
            .request(REQUEST.as_bytes(), &mut FixedLineBuffer::<8192>::default(), &mut |_: HttpEvent<'_>| {});
    }
    let mut best = f64::MAX;
    let began = Instant::now();
    while began.elapsed() < TIME {
        let (mut exchange, mut line) = (Exchange::default(), FixedLineBuffer::<8192>::default());
        let mut headers = 0usize;
        let mut sink = |event: HttpEvent<'_>| {
            if let HttpEvent::Header(header) = event {
                headers += black_box(header.value).len();
            }
        };
        let round = Instant::now();
        for number in 0..ROUND {
            // No more requests are unanswered than are remembered, and none is missing.
            if number % applayer::http::PIPELINE_MAX == 0 {
                exchange = if side == ExchangeSide::Request { Exchange::default() } else { asked };
            }
            for piece in pieces {
                match side {
                    ExchangeSide::Request => exchange.request(black_box(piece), &mut line, &mut sink),
                    ExchangeSide::Response => exchange.response(black_box(piece), &mut line, &mut sink),
                }
            }
        }
        best = best.min(round.elapsed().as_secs_f64() / ROUND as f64);
        black_box(headers);
    }
    println!("{what:44} {bytes:6} {:8.0} {:8.2}", best * 1e9, bytes as f64 / best / 1e9);
}
