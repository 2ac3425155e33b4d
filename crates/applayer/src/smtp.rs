//! Mails within the commands of SMTP (RFC 5321, RFC 3030).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The place of a connection's client, in its commands or in a mail: of fixed layout, and all zeros
/// is the initial state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct MailReader(u32);

/// Bits of the phase; the others are its value.
const PHASE_BITS: u32 = 3;
const VALUE_MAX: u32 = u32::MAX >> PHASE_BITS;

/// The client's next bytes are commands.
const COMMANDS: u32 = 0;
/// `DATA` waits for its reply.
const ASKED: u32 = 1;
/// A mail, up to a line with a dot. The value is the part of that line that was matched.
const MAIL: u32 = 2;
/// A chunk of this many bytes, after which others come (RFC 3030 2).
const CHUNK: u32 = 3;
/// The mail's last chunk.
const LAST_CHUNK: u32 = 4;
/// A command before `DATA`, or `DATA` itself, was refused.
const REFUSED: u32 = 5;

/// Progress of [`MAIL`]: within a line, at its beginning, after its dot, and after the CR that
/// follows.
const IN_LINE: u32 = 0;
const AT_START: u32 = 1;
const AFTER_DOT: u32 = 2;
const AFTER_CR: u32 = 3;

impl MailReader {
    fn phase(self) -> u32 {
        self.0 & ((1 << PHASE_BITS) - 1)
    }

    fn value(self) -> u32 {
        self.0 >> PHASE_BITS
    }

    fn enter(&mut self, phase: u32, value: u32) {
        self.0 = value.min(VALUE_MAX) << PHASE_BITS | phase;
    }

    /// Returns whether the server's reply decides what the client sends next.
    pub fn is_asked(self) -> bool {
        matches!(self.phase(), ASKED | REFUSED)
    }

