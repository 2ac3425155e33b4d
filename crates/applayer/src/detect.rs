//! Detection of a flow's application protocol from the first bytes of either direction.
//!
//! Like Suricata's, the detector compares the beginning of each direction with the first messages
//! of each protocol's clients and servers. Ports are only a hint, except for DNS, which is detected
//! on port 53 alone. The first direction that is recognised decides, and the decision is final.
//! Empty lines before a client's first bytes do not count.

mod pattern;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ExchangeSide;
use pattern::Clue;

/// First bytes of a direction that are inspected.
pub const HEAD_BYTES: usize = 16;

/// Maximum bytes of a direction without a result before the detection ends with
/// [`Detection::Failed`]. It fails earlier when neither beginning can match. If the other direction
/// had sent nothing or too little for detection, its first bytes may still decide.
pub const DETECTION_BYTES_MAX: u16 = 16 << 10;

/// Maximum datagrams of a direction without a result before the detection fails.
pub const DETECTION_DATAGRAMS_MAX: u16 = 4;

/// A detectable application protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AppProtocol {
    /// HTTP/0.9 to HTTP/1.1 (RFC 9112).
    Http1,
    /// HTTP/2 with prior knowledge (RFC 9113 3.3).
    Http2,
    /// TLS (RFC 8446, RFC 5246) or SSL.
    Tls,
    /// SSH (RFC 4253).
    Ssh,
    /// SMTP (RFC 5321).
    Smtp,
    /// FTP's commands (RFC 959).
    Ftp,
    /// SMB over TCP or NetBIOS (RFC 1002 4.3).
    Smb,
    /// DNS (RFC 1035).
    Dns,
}

impl AppProtocol {
    /// All protocols.
    pub const ALL: [Self; 8] =
        [Self::Http1, Self::Http2, Self::Tls, Self::Ssh, Self::Smtp, Self::Ftp, Self::Smb, Self::Dns];

    /// Returns the name that rules use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Tls => "tls",
            Self::Ssh => "ssh",
            Self::Smtp => "smtp",
            Self::Ftp => "ftp",
            Self::Smb => "smb",
            Self::Dns => "dns",
        }
    }
}

/// Bytes that identify a TLS ClientHello.
pub const HELLO_BYTES: usize = 6;

/// Returns whether the bytes may begin a TLS ClientHello. An undetected protocol may start without
/// TLS and upgrade later.
pub fn may_be_client_hello(bytes: &[u8]) -> bool {
    bytes.first() == Some(&22) && pattern::is_client_hello(bytes)
}

/// The result of the detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detection {
    /// Not known yet.
    Unknown,
    /// None of [`AppProtocol::ALL`], by the bytes seen.
    Failed,
    /// The protocol.
    Known(AppProtocol),
}

/// The ports of a flow. They must be the same in each call for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPorts {
    /// The port of the initiator.
    pub client: u16,
    /// The port of the responder.
    pub server: u16,
}

/// The detection state of a flow, of fixed layout: it can be copied as bytes, and all zeros is the
/// initial state.
///
/// A flow uses either [`stream`](Self::stream) or [`datagram`](Self::datagram). Any bytes are a
/// valid state: a wrong one leads to a wrong result, never to a panic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Detector {
    heads: [Head; 2],
    /// 0, [`FAILED`], or the protocol plus [`FIRST`].
    verdict: u8,
    /// 1 if the beginning of the flow was not seen, so a direction may begin within a message.
    picked_up: u8,
}

const FAILED: u8 = 1;
const FIRST: u8 = 2;

/// The result of each `verdict`; of others, [`Detection::Failed`].
const VERDICTS: [Detection; FIRST as usize + AppProtocol::ALL.len()] = {
    let mut verdicts = [Detection::Unknown; FIRST as usize + AppProtocol::ALL.len()];
    verdicts[FAILED as usize] = Detection::Failed;
    let mut at = 0;
    while at < AppProtocol::ALL.len() {
        verdicts[FIRST as usize + at] = Detection::Known(AppProtocol::ALL[at]);
        at += 1;
    }
    verdicts
};

