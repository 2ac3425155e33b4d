//! The application protocol of a flow, from the first bytes of either direction.
//!
//! Like Suricata's, the detection compares the beginning of each direction with what clients and
//! servers of a protocol say first; ports are a hint only, except for DNS, whose messages are
//! looked for at port 53 alone. The protocol is what the first direction with a known beginning
//! speaks, and stays.

mod pattern;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Side;
use pattern::Clue;

/// First bytes of a direction that are looked at.
pub const HEAD_BYTES: usize = 16;

/// Most bytes of a direction before a flow without result is given up: [`Verdict::Failed`]. It is
/// given up earlier when neither beginning is known.
pub const DETECTION_BYTES_MAX: u16 = 4096;

/// Most datagrams of a direction before a flow without result is given up.
pub const DETECTION_DATAGRAMS_MAX: u16 = 4;

/// An application protocol that is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Application {
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

impl Application {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Http1, Self::Http2, Self::Tls, Self::Ssh, Self::Smtp, Self::Ftp, Self::Smb, Self::Dns];

    /// The name in rules.
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

/// Bytes that tell a client's hello of TLS.
pub const HELLO_BYTES: usize = 6;

/// Whether bytes may be the beginning of a client's hello of TLS: what protocols that do without
/// TLS at first, and that are not known here, go on with.
pub fn may_be_client_hello(bytes: &[u8]) -> bool {
    bytes.first() == Some(&22) && pattern::is_client_hello(bytes)
}

/// What is known of a flow's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nothing yet.
    Unknown,
    /// Nothing, and nothing will be: none of [`Application::ALL`].
    Failed,
    /// It is this one.
    Known(Application),
}

/// The ports of a flow. They are the same in each call about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Of who began.
    pub client: u16,
    /// Of the other one.
    pub server: u16,
}

/// The state of a flow's detection: bytes of fixed layout, movable as they are; all zero is a fresh
/// one.
///
/// A flow is fed either with [`stream`](Self::stream) or with [`datagram`](Self::datagram). Any
/// bytes of this type are a state: a wrong one leads to a wrong verdict, never to a panic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Detector {
    heads: [Head; 2],
    /// 0, [`FAILED`], or the application plus [`FIRST`].
    verdict: u8,
    /// 1: the flow's beginning was not seen, so that a direction may begin within a message.
    picked_up: u8,
}

const FAILED: u8 = 1;
const FIRST: u8 = 2;

