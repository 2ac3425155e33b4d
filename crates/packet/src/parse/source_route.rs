//! Source routes: IPv4 options and IPv6 routing headers.

use super::{AUTHENTICATION, EXTENSION_MAX, FRAGMENT, ROUTING, is_extension};

/// Checks an IP header with options or extension headers for a source route.
pub(crate) fn has_source_route(header: &[u8], version: u8) -> bool {
    if version == 4 {
        has_route_option(header.get(20..).unwrap_or_default())
    } else {
        has_route_header(header)
    }
}

/// Checks for a source route option of IPv4 (RFC 791 3.1): LSRR or SSRR.
fn has_route_option(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE: u8 = 0x83;
    const STRICT: u8 = 0x89;
    while let Some(&kind) = options.first() {
        let len = match (kind, options.get(1)) {
            (LOOSE | STRICT, _) => return true,
            (END, _) => return false,
            (NO_OPERATION, _) => 1,
            (_, Some(&len @ 2..)) => usize::from(len),
            _ => return false,
        };
        options = options.get(len..).unwrap_or_default();
    }
    false
}

/// Checks for a routing header of type 0 (RFC 8200 4.4, RFC 5095).
fn has_route_header(header: &[u8]) -> bool {
    routing_headers(header).any(|[_, _, kind, _]| kind == 0)
}

/// Returns the first bytes of an IPv6 packet's routing headers: next header, length, type, segments
/// left.
pub(crate) fn routing_headers(packet: &[u8]) -> impl Iterator<Item = [u8; 4]> {
    let (mut next, mut at) = (packet.get(6).copied().unwrap_or(0), 40);
    let headers = std::iter::from_fn(move || {
        let header: [u8; 4] = *packet.get(at..)?.first_chunk()?;
        let (kind, units) = (next, usize::from(header[1]));
        if !is_extension(kind) {
            return None;
        }
        at += match kind {
            FRAGMENT => 8,
            AUTHENTICATION => 4 * (units + 2),
            _ => 8 * (units + 1),
        };
        next = header[0];
        Some((kind, header))
    });
    headers.take(EXTENSION_MAX).filter(|&(kind, _)| kind == ROUTING).map(|(_, header)| header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_routes_are_found_after_other_options() {
        let header = |options: &[u8]| [&[0; 20], options].concat();
        for (options, is_route) in [
            (&[0x83, 7, 4, 10, 0, 0, 1, 0][..], true),
            (&[1, 1, 0x89, 7, 4, 10, 0, 0, 1, 0, 0, 0], true),
            (&[7, 7, 4, 0, 0, 0, 0, 0x83, 3, 4, 0, 0], true),
            (&[7, 7, 4, 0, 0, 0, 0, 0], false),
            (&[0, 0x83, 7, 4], false),
            (&[7, 0, 0x83, 7], false),
            (&[0x94, 4, 0, 0], false),
            (&[], false),
        ] {
            assert_eq!(has_source_route(&header(options), 4), is_route, "{options:?}");
        }
        let mut six = vec![0; 40];
        six[6] = 0;
        six.extend([43, 0, 1, 4, 0, 0, 0, 0]);
        six.extend([6, 2, 0, 1].iter().chain(&[0; 20]));
        assert!(has_source_route(&six, 6));
        six[50] = 4;
        assert!(!has_source_route(&six, 6), "a segment routing header is none");
    }
}
