//! Lenient Base64 decoding.

use crate::Base64Mode;

/// Decodes Base64 in place, leniently.
///
/// Input ends at the first `=`, and at any other byte outside the alphabet unless the mode skips
/// those. A final group of two or three letters gives one or two bytes, padded or not; excess bits
/// are ignored. The strict mode returns nothing unless the input is as RFC 4648, section 4
/// requires: whole groups, padding, no excess bits.
pub fn decode(buffer: &mut Vec<u8>, mode: Base64Mode) {
    if mode == Base64Mode::Strict && !is_strict(buffer) {
        return buffer.clear();
    }
    let (mut bits, mut held, mut written) = (0u32, 0, 0);
    for read in 0..buffer.len() {
        let Some(six) = six_bits(buffer[read]) else {
            match mode {
                Base64Mode::Rfc2045 if buffer[read] != b'=' => continue,
                _ => break,
            }
        };
        bits = bits << 6 | six;
        held += 6;
        if held >= 8 {
            held -= 8;
            // Each byte takes more than one letter, so the overwritten letters have been read.
            buffer[written] = (bits >> held) as u8;
            written += 1;
        }
    }
    buffer.truncate(written);
}

fn is_strict(text: &[u8]) -> bool {
    if !text.len().is_multiple_of(4) {
        return false;
    }
    let letters = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    // 8 of the 12 bits of two letters count, and 16 of the 18 bits of three.
    let unused = [0, 0b111111, 0b1111, 0b11][letters.len() % 4];
    letters.iter().all(|letter| six_bits(*letter).is_some())
        && letters.last().is_none_or(|last| six_bits(*last).is_some_and(|six| six & unused == 0))
}

fn six_bits(letter: u8) -> Option<u32> {
    let six = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(six))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::base64::Engine;
    use ::base64::prelude::BASE64_STANDARD;
    use proptest::prelude::*;

    fn decoded(text: &[u8], mode: Base64Mode) -> Vec<u8> {
        let mut buffer = text.to_vec();
        decode(&mut buffer, mode);
        buffer
    }

    #[test]
    fn modes_differ_on_bytes_outside_the_alphabet() {
        use Base64Mode::*;
        for (text, rfc4648, rfc2045, strict) in [
            ("", "", "", ""),
            ("dGVzdA==", "test", "test", "test"),
            ("dGVzdA", "test", "test", ""),
            ("dGVzdA=", "test", "test", ""),
            ("dGVzdB==", "test", "test", ""),
            ("dGVz dA==", "tes", "test", ""),
            ("dG\r\nVzdA==", "t", "test", ""),
            ("-dGVzdA==", "", "test", ""),
            ("dGVz=dGVz", "tes", "tes", ""),
            ("d", "", "", ""),
            ("=", "", "", ""),
        ] {
            let expected = [rfc4648, rfc2045, strict].map(str::as_bytes);
            let actual = [Rfc4648, Rfc2045, Strict].map(|mode| decoded(text.as_bytes(), mode));
            assert_eq!(actual, expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn strict_is_what_the_library_decodes(text in "[AQgw1+/=]{0,9}|([A-Za-z0-9+/]{4}){0,4}[A-Za-z=]{0,4}") {
            let expected = BASE64_STANDARD.decode(&text).unwrap_or_default();
            prop_assert_eq!(decoded(text.as_bytes(), Base64Mode::Strict), expected);
        }

        #[test]
        fn what_was_encoded_comes_back(bytes: Vec<u8>) {
            let text = BASE64_STANDARD.encode(&bytes);
            for mode in [Base64Mode::Rfc4648, Base64Mode::Rfc2045, Base64Mode::Strict] {
                prop_assert_eq!(&decoded(text.as_bytes(), mode), &bytes);
            }
        }
    }
}
