//! The results for the collection's captures equal those of tshark and openssl.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Capture, Connection, captures, is_gap, is_within, openssl, unhex};
use applayer::detect::{AppProtocol, Detection, Detector, FlowPorts};
use applayer::tls::{Certificate, Fingerprint, MESSAGE_BYTES_MAX, TlsEvent, TlsStream};
use applayer::{ExchangeSide, FixedLineBuffer, dns, ssh};

/// The compared fields of a message.
const DNS_FIELDS: [&str; 6] =
    ["dns.flags.opcode", "dns.flags.rcode", "dns.qry.name", "dns.qry.type", "dns.resp.name", "dns.resp.type"];

#[test]
fn dns_messages_are_those_of_tshark() {
    let Some(captures) = captures() else { return };
    let (mut compared, mut failures) = (0, Vec::new());
    for capture in captures {
        for row in capture.rows.iter().filter(|row| !row.get("dns.flags.opcode").is_empty()) {
            let [payload] = row.get("udp.payload") else { continue };
            let payload = unhex(payload);
            let Ok(message) = dns::DnsMessage::read(&payload) else {
                assert!(payload.len() < dns::HEADER_BYTES);
                continue;
            };
            let ours = read_dns(&message);
            let theirs = DNS_FIELDS.map(|field| row.get(field));
            let malformed = row.get("_ws.malformed");
            compared += 1;
            if !agree(&ours, &theirs, !malformed.is_empty()) {
                let frame = row.get("frame.number");
                failures.push(format!(
                    "{} {frame:?}:\n  here {ours:?}\n  there {theirs:?} {malformed:?}",
                    capture.name
                ));
            }
        }
    }
    println!("compared {compared} messages");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert!(compared >= 1500);
}

/// Returns whether our lists equal tshark's. tshark's list of record types includes types named in
/// records; it shows a question after an invalid label; and it shows sometimes more, sometimes less
/// of malformed messages.
fn agree(ours: &[Vec<String>; 6], theirs: &[&[String]; 6], malformed: bool) -> bool {
    if theirs[2].iter().chain(theirs[4]).any(|name| name.starts_with("<Unknown")) {
        return true;
    }
    let mut lists = ours.iter().zip(theirs).enumerate();
    lists.all(|(at, (ours, theirs))| match at {
        _ if malformed => ours.iter().zip(theirs.iter()).all(|(one, other)| one == other),
        5 => is_within(ours, theirs),
        _ => ours[..] == **theirs,
    })
}

/// Formats a message like tshark's fields.
fn read_dns(message: &dns::DnsMessage<'_>) -> [Vec<String>; 6] {
    let mut read = [const { Vec::new() }; 6];
    read[0].push(message.opcode.to_string());
    if message.is_response {
        read[1].push(message.rcode.to_string());
    }
    let (mut entries, mut name) = (message.entries(), dns::DnsName::default());
    while let Some(Ok(entry)) = entries.next(&mut name) {
        let shown = match name.as_bytes() {
            b"" => "<Root>".to_owned(),
            bytes => escaped(bytes),
        };
        let at = if entry.section == dns::DnsSection::Question { 2 } else { 4 };
        read[at].push(shown);
        read[at + 1].push(entry.kind.to_string());
    }
    read
}

/// Escapes control characters like tshark.
fn escaped(name: &[u8]) -> String {
    let shown = String::from_utf8_lossy(name);
    let chars = shown.chars().map(|c| match c {
        '\r' => "\\r".to_owned(),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        c if c.is_ascii_control() => format!("\\{:03o}", u32::from(c)),
        c => c.to_string(),
    });
    chars.collect()
}

#[test]
fn hellos_and_certificates_are_those_of_tshark() {
    let Some(captures) = captures() else { return };
    let (mut compared, mut names, mut more, mut failures) = (0, 0, Vec::new(), Vec::new());
    let mut certificates = BTreeSet::new();
    for capture in captures {
        let theirs = tshark_tls(capture);
        for connection in &capture.connections {
            let Some(theirs) = theirs.get(&connection.stream) else { continue };
            if detect(connection) != Detection::Known(AppProtocol::Tls) {
                continue;
            }
            let ours = read_tls(connection);
            compared += 1;
            names += theirs.server_names.len();
            certificates.extend(ours.certificates.iter().cloned());
            let mut pairs = ours.lists().into_iter().zip(theirs.lists());
            let all_here = pairs.all(|(ours, theirs)| is_within(theirs, ours));
            // The certificate in an SSL 2 hello is not parsed.
            let is_ssl2 = ours.versions.contains(&"0x0002".to_owned());
            let case =
                format!("{} {}:\n  here {ours:?}\n  there {theirs:?}", capture.name, connection.stream);
            match all_here || is_ssl2 {
                true if ours == *theirs || is_ssl2 => {}
                true => more.push(case),
                false => failures.push(case),
            }
        }
    }
    println!("compared {compared} connections with {names} names of servers; {} have more here", more.len());
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert!(compared >= 500 && names >= 400);
    // tshark omits messages after out-of-order segments, replies to an SSL 2 hello, and TLS at port
    // 80.
    assert!(more.len() <= 16, "{} have more here:\n{}", more.len(), more.join("\n"));

    let unequal: Vec<_> = certificates.iter().filter_map(|hex| differs_from_openssl(&unhex(hex))).collect();
    println!("compared {} certificates with openssl", certificates.len());
    assert!(unequal.is_empty(), "{} differ:\n{}", unequal.len(), unequal.join("\n"));
}

