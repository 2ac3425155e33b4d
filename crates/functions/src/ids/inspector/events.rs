//! Events about DNS messages and TLS handshakes, whether rules match or not.

use applayer::{dns, tls};
use nf::{AlertValue, EventField, EventValue};
use packet::Direction;
use signatures::Buffer;

use super::Inspector;
use crate::ids::alert_subject::{AlertFields, dns_fields};
use crate::ids::inspection_buffers::InspectionBuffers;
use crate::ids::state::KeptBuffer;

/// The facts of a handshake in its event, besides names.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshake {
    /// True after a ClientHello.
    pub is_client: bool,
    /// The version that the server chose.
    pub version: Option<tls::ProtocolVersion>,
    /// True once nothing more can be parsed.
    pub has_ended: bool,
    /// True after the server's certificates.
    has_certificates: bool,
    /// Start and end of validity of the server's certificate.
    pub validity: Option<(String, String)>,
}

impl Handshake {
    /// Records an event of the parser.
    pub fn note(&mut self, reported: &tls::TlsEvent<'_>) {
        match reported {
            tls::TlsEvent::ClientHello(_) => self.is_client = true,
            tls::TlsEvent::ServerHello(hello) if !hello.is_retry() => self.version = Some(hello.version()),
            tls::TlsEvent::Certificates(_) => (self.has_ended, self.has_certificates) = (true, true),
            tls::TlsEvent::Encrypted => self.has_ended = true,
            _ => {}
        }
    }
}

/// Returns a version's name in Suricata.
fn reported_version(version: tls::ProtocolVersion) -> String {
    match version.0 {
        0x0301 => "TLSv1".to_owned(),
        // RFC 8446 4.2.1.1 of the drafts.
        0x7f10..=0x7f1c => format!("TLS 1.3 draft-{}", version.0 & 0xff),
        _ => version.to_string(),
    }
}

/// The two bytes of the version, before the client's server name.
const VERSION_BYTES: usize = 2;

impl Inspector<'_, '_> {
    /// Reports a DNS message.
    #[cold]
    pub(super) fn dns_event(&mut self, message: &dns::DnsMessage<'_>, number: u64, direction: Direction) {
        self.event("dns", direction, &dns_fields(message, number));
    }

    /// Reports a handshake once the readable part of the server's side is complete. The client's
    /// part waits in a buffer.
    #[cold]
    pub(super) fn tls_event(
        &mut self,
        handshake: Handshake,
        all_buffers: &[InspectionBuffers],
        client: Direction,
    ) {
        let kept = KeptBuffer::Text.of(Direction::Original);
        let first = |buffer| all_buffers.iter().find_map(|buffers| buffers.first(buffer));
        if handshake.is_client {
            let mut hello = self.context.take_buffer(kept);
            hello.clear();
            hello.push(&[0; VERSION_BYTES]);
            hello.push(first(Buffer::TlsSni).unwrap_or_default());
            return self.context.give_buffer(kept, hello);
        }
        if !self.context.has_buffer(kept) {
            return;
        }
        let mut hello = self.context.take_buffer(kept);
        let mut known = hello.as_slice().to_vec();
        hello.clear();
        if let (Some(version), Some(bytes)) = (handshake.version, known.first_chunk_mut()) {
            *bytes = version.0.to_be_bytes();
        }
        if !handshake.has_ended {
            hello.push(&known);
            return self.context.give_buffer(kept, hello);
        }
        self.context.give_buffer(kept, hello);
        let Some((version, name)) = known.split_first_chunk::<VERSION_BYTES>() else { return };
        let mut fields = AlertFields::new();
        for (field, bytes) in [
            ("subject", first(Buffer::TlsCertSubject)),
            ("issuerdn", first(Buffer::TlsCertIssuer)),
            ("serial", first(Buffer::TlsCertSerial)),
            ("fingerprint", first(Buffer::TlsCertFingerprint)),
            ("sni", Some(name).filter(|name| !name.is_empty())),
        ] {
            fields.extend(bytes.map(|bytes| (field, AlertValue::Text(bytes.to_vec()))));
        }
        let version = tls::ProtocolVersion(u16::from_be_bytes(*version));
        let is_known = version.0 != 0;
        let mut add = |field, text: String| fields.push((field, AlertValue::Text(text.into_bytes())));
        if is_known {
            add("version", reported_version(version));
        }
        if let Some((from, until)) = handshake.validity {
            add("notbefore", from);
            add("notafter", until);
        }
        // TLS 1.3 encrypts certificates; up to 1.2, none come where a session is resumed.
        if is_known && version < tls::ProtocolVersion::TLS_13 && !handshake.has_certificates {
            fields.push(("session_resumed", AlertValue::Flag(true)));
        }
        self.event("tls", client, &fields);
    }

    fn event(&mut self, kind: &'static str, about: Direction, fields: &AlertFields) {
        let borrowed: Vec<EventField<'_>> = fields
            .iter()
            .map(|(name, value)| {
                let value = match value {
                    AlertValue::Number(number) => EventValue::Number(*number),
                    AlertValue::Text(text) => EventValue::Text(text),
                    AlertValue::Flag(flag) => EventValue::Flag(*flag),
                    AlertValue::Json(json) => EventValue::Json(json),
                };
                (*name, value)
            })
            .collect();
        self.context.event(kind, about, &borrowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_suricatas_names() {
        let names = [0x0002, 0x0300, 0x0301, 0x0302, 0x0303, 0x0304, 0x7f1c, 0x0a0a]
            .map(|number| reported_version(tls::ProtocolVersion(number)));
        let expected =
            ["SSLv2", "SSLv3", "TLSv1", "TLS 1.1", "TLS 1.2", "TLS 1.3", "TLS 1.3 draft-28", "0x0a0a"];
        assert_eq!(names, expected);
    }
}
