//! What is told of bytes in pieces, as text.
#![allow(dead_code, reason = "each test uses a part")]

use applayer::detect::{Application, Detector, Ports, Verdict};
use applayer::tls::{Event, Stream};
use applayer::{FixedLine, Side, dns, ssh};

/// Room for a message in these tests, in bytes.
pub const ROOM: usize = 512;

/// A direction of TLS, from any state, with its end.
pub fn tls(mut stream: Stream, pieces: &[&[u8]]) -> (Stream, Vec<String>) {
    let mut line = FixedLine::<ROOM>::default();
    let mut told = Vec::new();
    let mut sink = |event: Event<'_>| told.push(show(event));
    for piece in pieces {
        stream.take(piece, &mut line, &mut sink);
    }
    stream.end(&mut line, &mut sink);
    (stream, told)
}

pub fn show(event: Event<'_>) -> String {
    let list = |pieces: Vec<&[u8]>| pieces.iter().map(|piece| text(piece)).collect::<Vec<_>>().join(" ");
    match event {
        Event::ClientHello(hello) => format!(
            "client hello {} name {} protocols {} suites {} extensions {} whole {}",
            hello.version(),
            hello.server_name().map_or("none".to_owned(), text),
            list(hello.protocols().collect()),
            hello.cipher_suites().count(),
            hello.extensions().count(),
            hello.is_whole(),
        ),
        Event::ServerHello(hello) => format!(
            "server hello {} retry {} protocol {} suite {:#06x} whole {}",
            hello.version(),
            hello.is_retry(),
            hello.protocol().map_or("none".to_owned(), text),
            hello.cipher_suite(),
            hello.is_whole(),
        ),
        Event::Certificates(chain) => {
            format!("certificates {} whole {}", list(chain.iter().collect()), chain.is_whole())
        }
        other => format!("{other:?}"),
    }
}

/// A direction of SSH, from any state, with its end.
pub fn ssh(mut reader: ssh::Reader, pieces: &[&[u8]]) -> (ssh::Reader, Vec<String>) {
    let mut line = FixedLine::<256>::default();
    let mut told = Vec::new();
    let mut sink = |greeting: ssh::Greeting<'_>| {
        let parts = [greeting.protocol, greeting.software, greeting.comments].map(text);
        told.push(format!("{parts:?} cut {}", greeting.is_cut));
    };
    for piece in pieces {
        reader.take(piece, &mut line, &mut sink);
    }
    reader.end(&mut line, &mut sink);
    (reader, told)
}

/// The verdict on a stream of turns, each in pieces, and what was found in each direction.
pub fn detect(
    mut detector: Detector,
    turns: &[(Side, Vec<&[u8]>)],
    ports: Ports,
) -> (Verdict, [Option<Application>; 2]) {
    let mut offsets = [0; 2];
    for (side, pieces) in turns {
        for piece in pieces {
            detector.stream(*side, offsets[*side as usize], piece, ports);
            offsets[*side as usize] += piece.len() as u64;
        }
    }
    (detector.verdict(), [Side::Request, Side::Response].map(|side| detector.found(side)))
}

/// The entries of a message.
pub fn dns(message: &[u8]) -> Vec<String> {
    let mut told = Vec::new();
    let message = match dns::Message::read(message) {
        Ok(message) => message,
        Err(short) => return vec![short.to_string()],
    };
    let (mut entries, mut name) = (message.entries(), dns::Name::default());
    while let Some(entry) = entries.next(&mut name) {
        assert!(name.as_bytes().len() <= dns::NAME_BYTES_MAX);
        told.push(match entry {
            Ok(entry) => format!("{:?} {name:?} {} {}", entry.section, entry.kind, text(entry.data)),
            Err(fault) => format!("{name:?} ! {fault}"),
        });
    }
    assert!(told.len() <= dns::ENTRY_MAX as usize + 1);
    told
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