impl Detector {
    /// Takes bytes of a direction of a stream, the first of which stands at `offset`. Directions
    /// are given in the order of their arrival.
    ///
    /// Bytes that were given before are passed over; where bytes are missing, the direction's
    /// beginning counts as not known.
    pub fn stream(&mut self, side: Side, offset: u64, bytes: &[u8], ports: Ports) -> Verdict {
        let head = &mut self.heads[side as usize];
        if self.verdict != 0 && head.is_done() || bytes.is_empty() {
            return self.verdict();
        }
        head.keep(offset, bytes);
        let clues = [Side::Request, Side::Response].map(|side| self.heads[side as usize].clue(side, ports));
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

    /// Takes the next bytes of a direction, wherever in its stream they stand: for a detection that
    /// began in its midst.
    pub fn next(&mut self, side: Side, bytes: &[u8], ports: Ports) -> Verdict {
        let offset = u64::from(self.heads[side as usize].seen);
        self.stream(side, offset, bytes, ports)
    }

    /// The next bytes of a direction are missing.
    pub fn lose(&mut self, side: Side) {
        let head = &mut self.heads[side as usize];
        head.lost |= u8::from(!head.is_done());
    }

    /// The flow's beginning was not seen: what one direction says is waited for even if the other
    /// one begins within a message.
    pub fn pick_up(&mut self) {
        self.picked_up = 1;
    }

    /// Whether no bytes were given.
    pub fn is_fresh(&self) -> bool {
        self.heads.iter().all(|head| head.seen == 0)
    }

    /// The same with client and server exchanged, so far as nothing is known.
    pub fn turned(self) -> Detector {
        let [first, second] = self.heads;
        Detector { heads: [second, first], ..self }
    }

    /// The same with client and server exchanged, if their first words say so; `ports` are those of
    /// the exchanged ones.
    pub fn turned_by_words(self, ports: Ports) -> Option<Detector> {
        let mut turned = self.turned();
        let before = std::mem::replace(&mut turned.verdict, 0);
        if !matches!(before, 0 | FAILED) {
            return None;
        }
        let clues = [Side::Request, Side::Response].map(|side| turned.heads[side as usize].clue(side, ports));
        turned.conclude(clues);
        matches!(turned.verdict(), Verdict::Known(_)).then_some(turned)
    }

    /// Takes a datagram: DNS is looked for at port 53 of either side.
    pub fn datagram(&mut self, side: Side, payload: &[u8], ports: Ports) -> Verdict {
        let head = &mut self.heads[side as usize];
        if self.verdict != 0 && head.found != 0 {
            return self.verdict();
        }
        let is_dns = pattern::at_dns_port(ports) && pattern::is_dns(payload, payload.len());
        head.seen = head.seen.saturating_add(1);
        if is_dns {
            head.found = Application::Dns as u8 + 1;
        }
        if self.verdict == 0 {
            let given_up = !pattern::at_dns_port(ports) || head.seen >= DETECTION_DATAGRAMS_MAX;
            self.verdict = match (is_dns, given_up) {
                (true, _) => Application::Dns as u8 + FIRST,
                (false, true) => FAILED,
                (false, false) => 0,
            };
        }
        self.verdict()
    }

    /// What is known of the flow.
    pub fn verdict(&self) -> Verdict {
        match self.verdict {
            0 => Verdict::Unknown,
            known => known
                .checked_sub(FIRST)
                .and_then(|at| Application::ALL.get(usize::from(at)))
                .map_or(Verdict::Failed, |application| Verdict::Known(*application)),
        }
    }

    /// What a direction's own beginning says, which may be another protocol than the flow's, or
    /// none.
    pub fn found(&self, side: Side) -> Option<Application> {
        let at = self.heads[side as usize].found.checked_sub(1)?;
        Application::ALL.get(usize::from(at)).copied()
    }

    fn conclude(&mut self, clues: [Clue; 2]) {
        let mut known = None;
        let together = match clues {
            // Neither word is one protocol's alone: together they are. // RFC 959 5.4
            [Clue::AsksLikeFtp, Clue::Greets] => Some(Application::Ftp),
            _ => None,
        };
        for (head, clue) in self.heads.iter_mut().zip(clues) {
            let found = if let Clue::Is(application) = clue { Some(application) } else { together };
            if let Some(application) = found {
                head.found = application as u8 + 1;
                known = known.or(found);
            }
        }
        if self.verdict != 0 {
            return;
        }
        let hopeless = matches!(
            clues,
            [Clue::Nothing | Clue::AsksLikeFtp, Clue::Nothing] | [Clue::Nothing, Clue::Greets]
        );
        self.verdict = match known {
            Some(application) => application as u8 + FIRST,
            None if hopeless => FAILED,
            None => 0,
        };
    }
}

/// The beginning of a direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    bytes: [u8; HEAD_BYTES],
    /// Bytes, or datagrams, that were seen.
    seen: u16,
    /// Bytes that are kept.
    kept: u8,
    /// Bit 0: bytes of the beginning are missing.
    lost: u8,
    /// 0, or the application plus 1.
    found: u8,
    reserved: u8,
}

impl Head {
    fn kept(&self) -> usize {
        usize::from(self.kept).min(HEAD_BYTES)
    }

    fn is_lost(&self) -> bool {
        self.lost & 1 != 0
    }

    fn is_done(&self) -> bool {
        self.is_lost() || self.found != 0 || self.kept() == HEAD_BYTES
    }

    fn keep(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len() as u64);
        self.seen = self.seen.max(u16::try_from(end).unwrap_or(u16::MAX));
        if self.is_done() {
            return;
        }
        let kept = self.kept();
        let Some(known) = (kept as u64).checked_sub(offset) else {
            self.lost |= 1;
            return;
        };
        let fresh = usize::try_from(known).ok().and_then(|known| bytes.get(known..)).unwrap_or_default();
        let taken = fresh.len().min(HEAD_BYTES - kept);
        self.bytes[kept..kept + taken].copy_from_slice(&fresh[..taken]);
        self.kept = (kept + taken) as u8;
    }

    fn clue(&self, side: Side, ports: Ports) -> Clue {
        if self.is_lost() {
            return Clue::Nothing;
        }
        pattern::clue(side, &self.bytes[..self.kept()], ports)
    }
}
