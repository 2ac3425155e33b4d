//! What alerts tell of the message that they are about, in the words of EVE.

use applayer::dns;
use applayer::http::uri;
use nf::{AlertMessage, AlertValue};
use signatures::Buffer;

use super::message::Message;
use super::scene::Scene;

/// The message that an occasion is about.
#[derive(Clone, Copy)]
pub enum About<'a> {
    /// None, or one of which nothing is told.
    Nothing,
    /// One of HTTP, with the number of its transaction in the connection.
    Http(&'a Message, u64),
    /// One of DNS.
    Dns(&'a dns::Message<'a>),
    /// One of TLS's handshake.
    Tls(&'a Scene),
}

/// The most bytes of a text that are told.
pub const TEXT_BYTES: usize = 1024;
/// The most names, or answers, of a DNS message that are told.
pub const ENTRIES_MAX: usize = 16;

/// Names and values.
pub type Fields = Vec<(&'static str, AlertValue)>;

impl About<'_> {
    /// The number of the message's transaction, if it has one.
    pub fn transaction(&self) -> Option<u64> {
        match self {
            About::Http(_, number) => Some(*number),
            About::Dns(_) => Some(0),
            About::Tls(_) | About::Nothing => None,
        }
    }

    /// What is told of it.
    pub fn message(&self) -> Option<AlertMessage> {
        let (kind, fields) = match self {
            About::Nothing => return None,
            About::Http(message, _) => ("http", of_http(message)),
            About::Dns(message) => ("dns", of_dns(message)),
            About::Tls(scene) => ("tls", of_tls(scene)),
        };
        (!fields.is_empty()).then_some(AlertMessage { kind, fields })
    }
}

fn text(bytes: &[u8]) -> AlertValue {
    AlertValue::Text(bytes[..bytes.len().min(TEXT_BYTES)].to_vec())
}

fn of_http(message: &Message) -> Fields {
    let mut fields = Fields::new();
    let mut add = |name, bytes: &[u8]| {
        if !bytes.is_empty() {
            fields.push((name, text(bytes)));
        }
    };
    let [first, second, third] = message.words();
    if message.is_request() {
        let named = uri::split(second).authority;
        let host = named.or(message.first_value(applayer::http::Field::Host)).unwrap_or_default();
        let (_, host, port) = uri::split_authority(host);
        add("hostname", host);
        add("url", second);
        add("http_user_agent", message.first_value(applayer::http::Field::UserAgent).unwrap_or_default());
        add("http_refer", message.first_value(applayer::http::Field::Referer).unwrap_or_default());
        add("http_method", first);
        add("protocol", third);
        let port = port.and_then(|port| std::str::from_utf8(port).ok()?.parse::<u16>().ok());
        fields.extend(port.map(|port| ("http_port", AlertValue::Number(port.into()))));
    } else {
        add("http_content_type", message.first_value(applayer::http::Field::ContentType).unwrap_or_default());
        add("protocol", first);
        add("redirect", message.first_value(applayer::http::Field::Location).unwrap_or_default());
        let status = std::str::from_utf8(second).ok().and_then(|code| code.parse::<u16>().ok());
        fields.extend(status.map(|status| ("status", AlertValue::Number(status.into()))));
    }
    fields.push(("length", AlertValue::Number(message.body_len() as u64)));
    fields
}

/// As in Suricata 7's alerts: the names that are asked for, or the answer.
fn of_dns(message: &dns::Message<'_>) -> Fields {
    let mut out = Vec::new();
    write_object(&dns_fields(message), &mut out);
    if message.is_response {
        return vec![("answer", AlertValue::Json(out))];
    }
    out.insert(0, b'[');
    out.push(b']');
    vec![("query", AlertValue::Json(out))]
}

fn of_tls(scene: &Scene) -> Fields {
    let told = [
        ("subject", Buffer::TlsCertSubject),
        ("issuerdn", Buffer::TlsCertIssuer),
        ("serial", Buffer::TlsCertSerial),
        ("fingerprint", Buffer::TlsCertFingerprint),
        ("sni", Buffer::TlsSni),
    ];
    told.into_iter().filter_map(|(name, buffer)| Some((name, text(scene.first(buffer)?)))).collect()
}

/// What is told of a DNS message: its header, the first question, and the answers.
pub fn dns_fields(message: &dns::Message<'_>) -> Fields {
    let text = |text: &str| AlertValue::Text(text.as_bytes().to_vec());
    let kind = if message.is_response { "answer" } else { "query" };
    let mut fields = vec![("type", text(kind)), ("id", AlertValue::Number(message.id.into()))];
    if message.is_response {
        fields.push(("version", AlertValue::Number(2)));
        fields.push(("flags", text(&format!("{:04x}", message.flags))));
        fields.push(("qr", AlertValue::Flag(true)));
        let bits = [("aa", 0x400), ("tc", 0x200), ("rd", 0x100), ("ra", 0x80)].into_iter();
        fields.extend(
            bits.filter(|(_, bit)| message.flags & bit != 0).map(|(name, _)| (name, AlertValue::Flag(true))),
        );
    }
    fields.push(("opcode", AlertValue::Number(message.opcode.into())));
    let (mut name, mut entries) = (dns::Name::default(), message.entries());
    let (mut has_question, mut count, mut answers) = (false, 0, Vec::new());
    while let Some(Ok(entry)) = entries.next(&mut name) {
        match entry.section {
            dns::Section::Question if !has_question => {
                has_question = true;
                fields.extend(name_fields(name.as_bytes(), entry.kind));
                fields.push(match message.is_response {
                    true => ("rcode", text(rcode(message.rcode))),
                    false => ("tx_id", AlertValue::Number(0)),
                });
            }
            dns::Section::Question => {}
            dns::Section::Answer if count < ENTRIES_MAX => {
                answers.push(if count == 0 { b'[' } else { b',' });
                count += 1;
                let mut answer = name_fields(name.as_bytes(), entry.kind).to_vec();
                answer.push(("ttl", AlertValue::Number(entry.ttl_s.into())));
                answer.extend(data(&entry).map(|data| ("rdata", AlertValue::Text(data))));
                write_object(&answer, &mut answers);
            }
            _ => break,
        }
    }
    if count > 0 {
        answers.push(b']');
        fields.push(("answers", AlertValue::Json(answers)));
    }
    fields
}

/// Writes fields as an object of JSON.
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

/// The name and type of an entry.
fn name_fields(name: &[u8], kind: u16) -> [(&'static str, AlertValue); 2] {
    let known = type_name(kind).map_or_else(|| format!("TYPE{kind}"), str::to_owned);
    [("rrname", text(name)), ("rrtype", AlertValue::Text(known.into_bytes()))]
}

/// The data of a record whose form is known.
fn data(entry: &dns::Entry<'_>) -> Option<Vec<u8>> {
    match (entry.kind, entry.data.len()) {
        (1, 4) => {
            entry.data.first_chunk::<4>().map(|octets| std::net::Ipv4Addr::from(*octets).to_string().into())
        }
        (28, 16) => {
            entry.data.first_chunk::<16>().map(|octets| std::net::Ipv6Addr::from(*octets).to_string().into())
        }
        // A text: strings, each behind its length, of which the first is told.
        (16, 1..) => entry.data.get(1..1 + usize::from(entry.data[0])).map(<[u8]>::to_vec),
        _ => None,
    }
}

/// Writes bytes as a string of JSON: those that are no UTF-8 as `\xff`, as Suricata writes them.
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
        12 => "PTR",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        35 => "NAPTR",
        41 => "OPT",
        43 => "DS",
        46 => "RRSIG",
        47 => "NSEC",
        48 => "DNSKEY",
        64 => "SVCB",
        65 => "HTTPS",
        251 => "IXFR",
        252 => "AXFR",
        255 => "ANY",
        257 => "CAA",
        _ => return None,
    })
}

fn rcode(code: u8) -> &'static str {
    const NAMES: [&str; 11] = [
        "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
        "NOTAUTH", "NOTZONE",
    ];
    NAMES.get(usize::from(code)).copied().unwrap_or("UNKNOWN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dns_answer_is_an_object() {
        let bytes = b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\0\x02a\"\x03org\0\0\x01\0\x01\
            \xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x02\xc0\x0c\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x07";
        let message = dns::Message::read(bytes).unwrap();
        let mut out = Vec::new();
        write_object(&dns_fields(&message), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"type":"answer","id":4660,"version":2,"flags":"8180","qr":true,"rd":true,"ra":true,"opcode":0,"#.to_owned()
                + r#""rrname":"a\".org","rrtype":"A","rcode":"NOERROR","#
                + r#""answers":[{"rrname":"a\".org","rrtype":"CNAME","ttl":60},"#
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
