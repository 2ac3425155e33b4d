//! One direction: records, and handshake messages across records.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    Certificates, ClientHello, ProtocolVersion, RECORD_BYTES_MAX, ServerHello, TlsAnomaly, TlsEvent, TlsSink,
    message,
};
use crate::LineBuffer;

/// The state of one direction, of fixed layout: it can be copied as bytes, and all zeros is the
/// initial state.
///
/// Input is in order and in pieces of any size. A [`LineBuffer`] of
/// [`MESSAGE_BYTES_MAX`](super::MESSAGE_BYTES_MAX) holds an incomplete handshake message. A message
/// within one record and one piece is parsed in place. Any bytes are a valid state: a wrong one
/// leads to wrong events, never to a panic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TlsStream {
    /// Missing bytes of the handshake message.
    message_left: u32,
    /// Anomalies suppressed as repetitions, modulo 2^32.
    repeated: u32,
    /// Missing bytes of the record's payload.
    record_left: u16,
    /// Bits of the anomalies already reported.
    reported: u16,
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
/// Bytes of an SSL 2 ServerHello up to its version.
const SSL2_HEAD: usize = 7;
const MESSAGE_HEAD: usize = 4;

const SAW_RECORD: u8 = 1;
/// ChangeCipherSpec was seen. It means nothing if another hello follows (RFC 8446 D.4).
const SAW_CHANGE: u8 = 2;

/// The position of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// In a record header.
    Head,
    /// In a handshake record.
    Handshake,
    /// In a skipped record.
    Skip,
    /// Parsing has stopped.
    Done,
}

