//! Segmentation changes nothing, and no bytes and no state cause a panic.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use applayer::detect::{Detector, FlowPorts};
use applayer::tls::{Certificate, TlsStream};
use applayer::{ExchangeSide, FixedLineBuffer, dns, ftp, ssh};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

/// Possible first bytes of a direction.
const BEGINNINGS: [&[u8]; 34] = [
    b"GET / HTTP/1.1\r\n",
    b"\r\n\r\nHEAD ",
    b"OPTIONS sip:a",
    b"OPTIONS *",
    b"VERSION-CONTROL /a",
    b"UPDATEREDIRECTREF /a",
    b"NOTIFY ",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"\0\0\x12\x04\0\0\0\0\0",
    b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0d",
    b"\x16\x03\x01\x02\0\x01\0",
    b"\x16\x03\x03\0\x5a\x02\0",
    b"\x15\x03\x01\0\x02\x02\x28",
    b"\x80\x2e\x01\0\x02\0",
    b"\x80\x67\x01\x03\x01\0",
    b"\x83\xf4\x04\0\x01\0\x02",
    b"SSH-2.0-OpenSSH\r\n",
    b"ssh-2.0",
    b"\0\0\0\x45\xffSMBr",
    b"\0\0\0\x45\xfeSMB@",
    b"\x81\0\0\x44 ",
    b"\x82\0\0\0",
    b"220 a ESMTP\r\n",
    b"220-a FTP\r\n",
    b"ehlo a\r\n",
    b"HELO\r\n",
    b"USER a\r\n",
    b"FEAT\r\n",
    b"QUIT\r\n",
    b"+OK\r\n",
    b"\0\x1d\xab\xcd\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01",
    b"\0\x1d\xab\xcd\x81\x80\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01",
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
];

fn beginning() -> impl Strategy<Value = Vec<u8>> {
    let known = (prop::sample::select(&BEGINNINGS[..]), prop::option::weighted(0.3, any::<(u8, u8)>()));
    let known = known.prop_map(|(bytes, change)| {
        let mut bytes = bytes.to_vec();
        if let Some((at, byte)) = change {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        bytes
    });
    prop_oneof![6 => known, 1 => prop::collection::vec(any::<u8>(), 0..40), 1 => Just(vec![b'x'; 5000])]
}

fn side() -> impl Strategy<Value = ExchangeSide> {
    prop_oneof![Just(ExchangeSide::Request), Just(ExchangeSide::Response)]
}

fn ports() -> impl Strategy<Value = FlowPorts> {
    let server = prop::sample::select(vec![21, 22, 25, 53, 80, 139, 443, 445, 8080]);
    (prop::sample::select(vec![40_000, 53]), server).prop_map(|(client, server)| FlowPorts { client, server })
}

/// Generates a TLS record, valid or not.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![12 => Just(22u8), 1 => 20u8..25, 1 => any::<u8>()];
    let payload = prop_oneof![
        prop::collection::vec(message(), 1..4).prop_map(|messages| messages.concat()),
        prop::collection::vec(any::<u8>(), 0..30),
    ];
    (kind, payload).prop_map(|(kind, payload)| {
        let len = (payload.len() as u16).to_be_bytes();
        [&[kind, 3, 1], &len[..], &payload].concat()
    })
}

/// Generates a handshake message, valid or not, some beyond the buffer's capacity.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![1u8, 2, 11, 12, 14, 16]);
    let body = prop_oneof![
        Just(client_hello()),
        prop::collection::vec(any::<u8>(), 0..60),
        (0usize..900).prop_map(|len| vec![7; len]),
        Just(b"\0\0\x08\0\0\x05abcde".to_vec()),
    ];
    (kind, body, prop::option::weighted(0.1, any::<u8>())).prop_map(|(kind, body, wrong)| {
        let [_, a, b, c] = (body.len() as u32 ^ u32::from(wrong.unwrap_or(0))).to_be_bytes();
        [&[kind, a, b, c], &body[..]].concat()
    })
}

fn client_hello() -> Vec<u8> {
    let extensions =
        b"\0\0\0\x10\0\x0e\0\0\x0bexample.org\0\x10\0\x05\0\x03\x02h2\0\x2b\0\x05\x04\x0a\x0a\x03\x04";
    [b"\x03\x03", &[9; 32][..], b"\0\0\x04\x13\x01\x13\x02\x01\0", &[0, extensions.len() as u8], extensions]
        .concat()
}

/// A segmentation.
type Cut = for<'a> fn(&'a [u8], &[usize]) -> Vec<&'a [u8]>;

