//! The greeting with which each side of SSH begins (RFC 4253 4.2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Line;

/// Most bytes of the greeting with its line's end (RFC 4253 4.2); of a longer one so many are read.
/// Less if the [`Line`] has less room.
pub const GREETING_BYTES_MAX: usize = 255;

/// Most lines that may stand before a server's greeting.
pub const LINES_BEFORE_MAX: u16 = 64;

/// A side's greeting, `SSH-2.0-OpenSSH_9.6 comment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// The line, without its end.
    pub raw: &'a [u8],
    /// The protocol's version, `2.0`.
    pub protocol: &'a [u8],
    /// The software, `OpenSSH_9.6`; empty if there is none.
    pub software: &'a [u8],
    /// What stands behind the first blank; empty if there is none.
    pub comments: &'a [u8],
    /// Whether the line is longer than its limit, and was read as if it ended there.
    pub is_cut: bool,
}

impl<'a> Greeting<'a> {
    /// Reads a line without its end; `None` if it is no greeting.
    pub fn read(line: &'a [u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"SSH-")?;
        let (protocol, rest) = parted(rest, |byte| byte == b'-');
        let (software, comments) = parted(rest, |byte| matches!(byte, b' ' | b'\r'));
        Some(Self { raw: line, protocol, software, comments, is_cut: false })
    }
}

/// The state of a direction: bytes of fixed layout, movable as they are; all zero is a fresh one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Reader {
    /// Lines that came before the greeting.
    lines: u16,
    /// 0: before the greeting's end; 1: behind it; else: there is none.
    phase: u8,
    /// Whether the line has more bytes than are kept.
    is_cut: u8,
}

impl Reader {
    /// Takes bytes of the direction, in their order and in pieces of any size; `line` holds the
    /// beginning of a line in between. Tells the greeting when it is complete, once; bytes behind
    /// it are passed over.
    pub fn take(&mut self, bytes: &[u8], line: &mut impl Line, told: &mut impl FnMut(Greeting<'_>)) {
        let mut rest = bytes;
        while self.phase == 0 && !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (part, next) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            rest = next;
            self.gather(part, line);
            if end.is_some() || self.is_cut != 0 && line.as_slice().starts_with(b"SSH-") {
                self.complete(line.as_slice(), told);
                line.clear();
                self.is_cut = 0;
            }
        }
    }

    /// Bytes of the direction are lost, or it has come to its end: what has come of a greeting is
    /// told.
    pub fn end(&mut self, line: &mut impl Line, told: &mut impl FnMut(Greeting<'_>)) {
        if self.phase == 0 {
            self.is_cut = 1;
            self.complete(line.as_slice(), told);
            self.phase = self.phase.max(1);
        }
        line.clear();
    }

    /// Whether nothing more is told.
    pub fn is_done(&self) -> bool {
        self.phase != 0
    }

    fn gather(&mut self, part: &[u8], line: &mut impl Line) {
        let room = GREETING_BYTES_MAX.saturating_sub(line.as_slice().len());
        let wanted = &part[..part.len().min(room)];
        if line.push(wanted) < part.len() {
            self.is_cut = 1;
        }
    }

    fn complete(&mut self, line: &[u8], told: &mut impl FnMut(Greeting<'_>)) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(greeting) = Greeting::read(line) {
            self.phase = 1;
            return told(Greeting { is_cut: self.is_cut != 0, ..greeting });
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines > LINES_BEFORE_MAX {
            self.phase = 2;
        }
    }
}

/// What stands before and behind a byte.
fn parted(bytes: &[u8], by: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| by(*byte)) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}
