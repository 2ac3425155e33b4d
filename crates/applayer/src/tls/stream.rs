//! One direction: records, and the handshake's messages over them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    Anomaly, Certificates, ClientHello, Event, RECORD_BYTES_MAX, ServerHello, Sink, Version, message,
};
use crate::Line;

/// The state of a direction: bytes of fixed layout, movable as they are; all zero is a fresh one.
///
/// Bytes come in their order and in pieces of any size. A [`Line`] of
/// [`MESSAGE_BYTES_MAX`](super::MESSAGE_BYTES_MAX) holds a handshake message that is not
/// complete; one that lies wholly inside of a record and a piece is read in place. Any bytes of
/// this type are a state: a wrong one leads to wrong events, never to a panic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Stream {
    /// Bytes of the handshake message that have not come.
    message_left: u32,
    /// Anomalies that were told of before, up to 2^32.
    repeated: u32,
    /// Bytes of the record's payload that have not come.
    record_left: u16,
    /// Anomalies that were told, as bits.
    told: u16,
    record_head: [u8; SSL2_HEAD],
    record_head_len: u8,
    message_head: [u8; MESSAGE_HEAD],
    message_head_len: u8,
    /// A [`Phase`].
    phase: u8,
    /// Bits: [`SAW_RECORD`], [`SAW_CHANGE`].
    flags: u8,
    reserved: u8,
}

const RECORD_HEAD: usize = 5;
/// As much of SSL 2's server hello as has its version.
const SSL2_HEAD: usize = 7;
const MESSAGE_HEAD: usize = 4;

const SAW_RECORD: u8 = 1;
/// The ciphers were changed. That means nothing if another hello follows (RFC 8446 D.4).
const SAW_CHANGE: u8 = 2;

/// Where in a direction the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// In a record's header.
    Head,
    /// In a record of the handshake.
    Handshake,
    /// In a record that is passed over.
    Skip,
    /// Behind what can be read.
    Done,
}

