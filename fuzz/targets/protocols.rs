//! Any bytes as a direction of TLS, of SSH, of any protocol, as a DNS message, as a certificate:
//! nothing panics, and cuts change nothing.
//!
//! Input: one byte gives the ports and the side, one where to cut; then the bytes.

#![no_main]

#[path = "../../crates/applayer/tests/protocols/support/reported.rs"]
mod reported;

use applayer::detect::{Detector, FlowPorts};
use applayer::tls::{Certificate, Fingerprint, TlsStream};
use applayer::{ExchangeSide, ftp, ssh};
use libfuzzer_sys::fuzz_target;

const SERVERS: [u16; 8] = [21, 22, 25, 53, 80, 139, 443, 445];

fuzz_target!(|data: &[u8]| {
    let [choice, place, bytes @ ..] = data else { return };
    let ports = FlowPorts { client: 40_000, server: SERVERS[usize::from(choice >> 1 & 7)] };
    let side = if choice & 1 == 0 { ExchangeSide::Request } else { ExchangeSide::Response };
    let (first, second) = bytes.split_at(usize::from(*place).min(bytes.len()));
    let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();

    let whole = reported::detect(Detector::default(), &[(side, vec![bytes])], ports);
    for pieces in [&[first, second][..], &bytewise] {
        assert_eq!(whole, reported::detect(Detector::default(), &[(side, pieces.to_vec())], ports));
        assert_eq!(
            reported::tls(TlsStream::default(), &[bytes]),
            reported::tls(TlsStream::default(), pieces)
        );
        assert_eq!(
            reported::ssh(ssh::GreetingReader::default(), &[bytes]),
            reported::ssh(ssh::GreetingReader::default(), pieces)
        );
    }
    Detector::default().datagram(side, bytes, ports);
    reported::dns(bytes);
    ftp::bounce(bytes, [192, 0, 2, 1].into());
    if let Ok(certificate) = Certificate::read(bytes) {
        let names = (certificate.subject(), certificate.issuer(), certificate.serial());
        assert_eq!(Fingerprint::of(bytes).to_string().len(), Fingerprint::TEXT_BYTES);
        std::hint::black_box((names, certificate.alternative_names(), certificate.validity()));
    }
});