/// The compared values of a connection, each in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tls {
    server_names: Vec<String>,
    protocols: Vec<String>,
    versions: Vec<String>,
    ciphers: Vec<String>,
    certificates: Vec<String>,
}

impl Tls {
    fn lists(&self) -> [&[String]; 5] {
        [&self.server_names, &self.protocols, &self.versions, &self.ciphers, &self.certificates]
    }
}

fn tshark_tls(capture: &Capture) -> BTreeMap<u32, Tls> {
    let mut connections = BTreeMap::<u32, Tls>::new();
    for row in &capture.rows {
        let Some(stream) = row.stream() else { continue };
        let tls = connections.entry(stream).or_default();
        tls.server_names.extend_from_slice(row.get("tls.handshake.extensions_server_name"));
        tls.protocols.extend_from_slice(row.get("tls.handshake.extensions_alpn_str"));
        tls.versions.extend_from_slice(row.get("tls.handshake.version"));
        tls.ciphers.extend_from_slice(row.get("tls.handshake.ciphersuite"));
        tls.certificates.extend_from_slice(row.get("tls.handshake.certificate"));
    }
    connections
}

fn read_tls(connection: &Connection) -> Tls {
    let mut tls = Tls::default();
    let mut streams = [TlsStream::default(); 2];
    let mut lines = [(); 2].map(|()| Box::new(FixedLineBuffer::<MESSAGE_BYTES_MAX>::default()));
    for (node, bytes) in &connection.pieces {
        let (stream, line) = (&mut streams[*node], &mut *lines[*node]);
        let mut sink = |event: TlsEvent<'_>| note(&mut tls, event);
        match is_gap(bytes) {
            true => stream.gap(line, &mut sink),
            false => stream.take(bytes, line, &mut sink),
        }
    }
    tls
}

fn note(tls: &mut Tls, event: TlsEvent<'_>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let hex = |number: u16| format!("0x{number:04x}");
    match event {
        TlsEvent::ClientHello(hello) => {
            tls.server_names.extend(hello.server_name().map(text));
            tls.protocols.extend(hello.protocols().map(text));
            tls.versions.push(hex(hello.legacy_version().0));
            tls.ciphers.extend(hello.cipher_suites().map(hex));
        }
        TlsEvent::ServerHello(hello) => {
            tls.protocols.extend(hello.protocol().map(text));
            tls.versions.push(hex(hello.legacy_version().0));
            tls.ciphers.push(hex(hello.cipher_suite()));
        }
        TlsEvent::Ssl2ClientHello(version) | TlsEvent::Ssl2ServerHello(version) => {
            tls.versions.push(hex(version.0))
        }
        TlsEvent::Certificates(chain) => {
            let hex = |der: &[u8]| der.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            tls.certificates.extend(chain.iter().map(hex));
        }
        _ => {}
    }
}

fn differs_from_openssl(der: &[u8]) -> Option<String> {
    let names = ["-nameopt", "sep_comma_plus_space,sname,utf8"];
    let theirs = openssl(der, &[&names[..], &["-subject", "-issuer", "-serial", "-fingerprint"]].concat());
    // openssl's short names differ from those of the library and Suricata.
    let theirs = theirs.map(|text| {
        let names = [
            ("emailAddress=", "Email="),
            ("street=", "streetAddress="),
            ("jurisdictionC=", "msJurisdictionCountry="),
            ("jurisdictionST=", "msJurisdictionStateOrProvince="),
            ("SHA1 Fingerprint", "sha1 Fingerprint"),
        ];
        names.iter().fold(text, |text, (from, to)| text.replace(from, to))
    });
    let ours = Certificate::read(der).ok().map(|certificate| {
        let serial = certificate.serial().replace(':', "");
        let serial = if serial.len() > 2 { serial.strip_prefix("00").unwrap_or(&serial) } else { &serial };
        format!(
            "subject={}\nissuer={}\nserial={serial}\nsha1 Fingerprint={}\n",
            certificate.subject(),
            certificate.issuer(),
            Fingerprint::of(der).to_string().to_uppercase(),
        )
    });
    (ours != theirs).then(|| format!("here {ours:#?}\nthere {theirs:#?}"))
}

