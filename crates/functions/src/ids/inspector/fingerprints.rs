//! Fingerprints of TLS implementations.

use applayer::tls::{TlsEvent, ja3, ja3_hash, ja3s};
use signatures::Buffer;

use crate::ids::inspection_buffers::InspectionBuffers;
use crate::ids::message::BufferMask;

/// Adds the fingerprints of a hello that rules require.
pub(super) fn fingerprint(reported: &TlsEvent<'_>, buffers: &mut InspectionBuffers, wanted: &BufferMask) {
    let (names, text): (_, &dyn Fn() -> String) = match reported {
        TlsEvent::ClientHello(hello) => ([Buffer::Ja3String, Buffer::Ja3Hash], &|| ja3(hello)),
        TlsEvent::ServerHello(hello) => ([Buffer::Ja3sString, Buffer::Ja3sHash], &|| ja3s(hello)),
        _ => return,
    };
    if names.iter().any(|name| wanted.has(*name)) {
        let text = text();
        buffers.add(names[0], text.as_bytes());
        buffers.add(names[1], ja3_hash(&text).as_bytes());
    }
}
