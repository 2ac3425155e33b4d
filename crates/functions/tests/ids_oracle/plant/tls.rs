//! TLS handshake messages.

/// Name attributes, by the last byte of their identifiers (RFC 5280 A.1).
const ATTRIBUTES: [(&str, u8); 6] = [("CN", 3), ("C", 6), ("L", 7), ("ST", 8), ("O", 10), ("OU", 11)];

/// Returns a ClientHello (RFC 8446 4.1.2) with this server name.
pub fn client_hello(name: &[u8]) -> Vec<u8> {
    let list = counted(2, &[&[0][..], &counted(2, name)].concat());
    let extensions = counted(2, &[&[0, 0][..], &counted(2, &list)].concat());
    record(1, &[&[3, 3][..], &[9; 32], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat())
}

/// Returns a chain of one certificate (RFC 5246 7.4.2), with names such as `C=US, CN=a.example` and
/// a serial number such as `01:AB`; `None` if they are malformed.
pub fn certificate(subject: &[u8], issuer: &[u8], serial: &[u8]) -> Option<Vec<u8>> {
    let digits = serial.split(|byte| *byte == b':').map(|two| std::str::from_utf8(two).ok());
    let serial: Vec<u8> = digits.map(|two| u8::from_str_radix(two?, 16).ok()).collect::<Option<_>>()?;
    let algorithm = der(0x30, &[&der(6, &[b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"])[..], &der(5, &[])]);
    let time = der(23, &[b"200101000000Z"]);
    let key = der(0x30, &[&algorithm, &der(3, &[b"\0\x30\0"])]);
    let signed = der(
        0x30,
        &[
            &der(0xa0, &[&der(2, &[b"\x02"])]),
            &der(2, &[&serial]),
            &algorithm,
            &name(issuer)?,
            &der(0x30, &[&time, &time]),
            &name(subject)?,
            &key,
        ],
    );
    let whole = der(0x30, &[&signed, &algorithm, &der(3, &[b"\0q"])]);
    Some(record(11, &counted(3, &counted(3, &whole))))
}

fn name(text: &[u8]) -> Option<Vec<u8>> {
    let mut parts = Vec::new();
    for attribute in std::str::from_utf8(text).ok()?.split(", ") {
        let (key, value) = attribute.split_once('=').unwrap_or(("CN", attribute));
        let (_, id) = ATTRIBUTES.into_iter().find(|(name, _)| *name == key)?;
        let pair = der(0x30, &[&der(6, &[&[0x55, 4, id]]), &der(12, &[value.as_bytes()])]);
        parts.push(der(0x31, &[&pair]));
    }
    Some(der(0x30, &[&parts.concat()]))
}

/// Returns a DER value (ITU-T X.690 8.1).
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    let len = value.len() as u16;
    let head = if len < 0x80 { vec![tag, len as u8] } else { vec![tag, 0x82, (len >> 8) as u8, len as u8] };
    [head, value].concat()
}

/// Returns a record with a handshake message.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let message = [&[kind][..], &counted(3, body)].concat();
    [&[22, 3, 1][..], &counted(2, &message)].concat()
}

/// Prefixes bytes with their length, of `width` bytes.
fn counted(width: usize, bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[4 - width..], bytes].concat()
}