/// Connections that tshark judges by their ports, and their first bytes.
const BY_PORT: [(&str, u32, &str); 4] =
    [(MIX, 2348, "ssh"), (MIX, 2356, "tls"), (MIX, 3023, "http1"), (MIX, 3089, "ssh")];

const MIX: &str = "workload/merged_mix.pcap";

#[test]
fn protocols_are_those_of_tshark() {
    let Some(captures) = captures() else { return };
    let (mut found, mut failures) = (BTreeMap::new(), Vec::new());
    for capture in captures {
        let theirs = tshark_protocols(capture);
        for connection in &capture.connections {
            let theirs = &theirs[&connection.stream];
            let verdict = detect(connection);
            let Detection::Known(application) = verdict else {
                *found.entry("none").or_insert(0) += 1;
                println!("{} {}: {verdict:?}, there {theirs:?}", capture.name, connection.stream);
                continue;
            };
            let ours = application.name();
            *found.entry(ours).or_insert(0) += 1;
            if !theirs.contains(ours) && !BY_PORT.contains(&(&capture.name, connection.stream, ours)) {
                failures
                    .push(format!("{} {}: here {ours}, there {theirs:?}", capture.name, connection.stream));
            }
        }
    }
    // Those without a result began before the capture, or with another protocol: SOCKS, MySQL,
    // Gnutella.
    println!("found {found:?}");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert!(found["none"] * 10 < found.values().sum());
}

fn tshark_protocols(capture: &Capture) -> BTreeMap<u32, BTreeSet<&'static str>> {
    let mut protocols = BTreeMap::<u32, BTreeSet<_>>::new();
    for row in &capture.rows {
        let (Some(stream), Some(stack)) = (row.stream(), row.get("frame.protocols").last()) else { continue };
        let known = protocols.entry(stream).or_default();
        known.extend(stack.split(':').filter_map(|layer| match layer {
            "http" => Some("http1"),
            "smb2" => Some("smb"),
            layer => {
                AppProtocol::ALL.iter().map(|application| application.name()).find(|name| *name == layer)
            }
        }));
    }
    protocols
}

fn detect(connection: &Connection) -> Detection {
    let server = connection.server();
    let ports = FlowPorts { client: connection.ports[1 - server], server: connection.ports[server] };
    let (mut detector, mut offsets) = (Detector::default(), [0; 2]);
    for (node, bytes) in &connection.pieces {
        if is_gap(bytes) {
            offsets[*node] += 1;
            continue;
        }
        let side = if *node == server { ExchangeSide::Response } else { ExchangeSide::Request };
        detector.stream(side, offsets[*node], bytes, ports);
        offsets[*node] += bytes.len() as u64;
    }
    detector.verdict()
}

#[test]
fn greetings_are_those_of_tshark() {
    let Some(captures) = captures() else { return };
    let (mut compared, mut more) = (0, 0);
    for capture in captures {
        let mut theirs = BTreeMap::<u32, Vec<String>>::new();
        for row in capture.rows.iter().filter(|row| !row.get("ssh.protocol").is_empty()) {
            let Some(stream) = row.stream() else { continue };
            theirs.entry(stream).or_default().extend_from_slice(row.get("ssh.protocol"));
        }
        for connection in &capture.connections {
            let Some(theirs) = theirs.get(&connection.stream) else { continue };
            let ours = read_ssh(connection);
            compared += theirs.len();
            more += ours.len() - theirs.len();
            assert!(is_within(theirs, &ours), "{} {}: {ours:?}, {theirs:?}", capture.name, connection.stream);
        }
    }
    println!("compared {compared} greetings; {more} more here");
    // tshark omits lines after out-of-order segments.
    assert!(compared >= 700 && more <= 10);
}

fn read_ssh(connection: &Connection) -> Vec<String> {
    let mut lines = Vec::new();
    let mut readers = [ssh::GreetingReader::default(); 2];
    let mut stores = [(); 2].map(|()| FixedLineBuffer::<256>::default());
    for (node, bytes) in &connection.pieces {
        readers[*node].take(bytes, &mut stores[*node], &mut |greeting: ssh::SshGreeting<'_>| {
            lines.push(String::from_utf8_lossy(greeting.raw).into_owned());
            assert!(
                greeting.raw.starts_with(&[&b"SSH"[..], greeting.protocol, greeting.software].join(&b'-'))
            );
        });
    }
    lines
}