    /// Handles a line of the client outside of mails. A chunk of `BDAT` may have up to 512 MiB, of
    /// a longer one the rest is taken for commands.
    pub fn command(&mut self, line: &[u8]) {
        let mut words = line.trim_ascii().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let name = words.next().unwrap_or_default();
        if name.eq_ignore_ascii_case(b"DATA") {
            self.enter(ASKED, 0);
        } else if name.eq_ignore_ascii_case(b"BDAT") {
            let size = words.next().and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            let is_last = words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"LAST"));
            self.enter(if is_last { LAST_CHUNK } else { CHUNK }, size.unwrap_or(0));
        } else {
            self.enter(COMMANDS, 0);
        }
    }

    /// Handles a line of the server.
    pub fn reply(&mut self, line: &[u8]) {
        match line.first() {
            _ if line.starts_with(b"354") && self.is_asked() => {
                self.enter(MAIL, AT_START);
            }
            // Replies to commands before `DATA` may come after it (RFC 2920).
            Some(b'4' | b'5') if self.is_asked() => self.enter(REFUSED, 0),
            _ => {}
        }
    }

    /// Handles a gap of this length in the client's bytes.
    pub fn lose(&mut self, len: u64) {
        match self.phase() {
            MAIL => self.enter(MAIL, IN_LINE),
            phase @ (CHUNK | LAST_CHUNK) if len < u64::from(self.value()) => {
                self.enter(phase, self.value() - len as u32);
            }
            _ => self.enter(COMMANDS, 0),
        }
    }

    /// Returns how many of the client's next bytes belong to a mail, and whether it ends with them;
    /// `None` if they begin with a command.
    ///
    /// If the client continues after `DATA` before the reply arrives, its bytes are the mail.
    pub fn take(&mut self, bytes: &[u8]) -> Option<(usize, bool)> {
        match self.phase() {
            ASKED => {
                self.enter(MAIL, AT_START);
                Some(self.mail(bytes))
            }
            MAIL => Some(self.mail(bytes)),
            phase @ (CHUNK | LAST_CHUNK) => {
                let left = self.value() as usize;
                let len = left.min(bytes.len());
                let ends = len == left;
                self.enter(if ends { COMMANDS } else { phase }, (left - len) as u32);
                Some((len, ends && phase == LAST_CHUNK))
            }
            _ => None,
        }
    }

    fn mail(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            let matched = match (self.value(), byte) {
                (AFTER_DOT | AFTER_CR, b'\n') => {
                    self.enter(COMMANDS, 0);
                    return (at, true);
                }
                (AT_START, b'.') => AFTER_DOT,
                (AFTER_DOT, b'\r') => AFTER_CR,
                (_, b'\n') => AT_START,
                _ => {
                    let rest = &bytes[at..];
                    at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                    IN_LINE
                }
            };
            self.enter(MAIL, matched);
        }
        (bytes.len(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mails in a client's bytes, passed in pieces of this length, with all commands
    /// accepted.
    fn mails(client: &str, len: usize) -> Vec<String> {
        let (mut reader, mut line, mut mails) = (MailReader::default(), Vec::new(), vec![String::new()]);
        for mut piece in client.as_bytes().chunks(len) {
            while !piece.is_empty() {
                let Some((taken, ends)) = reader.take(piece) else {
                    line.push(piece[0]);
                    if piece[0] == b'\n' {
                        reader.command(&std::mem::take(&mut line));
                    }
                    piece = &piece[1..];
                    continue;
                };
                mails.last_mut().unwrap().push_str(std::str::from_utf8(&piece[..taken]).unwrap());
                mails.extend(ends.then(String::new));
                piece = &piece[taken..];
            }
        }
        mails
    }

    #[test]
    fn mails_are_found_in_any_segmentation() {
        let client = "EHLO x\r\ndata\r\nA: b\r\n\r\n..c\r\n. d\r\n.\r\nMAIL FROM:<x>\r\nDATA \n.\nQUIT\r\n\
                      BDAT 4\r\nabcdBDAT 5 last\r\nef\r\n.BDAT 0 LAST\r\nBDAT\r\nNOOP\r\n";
        for len in [1, 3, 1_000] {
            let expected = ["A: b\r\n\r\n..c\r\n. d\r\n.\r\n", ".\n", "abcdef\r\n.", "", ""];
            assert_eq!(mails(client, len), expected, "{len}");
        }
    }

    #[test]
    fn a_refused_command_begins_no_mail() {
        let asked = || {
            let mut reader = MailReader::default();
            reader.command(b"DATA\r\n");
            reader
        };
        for (reply, is_mail) in [
            ("354 go on\r\n", true),
            ("354-go\r\n", true),
            ("250 ok\r\n", true),
            ("554 no\r\n", false),
            ("4", false),
        ] {
            let mut reader = asked();
            reader.reply(reply.as_bytes());
            assert_eq!(reader.take(b"x").is_some(), is_mail, "{reply}");
        }
        // A refused recipient, of two.
        let mut reader = asked();
        ["550 no\r\n", "354 go\r\n"].iter().for_each(|reply| reader.reply(reply.as_bytes()));
        assert_eq!(reader.take(b"x"), Some((1, false)));
        // Without `DATA` it is the reply to another command.
        let mut reader = MailReader::default();
        reader.reply(b"354 go\r\n");
        assert_eq!(reader.take(b"x"), None);
    }

    #[test]
    fn a_gap_in_a_mail_does_not_end_it() {
        let mut reader = MailReader::default();
        reader.command(b"DATA\r\n");
        reader.reply(b"354\r\n");
        reader.lose(100);
        assert_eq!(reader.take(b".\r\nx\r\n.\r\nQ"), Some((9, true)));
        reader.command(b"BDAT 10 LAST\r\n");
        reader.lose(4);
        assert_eq!(reader.take(b"0123456789"), Some((6, true)));
    }

    #[test]
    fn any_state_is_a_valid_one() {
        for state in (0..=u32::MAX).step_by(0x0101_0103) {
            let mut reader = MailReader(state);
            let _ = reader.take(b"a\r\n.\r\n");
            reader.lose(u64::MAX);
            reader.command(b"BDAT 99999999999999\r\n");
        }
    }
}
