//! Domain names, decompressed (RFC 1035 4.1.4).

use std::fmt;

/// Maximum bytes of an uncompressed name: lengths, labels and the final empty label (RFC 1035
/// 2.3.4).
pub const NAME_BYTES_MAX: usize = 255;

/// Maximum compression pointers in a name.
pub const POINTER_MAX: u32 = 32;

/// A name as rules match it: the raw bytes of its labels, joined by dots, without a final dot. The
/// root is empty. Bytes within a label are not escaped, not even a dot.
#[derive(Clone)]
pub struct DnsName {
    /// A label and its dot take as many bytes as the label and its length; the final empty label
    /// accounts for the last dot.
    bytes: [u8; NAME_BYTES_MAX],
    len: usize,
    is_cut: bool,
}

impl DnsName {
    /// Returns the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns whether the name exceeded [`NAME_BYTES_MAX`] and was truncated.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(super) fn clear(&mut self) {
        (self.len, self.is_cut) = (0, false);
    }

    /// Parses the name at `at` and returns the offset after it.
    pub(super) fn read(&mut self, message: &[u8], at: usize) -> Result<usize, DnsNameError> {
        self.clear();
        let (mut at, mut end, mut pointers) = (at, None, 0);
        loop {
            let first = *message.get(at).ok_or(DnsNameError::Cut)?;
            match first >> 6 {
                0 if first == 0 => return Ok(end.unwrap_or(at + 1)),
                0 => {
                    let next = at + 1 + usize::from(first);
                    let label = message.get(at + 1..next);
                    self.push(label.or(message.get(at + 1..)).unwrap_or_default());
                    at = label.and(Some(next)).ok_or(DnsNameError::Cut)?;
                    // The only thing left to find is the end of the name here, which is known after
                    // the first pointer.
                    if let (true, Some(end)) = (self.is_cut, end) {
                        return Ok(end);
                    }
                }
                3 => {
                    let second = *message.get(at + 1).ok_or(DnsNameError::Cut)?;
                    end = end.or(Some(at + 2));
                    pointers += 1;
                    if pointers > POINTER_MAX {
                        return Err(DnsNameError::TooManyPointers);
                    }
                    at = usize::from(first & 0x3f) << 8 | usize::from(second);
                    if at >= message.len() {
                        return Err(DnsNameError::PointsOutside);
                    }
                }
                _ => return Err(DnsNameError::UnknownLabel),
            }
        }
    }

    /// Appends a label, or the part of it that fits.
    fn push(&mut self, label: &[u8]) {
        if self.is_cut {
            return;
        }
        // The final empty label counts too.
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

impl Default for DnsName {
    fn default() -> Self {
        Self { bytes: [0; NAME_BYTES_MAX], len: 0, is_cut: false }
    }
}

impl fmt::Debug for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

/// The reason why a name is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DnsNameError {
    /// The message ends within the name.
    #[error("the message ends within it")]
    Cut,
    /// The name uses more than [`POINTER_MAX`] pointers, possibly in a loop.
    #[error("more than {POINTER_MAX} pointers")]
    TooManyPointers,
    /// A pointer leads beyond the end of the message.
    #[error("a pointer leads beyond the message")]
    PointsOutside,
    /// The first bits of a label mark neither a length nor a pointer (RFC 6891 5).
    #[error("a label of unknown type")]
    UnknownLabel,
}
