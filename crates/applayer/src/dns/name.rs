//! Names, without their compression (RFC 1035 4.1.4).

use std::fmt;

/// Most bytes of a name as it is sent without compression: lengths, labels and the empty label at
/// the end (RFC 1035 2.3.4).
pub const NAME_BYTES_MAX: usize = 255;

/// Most pointers that are followed within a name.
pub const POINTER_MAX: u32 = 32;

/// A name as rules see it: the bytes of its labels as they came, joined by dots, without a dot at
/// the end; the root is empty. A byte in a label is not escaped, not even a dot.
#[derive(Clone)]
pub struct Name {
    /// Each label and a dot take as many bytes as the label and its length; the end's empty label
    /// makes up for the last dot.
    bytes: [u8; NAME_BYTES_MAX],
    len: usize,
    is_cut: bool,
}

impl Name {
    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether the name was longer than [`NAME_BYTES_MAX`] and lacks its end.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(super) fn clear(&mut self) {
        (self.len, self.is_cut) = (0, false);
    }

    /// Reads the name at `at`, and says where it ends there.
    pub(super) fn read(&mut self, message: &[u8], at: usize) -> Result<usize, NameFault> {
        self.clear();
        let (mut at, mut end, mut pointers) = (at, None, 0);
        loop {
            let first = *message.get(at).ok_or(NameFault::Cut)?;
            match first >> 6 {
                0 if first == 0 => return Ok(end.unwrap_or(at + 1)),
                0 => {
                    let next = at + 1 + usize::from(first);
                    let label = message.get(at + 1..next);
                    self.push(label.or(message.get(at + 1..)).unwrap_or_default());
                    at = label.and(Some(next)).ok_or(NameFault::Cut)?;
                    // Nobody but this name's own end is waited for, and that is known behind the
                    // first pointer.
                    if let (true, Some(end)) = (self.is_cut, end) {
                        return Ok(end);
                    }
                }
                3 => {
                    let second = *message.get(at + 1).ok_or(NameFault::Cut)?;
                    end = end.or(Some(at + 2));
                    pointers += 1;
                    if pointers > POINTER_MAX {
                        return Err(NameFault::TooManyPointers);
                    }
                    at = usize::from(first & 0x3f) << 8 | usize::from(second);
                    if at >= message.len() {
                        return Err(NameFault::PointsOutside);
                    }
                }
                _ => return Err(NameFault::UnknownLabel),
            }
        }
    }

    /// Appends a label, or what there is room for.
    fn push(&mut self, label: &[u8]) {
        if self.is_cut {
            return;
        }
        // The empty label at the end counts as well.
        let used = if self.len == 0 { 0 } else { self.len + 1 };
        self.is_cut = used + 1 + label.len() + 1 > NAME_BYTES_MAX;
        let dot: &[u8] = if self.len == 0 { b"" } else { b"." };
        for bytes in [dot, label] {
            let taken = bytes.len().min(self.bytes.len() - self.len);
            self.bytes[self.len..self.len + taken].copy_from_slice(&bytes[..taken]);
            self.len += taken;
        }
    }
}

impl Default for Name {
    fn default() -> Self {
        Self { bytes: [0; NAME_BYTES_MAX], len: 0, is_cut: false }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

/// What is wrong with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// The message ends inside of it.
    #[error("cut off")]
    Cut,
    /// It goes over more than [`POINTER_MAX`] pointers, perhaps in a circle.
    #[error("more than {POINTER_MAX} pointers")]
    TooManyPointers,
    /// A pointer leads behind the message's end.
    #[error("a pointer out of the message")]
    PointsOutside,
    /// A label's first bits are neither a length's nor a pointer's (RFC 6891 5).
    #[error("a label of unknown type")]
    UnknownLabel,
}
