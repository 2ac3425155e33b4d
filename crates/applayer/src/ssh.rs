//! The identification string that each side of SSH sends first (RFC 4253 4.2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::LineBuffer;

/// Maximum bytes of the identification string with its line ending (RFC 4253 4.2). A longer one is
/// truncated. A smaller [`LineBuffer`] lowers the limit.
pub const GREETING_BYTES_MAX: usize = 255;

/// Maximum lines before a server's identification string.
pub const LINES_BEFORE_MAX: u16 = 64;

/// An identification string, such as `SSH-2.0-OpenSSH_9.6 comment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshGreeting<'a> {
    /// The line, without its line ending.
    pub raw: &'a [u8],
    /// The protocol version, `2.0`.
    pub protocol: &'a [u8],
    /// The software version, `OpenSSH_9.6`; empty if absent.
    pub software: &'a [u8],
    /// The comments after the first blank; empty if absent.
    pub comments: &'a [u8],
    /// True if the line exceeded its limit and was truncated.
    pub is_cut: bool,
}

impl<'a> SshGreeting<'a> {
    /// Parses a line without its line ending; `None` if it is not an identification string.
    pub fn read(line: &'a [u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"SSH-")?;
        let (protocol, rest) = parted(rest, |byte| byte == b'-');
        let (software, comments) = parted(rest, |byte| matches!(byte, b' ' | b'\r'));
        Some(Self { raw: line, protocol, software, comments, is_cut: false })
    }
}

/// The state of one direction, of fixed layout: it can be copied as bytes, and all zeros is the
/// initial state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GreetingReader {
    /// Lines before the identification string.
    lines: u16,
    /// 0: incomplete; 1: complete; otherwise: there is none.
    phase: u8,
    /// 1 if the line has more bytes than the buffer holds.
    is_cut: u8,
}

impl GreetingReader {
    /// Parses the next bytes of the direction, in pieces of any size. `line` holds an incomplete
    /// line between calls. Reports the identification string once, when it is complete, and ignores
    /// all later bytes.
    pub fn take(
        &mut self,
        bytes: &[u8],
        line: &mut impl LineBuffer,
        reported: &mut impl FnMut(SshGreeting<'_>),
    ) {
        let mut rest = bytes;
        while self.phase == 0 && !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (part, next) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            rest = next;
            self.gather(part, line);
            if end.is_some() || self.is_cut != 0 && line.as_slice().starts_with(b"SSH-") {
                self.complete(line.as_slice(), reported);
                line.clear();
                self.is_cut = 0;
            }
        }
    }

    /// Handles lost bytes or the end of the direction: reports a partial identification string.
    pub fn end(&mut self, line: &mut impl LineBuffer, reported: &mut impl FnMut(SshGreeting<'_>)) {
        if self.phase == 0 {
            self.is_cut = 1;
            self.complete(line.as_slice(), reported);
            self.phase = self.phase.max(1);
        }
        line.clear();
    }

    /// Returns whether nothing more will be reported.
    pub fn is_done(&self) -> bool {
        self.phase != 0
    }

    /// Returns whether there were more than [`LINES_BEFORE_MAX`] lines before a greeting.
    pub fn has_given_up(&self) -> bool {
        self.phase == 2
    }

    fn gather(&mut self, part: &[u8], line: &mut impl LineBuffer) {
        let room = GREETING_BYTES_MAX.saturating_sub(line.as_slice().len());
        let wanted = &part[..part.len().min(room)];
        if line.push(wanted) < part.len() {
            self.is_cut = 1;
        }
    }

    fn complete(&mut self, line: &[u8], reported: &mut impl FnMut(SshGreeting<'_>)) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(greeting) = SshGreeting::read(line) {
            self.phase = 1;
            return reported(SshGreeting { is_cut: self.is_cut != 0, ..greeting });
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines > LINES_BEFORE_MAX {
            self.phase = 2;
        }
    }
}

/// Splits the bytes at the first match; the separator belongs to neither part.
fn parted(bytes: &[u8], by: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| by(*byte)) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}
