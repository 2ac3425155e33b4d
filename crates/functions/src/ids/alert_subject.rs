//! Details in alerts about the message that matched, with EVE's field names.

use applayer::dns;
use applayer::http::uri;
use nf::{AlertMessage, AlertValue};
use signatures::Buffer;

use super::inspection_buffers::InspectionBuffers;
use super::message::HttpMessage;

/// The message at an inspection point.
#[derive(Clone, Copy)]
pub enum AlertSubject<'a> {
    /// No subject, or a subject without details.
    Nothing,
    /// An HTTP message, with the number of its transaction in the connection.
    Http(&'a HttpMessage, u64),
    /// A DNS message, with its number in the flow.
    Dns(&'a dns::DnsMessage<'a>, u64),
    /// A TLS handshake message.
    Tls(&'a InspectionBuffers),
}

/// Maximum bytes of a text in an alert.
pub const TEXT_BYTES: usize = 1024;
/// Maximum queries or answers of a DNS message in an alert.
pub const ENTRIES_MAX: usize = 16;

/// Names and values.
pub type AlertFields = Vec<(&'static str, AlertValue)>;

impl AlertSubject<'_> {
    /// Returns the transaction number, if the message has one.
    pub fn transaction(&self) -> Option<u64> {
        match self {
            AlertSubject::Http(_, number) | AlertSubject::Dns(_, number) => Some(*number),
            // A connection has one handshake.
            AlertSubject::Tls(_) => Some(0),
            AlertSubject::Nothing => None,
        }
    }

    /// Returns the details of the message.
    pub fn message(&self) -> Option<AlertMessage> {
        let (kind, fields) = match self {
            AlertSubject::Nothing => return None,
            AlertSubject::Http(message, _) => ("http", of_http(message)),
            AlertSubject::Dns(message, number) => ("dns", of_dns(message, *number)),
            AlertSubject::Tls(buffers) => ("tls", of_tls(buffers)),
        };
        (!fields.is_empty()).then_some(AlertMessage { kind, fields })
    }
}

fn text(bytes: &[u8]) -> AlertValue {
    AlertValue::Text(bytes[..bytes.len().min(TEXT_BYTES)].to_vec())
}

fn of_http(message: &HttpMessage) -> AlertFields {
    let mut fields = AlertFields::new();
    let mut add = |name, bytes: &[u8]| {
        if !bytes.is_empty() {
            fields.push((name, text(bytes)));
        }
    };
    let [first, second, third] = message.words();
    if message.is_request() {
        let named = uri::split(second).authority;
        let host = named.or(message.first_value(applayer::http::FieldName::Host)).unwrap_or_default();
        let (_, host, port) = uri::split_authority(host);
        add("hostname", host);
        add("url", second);
        add("http_user_agent", message.first_value(applayer::http::FieldName::UserAgent).unwrap_or_default());
        add("http_refer", message.first_value(applayer::http::FieldName::Referer).unwrap_or_default());
        add("http_method", first);
        add("protocol", third);
        let port = port.and_then(|port| std::str::from_utf8(port).ok()?.parse::<u16>().ok());
        fields.extend(port.map(|port| ("http_port", AlertValue::Number(port.into()))));
    } else {
        add(
            "http_content_type",
            message.first_value(applayer::http::FieldName::ContentType).unwrap_or_default(),
        );
        add("protocol", first);
        add("redirect", message.first_value(applayer::http::FieldName::Location).unwrap_or_default());
        let status = std::str::from_utf8(second).ok().and_then(|code| code.parse::<u16>().ok());
        fields.extend(status.map(|status| ("status", AlertValue::Number(status.into()))));
    }
    fields.push(("length", AlertValue::Number(message.body_len() as u64)));
    fields
}

/// Version of the form of DNS messages in EVE.
const DNS_VERSION: (&str, AlertValue) = ("version", AlertValue::Number(2));

/// Returns the fields as in Suricata 7's alerts: the queries, or the answer. The answer's records
/// are added; Suricata has none.
fn of_dns(message: &dns::DnsMessage<'_>, number: u64) -> AlertFields {
    let (mut head, answers) = dns_parts(message, number);
    let (mut fields, mut out) = (vec![DNS_VERSION], Vec::new());
    if message.is_response {
        head.insert(0, DNS_VERSION);
        write_object(&head, &mut out);
        fields.push(("answer", AlertValue::Json(out)));
    } else {
        out.push(b'[');
        write_object(&head, &mut out);
        out.push(b']');
        fields.push(("query", AlertValue::Json(out)));
    }
    fields.extend(answers);
    fields
}

fn of_tls(buffers: &InspectionBuffers) -> AlertFields {
    let reported = [
        ("subject", Buffer::TlsCertSubject),
        ("issuerdn", Buffer::TlsCertIssuer),
        ("serial", Buffer::TlsCertSerial),
        ("fingerprint", Buffer::TlsCertFingerprint),
        ("sni", Buffer::TlsSni),
    ];
    reported.into_iter().filter_map(|(name, buffer)| Some((name, text(buffers.first(buffer)?)))).collect()
}

/// Returns the fields of the event of a DNS message, the flow's `number`th from 0.
pub fn dns_fields(message: &dns::DnsMessage<'_>, number: u64) -> AlertFields {
    let (head, answers) = dns_parts(message, number);
    [DNS_VERSION].into_iter().chain(head).chain(answers).collect()
}

/// Returns a DNS message's header with its first question, and its answers.
fn dns_parts(
    message: &dns::DnsMessage<'_>,
    number: u64,
) -> (AlertFields, Option<(&'static str, AlertValue)>) {
    let text = |text: &str| AlertValue::Text(text.as_bytes().to_vec());
    let kind = if message.is_response { "answer" } else { "query" };
    let mut fields = vec![("type", text(kind)), ("id", AlertValue::Number(message.id.into()))];
    if message.is_response {
        fields.push(("flags", text(&format!("{:04x}", message.flags))));
        fields.push(("qr", AlertValue::Flag(true)));
        let bits = [("aa", 0x400), ("tc", 0x200), ("rd", 0x100), ("ra", 0x80), ("z", 0x40)].into_iter();
        fields.extend(
            bits.filter(|(_, bit)| message.flags & bit != 0).map(|(name, _)| (name, AlertValue::Flag(true))),
        );
    }
    fields.push(("opcode", AlertValue::Number(message.opcode.into())));
    fields.push(match message.is_response {
        true => ("rcode", text(&rcode(message.rcode))),
        false => ("tx_id", AlertValue::Number(number)),
    });
    let (mut name, mut entries) = (dns::DnsName::default(), message.entries());
    let mut target = dns::DnsName::default();
    let (mut has_question, mut count, mut answers) = (false, 0, Vec::new());
    while let Some(Ok(entry)) = entries.next(&mut name) {
        match entry.section {
            dns::DnsSection::Question if !has_question => {
                has_question = true;
                fields.extend(name_fields(name.as_bytes(), entry.kind));
            }
            dns::DnsSection::Question => {}
            dns::DnsSection::Answer if count < ENTRIES_MAX => {
                answers.push(if count == 0 { b'[' } else { b',' });
                count += 1;
                let mut answer = name_fields(name.as_bytes(), entry.kind).to_vec();
                answer.push(("ttl", AlertValue::Number(entry.ttl_s.into())));
                let data = message.name_in_data(&entry, &mut target).map(<[u8]>::to_vec);
                answer.extend(data.or(plain_data(&entry)).map(|data| ("rdata", AlertValue::Text(data))));
                write_object(&answer, &mut answers);
            }
            _ => break,
        }
    }
    answers.push(b']');
    (fields, (count > 0).then_some(("answers", AlertValue::Json(answers))))
}

/// Writes fields as a JSON object.
fn write_object(fields: &[(&'static str, AlertValue)], out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (name, value)) in fields.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_text(name.as_bytes(), out);
        out.push(b':');
        match value {
            AlertValue::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            AlertValue::Flag(flag) => out.extend_from_slice(flag.to_string().as_bytes()),
            AlertValue::Text(text) => write_text(text, out),
            AlertValue::Json(json) => out.extend_from_slice(json),
        }
    }
    out.push(b'}');
}

/// Returns the name and type of an entry. Types without a name are numbers, as in Suricata.
fn name_fields(name: &[u8], kind: u16) -> [(&'static str, AlertValue); 2] {
    let known = type_name(kind).map_or_else(|| kind.to_string(), str::to_owned);
    [("rrname", text(name)), ("rrtype", AlertValue::Text(known.into_bytes()))]
}

/// Formats record data of a known type that has no name.
fn plain_data(entry: &dns::DnsEntry<'_>) -> Option<Vec<u8>> {
    match (entry.kind, entry.data.len()) {
        (1, 4) => {
            entry.data.first_chunk::<4>().map(|octets| std::net::Ipv4Addr::from(*octets).to_string().into())
        }
        (28, 16) => {
            entry.data.first_chunk::<16>().map(|octets| std::net::Ipv6Addr::from(*octets).to_string().into())
        }
        // TXT: length-prefixed strings; only the first is reported.
        (16, 1..) => entry.data.get(1..1 + usize::from(entry.data[0])).map(<[u8]>::to_vec),
        _ => None,
    }
}

/// Writes bytes as a JSON string; bytes that are not UTF-8 become `\xff`, as in Suricata.
fn write_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => out.extend([b'\\', character as u8]),
                '\0'..='\x1f' => out.extend_from_slice(format!("\\u{:04x}", character as u32).as_bytes()),
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|byte| out.extend_from_slice(format!("\\\\x{byte:02x}").as_bytes()));
    }
    out.push(b'"');
}

fn type_name(kind: u16) -> Option<&'static str> {
    Some(match kind {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        10 => "NULL",
        12 => "PTR",
        13 => "HINFO",
        15 => "MX",
        16 => "TXT",
        17 => "RP",
        18 => "AFSDB",
        24 => "SIG",
        25 => "KEY",
        28 => "AAAA",
        29 => "LOC",
        33 => "SRV",
        35 => "NAPTR",
        36 => "KX",
        37 => "CERT",
        39 => "DNAME",
        41 => "OPT",
        42 => "APL",
        43 => "DS",
        44 => "SSHFP",
        45 => "IPSECKEY",
        46 => "RRSIG",
        47 => "NSEC",
        48 => "DNSKEY",
        49 => "DHCID",
        50 => "NSEC3",
        51 => "NSEC3PARAM",
        52 => "TLSA",
        55 => "HIP",
        59 => "CDS",
        60 => "CDNSKEY",
        64 => "SVCB",
        65 => "HTTPS",
        99 => "SPF",
        249 => "TKEY",
        250 => "TSIG",
        251 => "IXFR",
        252 => "AXFR",
        255 => "ANY",
        256 => "URI",
        257 => "CAA",
        _ => return None,
    })
}