impl Detector {
    /// Handles bytes of one direction that begin at `offset` in its stream. Directions must be
    /// passed in order of arrival.
    ///
    /// Bytes that were passed before are ignored. After missing bytes, the beginning of the
    /// direction counts as unknown.
    pub fn stream(&mut self, side: ExchangeSide, offset: u64, bytes: &[u8], ports: FlowPorts) -> Detection {
        let head = &mut self.heads[side as usize];
        if self.verdict != 0 && head.is_done() || bytes.is_empty() {
            return self.verdict();
        }
        // On the port of DNS, they may be the length of a message.
        let skips = matches!(side, ExchangeSide::Request) && !pattern::at_dns_port(ports);
        head.keep(offset, bytes, skips);
        let clues = [ExchangeSide::Request, ExchangeSide::Response]
            .map(|side| self.heads[side as usize].clue(side, ports));
        self.conclude(clues);
        let is_over = |head: &Head| head.seen > DETECTION_BYTES_MAX;
        let given_up = match self.picked_up {
            0 => self.heads.iter().any(is_over),
            _ => self.heads.iter().all(is_over),
        };
        if self.verdict == 0 && given_up {
            self.verdict = FAILED;
        }
        self.verdict()
    }

    /// Handles the next bytes of a direction whatever their offset, for a detection that began in
    /// the middle of a stream.
    pub fn next(&mut self, side: ExchangeSide, bytes: &[u8], ports: FlowPorts) -> Detection {
        let Head { seen, skipped, .. } = self.heads[side as usize];
        self.stream(side, u64::from(seen) + u64::from(skipped), bytes, ports)
    }

    /// Handles missing bytes of a direction.
    pub fn lose(&mut self, side: ExchangeSide) {
        let head = &mut self.heads[side as usize];
        if !head.is_done() {
            head.lose();
        }
    }

    /// Marks the beginning of the flow as not seen: the detection then waits for both directions,
    /// even if one begins within a message.
    pub fn pick_up(&mut self) {
        self.picked_up = 1;
    }

    /// Returns whether the detector has seen no bytes.
    pub fn is_fresh(&self) -> bool {
        self.heads.iter().all(|head| head.seen == 0 && head.skipped == 0)
    }

    /// Returns whether nothing came of this direction but empty lines.
    pub fn has_only_empty_lines(&self, side: ExchangeSide) -> bool {
        let head = &self.heads[side as usize];
        head.kept() == 0 && !head.is_lost()
    }

    /// Returns the detector with client and server swapped, unless a protocol is known.
    pub fn swapped(self) -> Detector {
        let [first, second] = self.heads;
        Detector { heads: [second, first], ..self }
    }

    /// Returns the detector with client and server swapped if the first bytes then match a
    /// protocol. `ports` are those after the swap.
    pub fn swapped_by_content(self, ports: FlowPorts) -> Option<Detector> {
        let mut swapped = self.swapped();
        let before = std::mem::replace(&mut swapped.verdict, 0);
        if !matches!(before, 0 | FAILED) {
            return None;
        }
        let clues = [ExchangeSide::Request, ExchangeSide::Response]
            .map(|side| swapped.heads[side as usize].clue(side, ports));
        swapped.conclude(clues);
        matches!(swapped.verdict(), Detection::Known(_)).then_some(swapped)
    }

    /// Handles a datagram. DNS is detected if either side uses port 53.
    pub fn datagram(&mut self, side: ExchangeSide, payload: &[u8], ports: FlowPorts) -> Detection {
        let head = &mut self.heads[side as usize];
        if self.verdict != 0 && head.found != 0 {
            return self.verdict();
        }
        let is_dns = pattern::at_dns_port(ports) && pattern::is_dns(payload, payload.len());
        head.seen = head.seen.saturating_add(1);
        if is_dns {
            head.found = AppProtocol::Dns as u8 + 1;
        }
        if self.verdict == 0 {
            let given_up = !pattern::at_dns_port(ports) || head.seen >= DETECTION_DATAGRAMS_MAX;
            self.verdict = match (is_dns, given_up) {
                (true, _) => AppProtocol::Dns as u8 + FIRST,
                (false, true) => FAILED,
                (false, false) => 0,
            };
        }
        self.verdict()
    }

