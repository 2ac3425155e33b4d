//! Events about DNS messages and TLS handshakes, whether rules hold or not.

use applayer::{dns, tls};
use nf::{AlertValue, EventField, EventValue};
use packet::Direction;
use signatures::Buffer;

use super::Watch;
use crate::ids::about::{Fields, dns_fields};
use crate::ids::scene::Scene;
use crate::ids::state::Kept;

/// What of a handshake's messages is told, besides names.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handshake {
    /// A client's hello came.
    pub is_client: bool,
    /// The version that the server chose.
    pub version: Option<tls::Version>,
    /// From here on nothing is read.
    pub is_over: bool,
}

impl Handshake {
    /// Notes what is told.
    pub fn note(&mut self, told: &tls::Event<'_>) {
        match told {
            tls::Event::ClientHello(_) => self.is_client = true,
            tls::Event::ServerHello(hello) if !hello.is_retry() => self.version = Some(hello.version()),
            tls::Event::Certificates(_) | tls::Event::Encrypted => self.is_over = true,
            _ => {}
        }
    }
}

/// The version's two bytes; then the client's server name.
const VERSION_BYTES: usize = 2;

impl Watch<'_, '_> {
    /// Tells of a DNS message.
    #[cold]
    pub(super) fn dns_event(&mut self, message: &dns::Message<'_>, direction: Direction) {
        self.event("dns", direction, &dns_fields(message));
    }

    /// Tells of a handshake, once the server's part of it that can be read is over. What the client
    /// said waits in a growing buffer.
    #[cold]
    pub(super) fn tls_event(&mut self, handshake: Handshake, scenes: &[Scene], client: Direction) {
        let kept = Kept::Text.of(Direction::Original);
        let first = |buffer| scenes.iter().find_map(|scene| scene.first(buffer));
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
        if !handshake.is_over {
            hello.push(&known);
            return self.context.give_buffer(kept, hello);
        }
        self.context.give_buffer(kept, hello);
        let Some((version, name)) = known.split_first_chunk::<VERSION_BYTES>() else { return };
        let mut fields = Fields::new();
        for (field, bytes) in [
            ("subject", first(Buffer::TlsCertSubject)),
            ("issuerdn", first(Buffer::TlsCertIssuer)),
            ("serial", first(Buffer::TlsCertSerial)),
            ("fingerprint", first(Buffer::TlsCertFingerprint)),
            ("sni", Some(name).filter(|name| !name.is_empty())),
        ] {
            fields.extend(bytes.map(|bytes| (field, AlertValue::Text(bytes.to_vec()))));
        }
        let version = tls::Version(u16::from_be_bytes(*version));
        // As Suricata writes it: without the space.
        let name = version.to_string().replace(' ', "");
        fields.extend((version.0 != 0).then(|| ("version", AlertValue::Text(name.into_bytes()))));
        self.event("tls", client, &fields);
    }

    fn event(&mut self, kind: &'static str, about: Direction, fields: &Fields) {
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