fn rcode(code: u8) -> String {
    const NAMES: [&str; 11] = [
        "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
        "NOTAUTH", "NOTZONE",
    ];
    NAMES.get(usize::from(code)).map_or_else(|| code.to_string(), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dns_answer_is_an_object() {
        let bytes = b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\0\x02a\"\x03org\0\0\x01\0\x01\
            \xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x02\xc0\x0c\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x07";
        let message = dns::DnsMessage::read(bytes).unwrap();
        let mut out = Vec::new();
        write_object(&dns_fields(&message, 1), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"version":2,"type":"answer","id":4660,"flags":"8180","qr":true,"rd":true,"ra":true,"opcode":0,"#.to_owned()
                + r#""rcode":"NOERROR","rrname":"a\".org","rrtype":"A","#
                + r#""answers":[{"rrname":"a\".org","rrtype":"CNAME","ttl":60,"rdata":"a\".org"},"#
                + r#"{"rrname":"a\".org","rrtype":"A","ttl":60,"rdata":"192.0.2.7"}]}"#
        );
    }

    #[test]
    fn a_text_is_one_of_json() {
        let mut out = Vec::new();
        write_text(b"a\\\"\n\xff\xc3\xa4", &mut out);
        assert_eq!(out, "\"a\\\\\\\"\\u000a\\\\xff\u{e4}\"".as_bytes());
    }
}
