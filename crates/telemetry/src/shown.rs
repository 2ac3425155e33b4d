//! Texts of others, made safe to show: names, addresses and reasons that a peer, a program, a
//! packet or the store has chosen.

use std::fmt::{self, Display, Write};

/// Limit on the characters of a text in a line of the log, or in an answer.
pub const SHOWN_MAX: usize = 1_024;
/// Limit on the characters of a text in a cell of a table.
pub const CELL_MAX: usize = 80;

/// A text for one line: control characters and characters that change the direction of text are
/// escaped as in Rust, and long texts are cut, with `...` at the end.
pub struct Shown<T> {
    text: T,
    chars_max: usize,
}

/// Returns a text for a line of the log.
pub fn shown<T: Display>(text: T) -> Shown<T> {
    Shown { text, chars_max: SHOWN_MAX }
}

/// Returns a text for a cell of a table.
pub fn shown_in_cell<T: Display>(text: T) -> Shown<T> {
    Shown { text, chars_max: CELL_MAX }
}

/// Returns a text of several lines for a terminal: each line is escaped as by [`shown`], but none
/// is cut.
pub fn shown_lines(text: &str) -> String {
    let lines = text.split('\n').map(|line| Shown { text: line, chars_max: usize::MAX }.to_string());
    lines.collect::<Vec<_>>().join("\n")
}

impl<T: Display> Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut escaping = Escaping { out: f, left: self.chars_max };
        // The escaping writer fails once no room is left.
        match write!(escaping, "{}", self.text) {
            Err(_) if escaping.left == 0 => f.write_str("..."),
            result => result,
        }
    }
}

/// Writes characters until there is no room.
struct Escaping<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    left: usize,
}

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            match is_plain(letter) {
                true => self.out.write_char(letter)?,
                false => write!(self.out, "{}", letter.escape_default())?,
            }
        }
        Ok(())
    }
}

/// Returns true if a terminal shows a character, and nothing else happens.
fn is_plain(letter: char) -> bool {
    let turns = matches!(
        letter,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    !letter.is_control() && !turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, expected) in [
            ("unit-1 at 10.0.0.2:7400", "unit-1 at 10.0.0.2:7400"),
            ("\x1b]0;pwn\x07\r\n", "\\u{1b}]0;pwn\\u{7}\\r\\n"),
            ("\u{9b}31m\x7f\0\t", "\\u{9b}31m\\u{7f}\\u{0}\\t"),
            ("a\u{202e}b\u{2028}c", "a\\u{202e}b\\u{2028}c"),
            ("Zürich 東京", "Zürich 東京"),
        ] {
            assert_eq!(shown(text).to_string(), expected);
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let text = "ü".repeat(4_000);
        assert_eq!(shown(&text).to_string(), "ü".repeat(SHOWN_MAX) + "...");
        assert_eq!(shown_in_cell(&text).to_string(), "ü".repeat(CELL_MAX) + "...");
        let fits = "x".repeat(CELL_MAX);
        assert_eq!(shown_in_cell(&fits).to_string(), fits);
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(shown_lines("a\r\n  b\x1b[0m\n"), "a\\r\n  b\\u{1b}[0m\n");
    }
}
