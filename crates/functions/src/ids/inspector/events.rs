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
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handshake {
    /// True after a ClientHello.
    pub is_client: bool,
    /// The version that the server chose.
    pub version: Option<tls::ProtocolVersion>,
    /// True once nothing more can be parsed.
    pub has_ended: bool,
}

impl Handshake {
    /// Records an event of the parser.
    pub fn note(&mut self, reported: &tls::TlsEvent<'_>) {
        match reported {
            tls::TlsEvent::ClientHello(_) => self.is_client = true,
            tls::TlsEvent::ServerHello(hello) if !hello.is_retry() => self.version = Some(hello.version()),
            tls::TlsEvent::Certificates(_) | tls::TlsEvent::Encrypted => self.has_ended = true,
            _ => {}
        }
    }
}

/// The two bytes of the version, before the client's server name.
const VERSION_BYTES: usize = 2;

impl Inspector<'_, '_> {
    /// Reports a DNS message.
    #[cold]
    pub(super) fn dns_event(&mut self, message: &dns::DnsMessage<'_>, direction: Direction) {
        self.event("dns", direction, &dns_fields(message));
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
        // As in Suricata: without the space.
        let name = version.to_string().replace(' ', "");
        fields.extend((version.0 != 0).then(|| ("version", AlertValue::Text(name.into_bytes()))));
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
