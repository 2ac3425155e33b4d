//! Decoding of text files as found in the field, into UTF-8.

/// Replaces bytes of a file that are not UTF-8: U+FFFD. Readers of patterns refuse it, as the
/// original bytes are lost.
pub const UNREADABLE: char = char::REPLACEMENT_CHARACTER;

/// Decodes a text file. A byte order mark is dropped; that of UTF-16 selects UTF-16. Bytes that are
/// not UTF-8 become [`UNREADABLE`], so that a comment in Latin-1 does no harm and positions of
/// lines and characters remain valid.
pub fn decode_text(bytes: &[u8]) -> String {
    match bytes {
        [0xef, 0xbb, 0xbf, text @ ..] => utf8(text),
        [0xff, 0xfe, text @ ..] => utf16(text, u16::from_le_bytes),
        [0xfe, 0xff, text @ ..] => utf16(text, u16::from_be_bytes),
        text => utf8(text),
    }
}

fn utf8(bytes: &[u8]) -> String {
    // Each invalid byte becomes one character, as in its original encoding; `from_utf8_lossy` would
    // join some.
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| text.push(UNREADABLE));
    }
    text
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (units, rest) = bytes.as_chunks::<2>();
    let mut text: String = char::decode_utf16(units.iter().map(|&pair| unit(pair)))
        .map(|one| one.unwrap_or(UNREADABLE))
        .collect();
    text.extend((!rest.is_empty()).then_some(UNREADABLE));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_dropped() {
        assert_eq!(decode_text(b"\xef\xbb\xbfallow out"), "allow out");
        assert_eq!(decode_text(b"\xff\xfea\0\r\0\n\0"), "a\r\n");
        assert_eq!(decode_text(b"\xfe\xff\0a\0\xfc"), "a\u{fc}");
        assert_eq!(decode_text(b""), "");
    }

    #[test]
    fn each_invalid_byte_becomes_one_character() {
        assert_eq!(decode_text(b"# r\xe4gles\nnext"), "# r\u{fffd}gles\nnext");
        assert_eq!(decode_text(b"\xe4\xb8 \xfc"), "\u{fffd}\u{fffd} \u{fffd}");
        assert_eq!(decode_text("B\u{fc}ro".as_bytes()), "B\u{fc}ro");
        assert_eq!(decode_text(b"\xff\xfe\0\xd8a"), "\u{fffd}\u{fffd}");
    }
}