impl TlsStream {
    /// Parses the next bytes of the direction.
    pub fn take(&mut self, bytes: &[u8], line: &mut impl LineBuffer, sink: &mut impl TlsSink) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.phase() {
                Phase::Head => self.head(rest, line, sink),
                Phase::Handshake | Phase::Skip => self.payload(rest, line, sink),
                Phase::Done => return,
            };
        }
    }

    /// Handles lost bytes: reports a partial message and stops parsing.
    pub fn gap(&mut self, line: &mut impl LineBuffer, sink: &mut impl TlsSink) {
        if self.phase() != Phase::Done {
            self.give_up_message(line, sink);
            sink.event(TlsEvent::Lost);
            self.finish();
        }
    }

    /// Handles the end of the direction.
    pub fn end(&mut self, line: &mut impl LineBuffer, sink: &mut impl TlsSink) {
        if self.phase() != Phase::Done {
            self.give_up_message(line, sink);
            self.finish();
        }
    }

    /// Returns whether nothing more will be reported.
    pub fn is_done(&self) -> bool {
        self.phase() == Phase::Done
    }

    /// Returns the number of anomalies suppressed because their kind was already reported, modulo
    /// 2^32.
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

    /// Collects a record header and handles it.
    fn head<'a>(&mut self, bytes: &'a [u8], line: &mut impl LineBuffer, sink: &mut impl TlsSink) -> &'a [u8] {
        let have = usize::from(self.record_head_len).min(SSL2_HEAD);
        let needed = match self.record_head {
            [first, _, 4, ..] if have >= 3 && self.may_be_ssl2(first) => SSL2_HEAD,
            // The third byte distinguishes SSL 2 from TLS.
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

    /// Returns whether the record may be SSL 2: only the first one can be.
    fn may_be_ssl2(&self, first: u8) -> bool {
        self.flags & SAW_RECORD == 0 && first & 0x80 != 0
    }

    fn record(&mut self, line: &mut impl LineBuffer, sink: &mut impl TlsSink) {
        let [kind, major, minor, high, low, ..] = self.record_head;
        if self.may_be_ssl2(kind) {
            return self.ssl2(sink);
        }
        let len = u16::from_be_bytes([high, low]);
        let fault = match (kind, major) {
            (20..=24, 3) if len <= RECORD_BYTES_MAX => None,
            (20..=24, 3) => Some(TlsAnomaly::RecordTooLong),
            _ => Some(TlsAnomaly::NotTls),
        };
        if let Some(fault) = fault {
            self.give_up_message(line, sink);
            self.anomaly(fault, sink);
            self.finish();
            return;
        }
        self.flags |= SAW_RECORD;
        sink.event(TlsEvent::Record {
            kind,
            version: ProtocolVersion(u16::from_be_bytes([major, minor])),
            len,
        });
        if minor > 4 {
            self.anomaly(TlsAnomaly::UnknownVersion, sink);
        }
        let is_in_message = self.message_head_len > 0;
        if kind != 22 && is_in_message {
            self.anomaly(TlsAnomaly::Interleaved, sink);
        }
        if len == 0 && matches!(kind, 21 | 22) {
            self.anomaly(TlsAnomaly::EmptyRecord, sink);
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

    /// Stops parsing and forgets the current message.
    fn finish(&mut self) {
        let Self { repeated, reported, .. } = *self;
        *self = Self { repeated, reported, phase: Phase::Done as u8, ..Self::default() };
    }

    fn is_changed(&self) -> bool {
        self.flags & SAW_CHANGE != 0
    }

    fn encrypted(&mut self, sink: &mut impl TlsSink) {
        sink.event(TlsEvent::Encrypted);
        self.finish();
    }

    /// Handles an SSL 2 record (RFC 5246 E.2): its length counts the bytes after the first two.
    fn ssl2(&mut self, sink: &mut impl TlsSink) {
        self.flags |= SAW_RECORD;
        let [first, second, kind, high, low, server_high, server_low] = self.record_head;
        let len = u16::from_be_bytes([first & 0x7f, second]);
        match kind {
            1 => {
                let version = ProtocolVersion(u16::from_be_bytes([high, low]));
                sink.event(TlsEvent::Ssl2ClientHello(version));
                if version < ProtocolVersion::SSL_3 || len < 3 {
                    self.finish();
                    return;
                }
                self.begin_payload(Phase::Skip, len - 3);
            }
            4 => {
                sink.event(TlsEvent::Ssl2ServerHello(ProtocolVersion(u16::from_be_bytes([
                    server_high,
                    server_low,
                ]))));
                self.finish();
            }
            _ => {
                self.anomaly(TlsAnomaly::NotTls, sink);
                self.finish();
            }
        }
    }

    fn begin_payload(&mut self, phase: Phase, len: u16) {
        self.record_left = len;
        self.phase = if len == 0 { Phase::Head } else { phase } as u8;
    }

    fn payload<'a>(
        &mut self,
        bytes: &'a [u8],
        line: &mut impl LineBuffer,
        sink: &mut impl TlsSink,
    ) -> &'a [u8] {
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

    fn handshake(&mut self, payload: &[u8], line: &mut impl LineBuffer, sink: &mut impl TlsSink) {
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
                    self.anomaly(TlsAnomaly::MessageTooLong, sink);
                }
            }
            rest = self.body(rest, line, sink);
        }
    }

    /// Returns whether the message, with `here` bytes of its body at hand, is a hello that fills
    /// its record. Encrypted bytes hardly ever look like that.
    fn is_hello_alone(&self, here: usize) -> bool {
        let is_hello = matches!(self.message_head[0], message::CLIENT_HELLO | message::SERVER_HELLO);
        is_hello && self.message_left as usize == here + usize::from(self.record_left)
    }

    /// Handles bytes of a message body; reports the message when it is complete.
    fn body<'a>(&mut self, bytes: &'a [u8], line: &mut impl LineBuffer, sink: &mut impl TlsSink) -> &'a [u8] {
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

    /// Reports a message with its possibly partial body.
    fn message(&mut self, body: &[u8], sink: &mut impl TlsSink) {
        self.message_head_len = 0;
        let (event, is_whole) = match self.message_head[0] {
            message::CLIENT_HELLO => {
                let hello = ClientHello::read(body);
                (TlsEvent::ClientHello(hello), hello.is_whole())
            }
            message::SERVER_HELLO => {
                let hello = ServerHello::read(body);
                (TlsEvent::ServerHello(hello), hello.is_whole())
            }
            message::CERTIFICATE => {
                let certificates = Certificates::read(body);
                (TlsEvent::Certificates(certificates), certificates.is_whole())
            }
            kind => (TlsEvent::Message(kind), true),
        };
        sink.event(event);
        if !is_whole {
            self.anomaly(TlsAnomaly::Malformed, sink);
        }
    }

    /// Reports a message that will not be completed.
    fn give_up_message(&mut self, line: &mut impl LineBuffer, sink: &mut impl TlsSink) {
        if self.message_head_len > 0 {
            self.anomaly(TlsAnomaly::MessageCut, sink);
        }
        if usize::from(self.message_head_len) >= MESSAGE_HEAD {
            self.message(line.as_slice(), sink);
        }
        self.message_head_len = 0;
        line.clear();
    }

    fn anomaly(&mut self, anomaly: TlsAnomaly, sink: &mut impl TlsSink) {
        let bit = 1 << anomaly as u16;
        if self.reported & bit != 0 {
            self.repeated = self.repeated.saturating_add(1);
            return;
        }
        self.reported |= bit;
        sink.event(TlsEvent::Anomaly(anomaly));
    }
}
