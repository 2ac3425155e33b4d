//! Events of segmented bytes, as text.
#![allow(dead_code, reason = "each test uses a part")]

use applayer::detect::{AppProtocol, Detection, Detector, FlowPorts};
use applayer::tls::{TlsEvent, TlsStream};
use applayer::{ExchangeSide, FixedLineBuffer, dns, ssh};

/// Capacity of the tests' line buffers, in bytes.
pub const ROOM: usize = 512;

/// Parses a direction of TLS, from any state, to its end.
pub fn tls(mut stream: TlsStream, pieces: &[&[u8]]) -> (TlsStream, Vec<String>) {
    let mut line = FixedLineBuffer::<ROOM>::default();
    let mut reported = Vec::new();
    let mut sink = |event: TlsEvent<'_>| reported.push(show(event));
    for piece in pieces {
        stream.take(piece, &mut line, &mut sink);
    }
    stream.end(&mut line, &mut sink);
    (stream, reported)
}

pub fn show(event: TlsEvent<'_>) -> String {
    let list = |pieces: Vec<&[u8]>| pieces.iter().map(|piece| text(piece)).collect::<Vec<_>>().join(" ");
    match event {
        TlsEvent::ClientHello(hello) => format!(
            "client hello {} name {} protocols {} suites {} extensions {} whole {}",
            hello.version(),
            hello.server_name().map_or("none".to_owned(), text),
            list(hello.protocols().collect()),
            hello.cipher_suites().count(),
            hello.extensions().count(),
            hello.is_whole(),
        ),
        TlsEvent::ServerHello(hello) => format!(
            "server hello {} retry {} protocol {} suite {:#06x} whole {}",
            hello.version(),
            hello.is_retry(),
            hello.protocol().map_or("none".to_owned(), text),
            hello.cipher_suite(),
            hello.is_whole(),
        ),
        TlsEvent::Certificates(chain) => {
            format!("certificates {} whole {}", list(chain.iter().collect()), chain.is_whole())
        }
        other => format!("{other:?}"),
    }
}

/// Parses a direction of SSH, from any state, to its end.
pub fn ssh(mut reader: ssh::GreetingReader, pieces: &[&[u8]]) -> (ssh::GreetingReader, Vec<String>) {
    let mut line = FixedLineBuffer::<256>::default();
    let mut reported = Vec::new();
    let mut sink = |greeting: ssh::SshGreeting<'_>| {
        let parts = [greeting.protocol, greeting.software, greeting.comments].map(text);
        reported.push(format!("{parts:?} cut {}", greeting.is_cut));
    };
    for piece in pieces {
        reader.take(piece, &mut line, &mut sink);
    }
    reader.end(&mut line, &mut sink);
    (reader, reported)
}

/// Returns the result for a stream of turns, each in pieces, and the protocol of each direction.
pub fn detect(
    mut detector: Detector,
    turns: &[(ExchangeSide, Vec<&[u8]>)],
    ports: FlowPorts,
) -> (Detection, [Option<AppProtocol>; 2]) {
    let mut offsets = [0; 2];
    for (side, pieces) in turns {
        for piece in pieces {
            detector.stream(*side, offsets[*side as usize], piece, ports);
            offsets[*side as usize] += piece.len() as u64;
        }
    }
    (detector.verdict(), [ExchangeSide::Request, ExchangeSide::Response].map(|side| detector.found(side)))
}

/// Parses the entries of a message.
pub fn dns(message: &[u8]) -> Vec<String> {
    let mut reported = Vec::new();
    let message = match dns::DnsMessage::read(message) {
        Ok(message) => message,
        Err(short) => return vec![short.to_string()],
    };
    let (mut entries, mut name) = (message.entries(), dns::DnsName::default());
    while let Some(entry) = entries.next(&mut name) {
        assert!(name.as_bytes().len() <= dns::NAME_BYTES_MAX);
        reported.push(match entry {
            Ok(entry) => format!("{:?} {name:?} {} {}", entry.section, entry.kind, text(entry.data)),
            Err(fault) => format!("{name:?} ! {fault}"),
        });
    }
    assert!(reported.len() <= dns::ENTRY_MAX as usize + 1);
    reported
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