impl Stream {
    /// Takes bytes of the direction.
    pub fn take(&mut self, bytes: &[u8], line: &mut impl Line, sink: &mut impl Sink) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.phase() {
                Phase::Head => self.head(rest, line, sink),
                Phase::Handshake | Phase::Skip => self.payload(rest, line, sink),
                Phase::Done => return,
            };
        }
    }

    /// Bytes of the direction are lost: what of a message has come is told, and nothing more is
    /// read.
    pub fn gap(&mut self, line: &mut impl Line, sink: &mut impl Sink) {
        if self.phase() != Phase::Done {
            self.give_up_message(line, sink);
            sink.event(Event::Lost);
            self.finish();
        }
    }

    /// The direction has come to its end.
    pub fn end(&mut self, line: &mut impl Line, sink: &mut impl Sink) {
        if self.phase() != Phase::Done {
            self.give_up_message(line, sink);
            self.finish();
        }
    }

    /// Whether nothing more is told of the direction.
    pub fn is_done(&self) -> bool {
        self.phase() == Phase::Done
    }

    /// Anomalies that were not told because their kind had been, up to 2^32.
    pub fn repeated_anomalies(&self) -> u32 {
        self.repeated
    }

    fn phase(&self) -> Phase {
        match self.phase {
            0 => Phase::Head,
            1 => Phase::Handshake,
            2 => Phase::Skip,
            _ => Phase::Done,
        }
    }

    /// Gathers a record's header, and acts on it.
    fn head<'a>(&mut self, bytes: &'a [u8], line: &mut impl Line, sink: &mut impl Sink) -> &'a [u8] {
        let have = usize::from(self.record_head_len).min(SSL2_HEAD);
        let needed = match self.record_head {
            [first, _, 4, ..] if have >= 3 && self.may_be_ssl2(first) => SSL2_HEAD,
            // The third byte says which.
            [first, ..] if have > 0 && have < 3 && self.may_be_ssl2(first) => 3,
            _ if have == 0 => 1,
            _ => RECORD_HEAD,
        };
        let taken = needed.saturating_sub(have).min(bytes.len());
        self.record_head[have..have + taken].copy_from_slice(&bytes[..taken]);
        self.record_head_len = (have + taken) as u8;
        if have + taken >= needed && needed >= RECORD_HEAD {
            self.record_head_len = 0;
            self.record(line, sink);
        }
        &bytes[taken..]
    }

    /// Only the first record may be one of SSL 2.
    fn may_be_ssl2(&self, first: u8) -> bool {
        self.flags & SAW_RECORD == 0 && first & 0x80 != 0
    }

    fn record(&mut self, line: &mut impl Line, sink: &mut impl Sink) {
        let [kind, major, minor, high, low, ..] = self.record_head;
        if self.may_be_ssl2(kind) {
            return self.ssl2(sink);
        }
        let len = u16::from_be_bytes([high, low]);
        let fault = match (kind, major) {
            (20..=24, 3) if len <= RECORD_BYTES_MAX => None,
            (20..=24, 3) => Some(Anomaly::RecordTooLong),
            _ => Some(Anomaly::NotTls),
        };
        if let Some(fault) = fault {
            self.give_up_message(line, sink);
            self.anomaly(fault, sink);
            self.finish();
            return;
        }
        self.flags |= SAW_RECORD;
        sink.event(Event::Record { kind, version: Version(u16::from_be_bytes([major, minor])), len });
        if minor > 4 {
            self.anomaly(Anomaly::UnknownVersion, sink);
        }
        let is_in_message = self.message_head_len > 0;
        if kind != 22 && is_in_message {
            self.anomaly(Anomaly::Interleaved, sink);
        }
        if len == 0 && matches!(kind, 21 | 22) {
            self.anomaly(Anomaly::EmptyRecord, sink);
        }
        if kind == 20 {
            self.give_up_message(line, sink);
            self.flags |= SAW_CHANGE;
        }
        if kind == 23 || kind != 22 && kind != 20 && self.is_changed() {
            self.give_up_message(line, sink);
            return self.encrypted(sink);
        }
        let phase = if kind == 22 { Phase::Handshake } else { Phase::Skip };
        self.begin_payload(phase, len);
    }

    /// Nothing is read any more, and nothing is left of what was read.
    fn finish(&mut self) {
        let Self { repeated, told, .. } = *self;
        *self = Self { repeated, told, phase: Phase::Done as u8, ..Self::default() };
    }

    fn is_changed(&self) -> bool {
        self.flags & SAW_CHANGE != 0
    }

    fn encrypted(&mut self, sink: &mut impl Sink) {
        sink.event(Event::Encrypted);
        self.finish();
    }

    /// A record of SSL 2 (RFC 5246 E.2): its length counts what stands behind the first two bytes.
    fn ssl2(&mut self, sink: &mut impl Sink) {
        self.flags |= SAW_RECORD;
        let [first, second, kind, high, low, server_high, server_low] = self.record_head;
        let len = u16::from_be_bytes([first & 0x7f, second]);
        match kind {
            1 => {
                let version = Version(u16::from_be_bytes([high, low]));
                sink.event(Event::Ssl2ClientHello(version));
                if version < Version::SSL_3 || len < 3 {
                    self.finish();
                    return;
                }
                self.begin_payload(Phase::Skip, len - 3);
            }
            4 => {
                sink.event(Event::Ssl2ServerHello(Version(u16::from_be_bytes([server_high, server_low]))));
                self.finish();
            }
            _ => {
                self.anomaly(Anomaly::NotTls, sink);
                self.finish();
            }
        }
    }

    fn begin_payload(&mut self, phase: Phase, len: u16) {
        self.record_left = len;
        self.phase = if len == 0 { Phase::Head } else { phase } as u8;
    }

    fn payload<'a>(&mut self, bytes: &'a [u8], line: &mut impl Line, sink: &mut impl Sink) -> &'a [u8] {
        let is_handshake = self.phase() == Phase::Handshake;
        let (payload, rest) = bytes.split_at(bytes.len().min(usize::from(self.record_left)));
        self.record_left -= payload.len() as u16;
        if self.record_left == 0 {
            self.phase = Phase::Head as u8;
        }
        if is_handshake {
            self.handshake(payload, line, sink);
        }
        rest
    }

    fn handshake(&mut self, payload: &[u8], line: &mut impl Line, sink: &mut impl Sink) {
        let mut rest = payload;
        while !rest.is_empty() {
            let have = usize::from(self.message_head_len).min(MESSAGE_HEAD);
            if have < MESSAGE_HEAD {
                let taken = rest.len().min(MESSAGE_HEAD - have);
                self.message_head[have..have + taken].copy_from_slice(&rest[..taken]);
                self.message_head_len = (have + taken) as u8;
                rest = &rest[taken..];
                if have + taken < MESSAGE_HEAD {
                    return;
                }
                let [_, a, b, c] = self.message_head;
                self.message_left = u32::from_be_bytes([0, a, b, c]);
                line.clear();
                if self.is_changed() && !self.is_hello_alone(rest.len()) {
                    self.message_head_len = 0;
                    return self.encrypted(sink);
                }
                if self.message_left as usize > line.capacity() {
                    self.anomaly(Anomaly::MessageTooLong, sink);
                }
            }
            rest = self.body(rest, line, sink);
        }
    }

    /// Whether the message, `here` bytes of whose body are at hand, is a hello that fills its
    /// record: what ciphers wrote hardly ever looks like that.
    fn is_hello_alone(&self, here: usize) -> bool {
        let is_hello = matches!(self.message_head[0], message::CLIENT_HELLO | message::SERVER_HELLO);
        is_hello && self.message_left as usize == here + usize::from(self.record_left)
    }

    /// Takes bytes of a message's body; tells the message when it is complete.
    fn body<'a>(&mut self, bytes: &'a [u8], line: &mut impl Line, sink: &mut impl Sink) -> &'a [u8] {
        let (part, rest) = bytes.split_at(bytes.len().min(self.message_left as usize));
        self.message_left -= part.len() as u32;
        let is_complete = self.message_left == 0;
        if is_complete && line.as_slice().is_empty() {
            self.message(&part[..part.len().min(line.capacity())], sink);
        } else {
            line.push(part);
            if is_complete {
                self.message(line.as_slice(), sink);
                line.clear();
            }
        }
        rest
    }

    /// Tells a message; its body is what there is of it.
    fn message(&mut self, body: &[u8], sink: &mut impl Sink) {
        self.message_head_len = 0;
        let (event, is_whole) = match self.message_head[0] {
            message::CLIENT_HELLO => {
                let hello = ClientHello::read(body);
                (Event::ClientHello(hello), hello.is_whole())
            }
            message::SERVER_HELLO => {
                let hello = ServerHello::read(body);
                (Event::ServerHello(hello), hello.is_whole())
            }
            message::CERTIFICATE => {
                let certificates = Certificates::read(body);
                (Event::Certificates(certificates), certificates.is_whole())
            }
            kind => (Event::Message(kind), true),
        };
        sink.event(event);
        if !is_whole {
            self.anomaly(Anomaly::Malformed, sink);
        }
    }

    /// Tells what there is of a message that will not be completed.
    fn give_up_message(&mut self, line: &mut impl Line, sink: &mut impl Sink) {
        if self.message_head_len > 0 {
            self.anomaly(Anomaly::MessageCut, sink);
        }
        if usize::from(self.message_head_len) >= MESSAGE_HEAD {
            self.message(line.as_slice(), sink);
        }
        self.message_head_len = 0;
        line.clear();
    }

    fn anomaly(&mut self, anomaly: Anomaly, sink: &mut impl Sink) {
        let bit = 1 << anomaly as u16;
        if self.told & bit != 0 {
            self.repeated = self.repeated.saturating_add(1);
            return;
        }
        self.told |= bit;
        sink.event(Event::Anomaly(anomaly));
    }
}
