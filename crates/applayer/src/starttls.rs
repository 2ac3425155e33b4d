//! Upgrades of text protocols to TLS: a client's line requests it, a server's line accepts.

use crate::detect::AppProtocol;

/// Bytes of a line that are inspected.
pub const LINE_BYTES: usize = 64;

/// Returns whether a client's line, with or without its line ending, requests TLS: `STARTTLS` of
/// SMTP (RFC 3207 4) or `AUTH TLS` of FTP (RFC 4217 4).
pub fn asks(application: AppProtocol, line: &[u8]) -> bool {
    let mut words = line.trim_ascii().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let is = |word: Option<&[u8]>, known: &[&str]| {
        word.is_some_and(|word| known.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes())))
    };
    match application {
        AppProtocol::Smtp => is(words.next(), &["STARTTLS"]),
        AppProtocol::Ftp => {
            is(words.next(), &["AUTH"]) && is(words.next(), &["TLS", "TLS-C", "TLS-P", "SSL"])
        }
        _ => false,
    }
}

/// Returns whether a server's line accepts.
pub fn agrees(application: AppProtocol, line: &[u8]) -> bool {
    let code: &[u8] = match application {
        AppProtocol::Smtp => b"220",
        AppProtocol::Ftp => b"234",
        _ => return false,
    };
    line.strip_prefix(code).is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use AppProtocol::{Ftp, Smtp, Tls};

    #[test]
    fn starttls_lines_are_recognised() {
        for (application, line, expected) in [
            (Smtp, "STARTTLS\r\n", true),
            (Smtp, " starttls ", true),
            (Smtp, "STARTTLSX", false),
            (Smtp, "MAIL FROM:<STARTTLS>", false),
            (Smtp, "AUTH TLS", false),
            (Ftp, "AUTH TLS\r\n", true),
            (Ftp, "auth  tls-c\n", true),
            (Ftp, "AUTH SSL", true),
            (Ftp, "AUTH GSSAPI", false),
            (Ftp, "AUTH", false),
            (Tls, "STARTTLS", false),
        ] {
            assert_eq!(asks(application, line.as_bytes()), expected, "{line}");
        }
        for (application, line, expected) in [
            (Smtp, "220 2.0.0 Ready\r\n", true),
            (Smtp, "220\r\n", true),
            (Smtp, "220-more\r\n", false),
            (Smtp, "2200", false),
            (Smtp, "454 not now", false),
            (Ftp, "234 AUTH TLS", true),
            (Ftp, "220 hello", false),
        ] {
            assert_eq!(agrees(application, line.as_bytes()), expected, "{line}");
        }
    }
}