    /// Returns the current result for the flow.
    #[inline]
    pub fn verdict(&self) -> Detection {
        VERDICTS.get(usize::from(self.verdict)).copied().unwrap_or(Detection::Failed)
    }

    /// Returns the protocol of one direction's own beginning. It may differ from the flow's.
    pub fn found(&self, side: ExchangeSide) -> Option<AppProtocol> {
        let at = self.heads[side as usize].found.checked_sub(1)?;
        AppProtocol::ALL.get(usize::from(at)).copied()
    }

    fn conclude(&mut self, clues: [Clue; 2]) {
        let mut known = None;
        let together = match clues {
            // Each clue fits several protocols; together they identify FTP. // RFC 959 5.4
            [Clue::AsksLikeFtp, Clue::Greets] => Some(AppProtocol::Ftp),
            _ => None,
        };
        for (head, clue) in self.heads.iter_mut().zip(clues) {
            let found = if let Clue::Is(application) = clue { Some(application) } else { together };
            if let Some(application) = found {
                head.found = application as u8 + 1;
                known = known.or(found);
            }
        }
        if !matches!(self.verdict, 0 | FAILED) {
            return;
        }
        let hopeless = matches!(
            clues,
            [Clue::Nothing | Clue::AsksLikeFtp, Clue::Nothing] | [Clue::Nothing, Clue::Greets]
        );
        self.verdict = match known {
            Some(application) => application as u8 + FIRST,
            None if hopeless => FAILED,
            None => self.verdict,
        };
    }
}

/// The beginning of a direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    bytes: [u8; HEAD_BYTES],
    /// Bytes or datagrams seen, without skipped ones.
    seen: u16,
    /// Bytes of empty lines before them that were skipped.
    skipped: u16,
    /// Bytes kept, and [`LOST`].
    kept: u8,
    /// 0, or the protocol plus 1.
    found: u8,
}

/// Bit of [`Head::kept`]: bytes of the beginning are missing.
const LOST: u8 = 1 << 7;

impl Head {
    fn kept(&self) -> usize {
        usize::from(self.kept & !LOST).min(HEAD_BYTES)
    }

    fn is_lost(&self) -> bool {
        self.kept & LOST != 0
    }

    fn lose(&mut self) {
        self.kept |= LOST;
    }

    fn is_done(&self) -> bool {
        self.is_lost() || self.found != 0 || self.kept() == HEAD_BYTES
    }

    fn keep(&mut self, offset: u64, mut bytes: &[u8], skips: bool) {
        let skipped = u64::from(self.skipped);
        bytes = bytes.get(skipped.saturating_sub(offset) as usize..).unwrap_or_default();
        let offset = offset.saturating_sub(skipped);
        if skips && offset == 0 && self.kept == 0 {
            let begin = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
            let (empty, rest) = bytes.split_at(begin.unwrap_or(bytes.len()));
            if let Some(skipped) =
                u16::try_from(empty.len()).ok().and_then(|len| self.skipped.checked_add(len))
            {
                (self.skipped, bytes) = (skipped, rest);
            }
        }
        if bytes.is_empty() {
            return;
        }
        let end = offset.saturating_add(bytes.len() as u64);
        self.seen = self.seen.max(u16::try_from(end).unwrap_or(u16::MAX));
        if self.is_done() {
            return;
        }
        let kept = self.kept();
        let Some(known) = (kept as u64).checked_sub(offset) else {
            self.lose();
            return;
        };
        let fresh = usize::try_from(known).ok().and_then(|known| bytes.get(known..)).unwrap_or_default();
        let taken = fresh.len().min(HEAD_BYTES - kept);
        self.bytes[kept..kept + taken].copy_from_slice(&fresh[..taken]);
        self.kept = (kept + taken) as u8 | self.kept & LOST;
    }

    fn clue(&self, side: ExchangeSide, ports: FlowPorts) -> Clue {
        if self.is_lost() {
            return Clue::Nothing;
        }
        pattern::clue(side, &self.bytes[..self.kept()], ports)
    }
}