/// Splits the bytes at these places.
fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0usize..2000, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_verdict_does_not_depend_on_cuts(
        turns in prop::collection::vec((side(), beginning(), cuts()), 1..5),
        ports in ports(),
    ) {
        let cut = |how: Cut| {
            let turns: Vec<_> = turns.iter().map(|(side, bytes, cuts)| (*side, how(bytes, cuts))).collect();
            crate::reported::detect(Detector::default(), &turns, ports)
        };
        let whole = cut(|bytes, _| vec![bytes]);
        prop_assert_eq!(whole, cut(pieces));
        prop_assert_eq!(whole, cut(|bytes, _| bytes.chunks(1).collect()));
    }

    #[test]
    fn tls_events_do_not_depend_on_segmentation(records in prop::collection::vec(record(), 1..6), cuts in cuts()) {
        let bytes = records.concat();
        let whole = crate::reported::tls(TlsStream::default(), &[&bytes]);
        prop_assert_eq!(&whole, &crate::reported::tls(TlsStream::default(), &pieces(&bytes, &cuts)));
        prop_assert_eq!(&whole, &crate::reported::tls(TlsStream::default(), &bytes.chunks(1).collect::<Vec<_>>()));
    }

    #[test]
    fn record_boundaries_do_not_change_the_messages(messages in prop::collection::vec(message(), 1..4), len in 1usize..300) {
        let bytes = messages.concat();
        let reported = |len: usize| {
            let records = bytes.chunks(len).map(|payload| {
                [&[22, 3, 1], &(payload.len() as u16).to_be_bytes()[..], payload].concat()
            });
            let (_, reported) = crate::reported::tls(TlsStream::default(), &[&records.collect::<Vec<_>>().concat()]);
            reported.into_iter().filter(|event| !event.starts_with("Record")).collect::<Vec<_>>()
        };
        prop_assert_eq!(reported(len), reported(8000));
    }

    #[test]
    fn ssh_does_not_depend_on_cuts(
        words in prop::collection::vec(prop::sample::select(vec![
            "SSH-2.0-", "x", " y", "\r\n", "\n", "hello\r\n", "SSH-", "-", "\r",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ]), 0..10),
        cuts in cuts(),
    ) {
        let bytes = words.concat().into_bytes();
        let whole = crate::reported::ssh(ssh::GreetingReader::default(), &[&bytes]);
        prop_assert_eq!(&whole, &crate::reported::ssh(ssh::GreetingReader::default(), &pieces(&bytes, &cuts)));
        prop_assert_eq!(&whole, &crate::reported::ssh(ssh::GreetingReader::default(), &bytes.chunks(1).collect::<Vec<_>>()));
    }

    #[test]
    fn names_are_read_back(
        labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..64), 0..5),
        at in 0usize..40,
    ) {
        let mut name: Vec<u8> = labels.iter().flat_map(|label| [&[label.len() as u8], &label[..]].concat()).collect();
        name.push(0);
        // The name of the question, and that of an answer, a pointer to its first label.
        let mut message = b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0".to_vec();
        message.extend([&name[..], b"\0\x01\0\x01", b"\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04abcd"].concat());
        let expected = labels.join(&b'.');
        let cut = name.len() > dns::NAME_BYTES_MAX;
        let (mut entries, mut name) = (dns::DnsMessage::read(&message).unwrap().entries(), dns::DnsName::default());
        for _ in 0..2 {
            let entry = entries.next(&mut name).unwrap().unwrap();
            prop_assert_eq!(entry.is_name_cut, cut);
            let reported = name.as_bytes();
            let is_right = if cut { expected.starts_with(reported) && reported.len() > 253 } else { reported == expected };
            prop_assert!(is_right);
        }
        prop_assert!(entries.next(&mut name).is_none());
        prop_assert_eq!(entries.rest(), b"");

        // Over TCP, split anywhere.
        let framed = [&(message.len() as u16).to_be_bytes()[..], &message, b"rest"].concat();
        let part = &framed[..at.min(framed.len())];
        match dns::over_tcp(part) {
            dns::TcpFrame::Needs(len) => prop_assert!(len > part.len() && len <= message.len() + 2),
            dns::TcpFrame::Message { message: found, .. } => prop_assert_eq!(found, &message[..]),
        }
        let is_whole = dns::over_tcp(&framed) == dns::TcpFrame::Message { message: &message, rest: b"rest" };
        prop_assert!(is_whole);
    }

    #[test]
    fn no_bytes_and_no_state_make_anything_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        state in prop::collection::vec(any::<u8>(), 64),
        ports in ports(),
        turn in side(),
    ) {
        crate::reported::dns(&bytes);
        crate::reported::dns(&[b"\0\0\x80\0\0\x09\0\x09\0\x09\0\x09", &bytes[..]].concat());
        crate::reported::tls(TlsStream::read_from_prefix(&state).unwrap().0, &[&bytes]);
        crate::reported::ssh(ssh::GreetingReader::read_from_prefix(&state).unwrap().0, &[&bytes]);
        let detector = Detector::read_from_prefix(&state).unwrap().0;
        crate::reported::detect(detector, &[(turn, vec![&bytes])], ports);
        let mut detector = detector;
        detector.datagram(turn, &bytes, ports);
        let _ = Certificate::read(&bytes);
        ftp::bounce(&bytes, [192, 0, 2, 1].into());
        let mut line = FixedLineBuffer::<0>::default();
        let mut stream = TlsStream::default();
        stream.take(&bytes, &mut line, &mut |_: applayer::tls::TlsEvent<'_>| {});
    }

    #[test]
    fn a_copied_state_continues_with_the_next_record(records in prop::collection::vec(record(), 2..5)) {
        let (mut stayed, mut moved) = (TlsStream::default(), TlsStream::default());
        let (mut here, mut there) = (Vec::new(), Vec::new());
        let mut lines = [FixedLineBuffer::<{ crate::reported::ROOM }>::default(), FixedLineBuffer::default()];
        for record in &records {
            stayed.take(record, &mut lines[0], &mut |event: applayer::tls::TlsEvent<'_>| here.push(crate::reported::show(event)));
            moved = TlsStream::read_from_bytes(moved.as_bytes()).unwrap();
            moved.take(record, &mut lines[1], &mut |event: applayer::tls::TlsEvent<'_>| there.push(crate::reported::show(event)));
        }
        prop_assert_eq!(here, there);
    }
}
