//! JA3 and JA3S: fingerprints of TLS implementations by what their hellos offer and choose.

use std::fmt::Write;

use md5::{Digest, Md5};

use super::{ClientHello, ServerHello};
use crate::input::Input;

const SUPPORTED_GROUPS: u16 = 10;
const EC_POINT_FORMATS: u16 = 11;

/// Returns the text of a JA3: version, cipher suites, extensions, groups and point formats in
/// decimal, in the client's order, without GREASE (RFC 8701).
pub fn ja3(hello: &ClientHello<'_>) -> String {
    let mut text = format!("{},", hello.legacy_version().0);
    list(&mut text, hello.cipher_suites());
    text.push(',');
    list(&mut text, hello.extensions().map(|(kind, _)| kind));
    text.push(',');
    let extension =
        |wanted| hello.extensions().find(|(kind, _)| *kind == wanted).map(|(_, data)| Input(data));
    let groups = extension(SUPPORTED_GROUPS).and_then(|mut data| data.prefixed_u16()).unwrap_or_default();
    list(&mut text, groups.as_chunks().0.iter().map(|group| u16::from_be_bytes(*group)));
    text.push(',');
    let formats = extension(EC_POINT_FORMATS).and_then(|mut data| data.prefixed_u8()).unwrap_or_default();
    list(&mut text, formats.iter().map(|format| u16::from(*format)));
    text
}

/// Returns the text of a JA3S: version, cipher suite and extensions in decimal, in the server's
/// order, without GREASE.
pub fn ja3s(hello: &ServerHello<'_>) -> String {
    let mut text = format!("{},{},", hello.legacy_version().0, hello.cipher_suite());
    list(&mut text, hello.extensions().map(|(kind, _)| kind));
    text
}

/// Returns the fingerprint of a text: MD5 in hexadecimal.
pub fn ja3_hash(text: &str) -> String {
    Md5::digest(text).iter().fold(String::new(), |mut hash, byte| {
        // Writing to a text cannot fail.
        let _ = write!(hash, "{byte:02x}");
        hash
    })
}

fn list(text: &mut String, numbers: impl Iterator<Item = u16>) {
    for (at, number) in numbers.filter(|number| !is_grease(*number)).enumerate() {
        // Writing to a text cannot fail.
        let _ = write!(text, "{}{number}", if at == 0 { "" } else { "-" });
    }
}

/// Returns whether the number is reserved: two equal bytes that end with A (RFC 8701 2).
fn is_grease(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a hello's body, from version to extensions.
    fn hello(middle: &[u8], extensions: &[u8]) -> Vec<u8> {
        let len = (extensions.len() as u16).to_be_bytes();
        [&[3, 3][..], &[7; 32], &[0], middle, &len, extensions].concat()
    }

    #[test]
    fn fingerprints_list_what_hellos_have() {
        let ciphers = [0, 6, 0x1a, 0x1a, 0x13, 1, 0xc0, 0x2f, 1, 0];
        let extensions = [
            &[0x0a, 0x0a, 0, 0][..],
            &[0, 10, 0, 8, 0, 6, 0x2a, 0x2a, 0, 29, 0, 23],
            &[0, 11, 0, 3, 2, 0, 1],
            &[0, 43, 0, 0],
        ]
        .concat();
        let body = hello(&ciphers, &extensions);
        let text = ja3(&ClientHello::read(&body));
        assert_eq!(text, "771,4865-49199,10-11-43,29-23,0-1");
        let body = hello(&[0x13, 1, 0], &[0, 43, 0, 2, 3, 4]);
        assert_eq!(ja3s(&ServerHello::read(&body)), "771,4865,43");
        // RFC 1321 A.5
        assert_eq!(ja3_hash("abc"), "900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn what_a_hello_lacks_is_empty() {
        assert_eq!(ja3(&ClientHello::read(&[3, 1])), "769,,,,");
        assert_eq!(ja3s(&ServerHello::read(&[])), "0,0,");
    }
}
