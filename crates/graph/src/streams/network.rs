//! IP headers that make hosts ignore a packet: malformed options and extension headers, and source
//! routes.

/// Returns true if a host ignores a packet with this IP header, which has options or extension
/// headers, up to its transport header or its fragment's content.
#[cold]
pub(super) fn is_ignored(header: &[u8]) -> bool {
    match header.first().map(|first| first >> 4) {
        Some(4) => header.get(20..).is_some_and(is_ignored_v4),
        Some(6) => header.get(6).is_some_and(|&next| is_ignored_v6(next, &header[40.min(header.len())..])),
        _ => false,
    }
}

/// Options of IPv4 as Linux reads them (RFC 791 3.1, RFC 1122 3.2.1.8).
fn is_ignored_v4(mut options: &[u8]) -> bool {
    const LOOSE_ROUTE: u8 = 131;
    const STRICT_ROUTE: u8 = 137;
    const RECORD_ROUTE: u8 = 7;
    const TIMESTAMP: u8 = 68;
    const ROUTER_ALERT: u8 = 148;
    const CIPSO: u8 = 134;
    loop {
        options = match options {
            [] | [0, ..] => return false,
            [1, rest @ ..] => rest,
            [kind, len, ..] => {
                let Some((option, rest)) = options.split_at_checked(usize::from(*len)) else { return true };
                let pointer = option.get(2).copied().unwrap_or(0);
                let is_bad = match *kind {
                    _ if option.len() < 2 => true,
                    // Hosts accept none by default.
                    LOOSE_ROUTE | STRICT_ROUTE => true,
                    RECORD_ROUTE => pointer < 4 || pointer <= *len && usize::from(pointer) + 3 > option.len(),
                    TIMESTAMP => is_bad_timestamp(option),
                    ROUTER_ALERT => option.len() < 4,
                    CIPSO => is_bad_cipso(option),
                    _ => false,
                };
                if is_bad {
                    return true;
                }
                rest
            }
            [_] => return true,
        };
    }
}

fn is_bad_timestamp(option: &[u8]) -> bool {
    let [_, _, pointer, flags, ..] = option else { return true };
    let (pointer, len) = (usize::from(*pointer), option.len());
    let entry = match flags & 15 {
        0 => 4,
        1 | 3 => 8,
        _ => return pointer < 5,
    };
    pointer < 5 || pointer <= len && pointer + entry - 1 > len
}

/// A security label has a domain, and tags that fill it (draft-ietf-cipso-ipsecurity).
fn is_bad_cipso(option: &[u8]) -> bool {
    const HEAD: usize = 6;
    let Some(mut tags) = option.get(HEAD..).filter(|tags| !tags.is_empty()) else { return true };
    while let [_, len, ..] = tags {
        match tags.split_at_checked(usize::from(*len)) {
            Some((tag, rest)) if tag.len() >= 4 => tags = rest,
            _ => return true,
        }
    }
    !tags.is_empty()
}

/// Extension headers of IPv6 as Linux reads them (RFC 8200 4).
fn is_ignored_v6(mut next: u8, mut rest: &[u8]) -> bool {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION: u8 = 60;
    let mut is_first = true;
    while let [following, len, ..] = rest {
        let header_len = match next {
            FRAGMENT => 8,
            AUTHENTICATION => usize::from(*len) * 4 + 8,
            HOP_BY_HOP | ROUTING | DESTINATION => usize::from(*len) * 8 + 8,
            _ => return false,
        };
        let Some((header, others)) = rest.split_at_checked(header_len) else { return false };
        let is_bad = match next {
            HOP_BY_HOP => !is_first || has_bad_option(&header[2..]),
            DESTINATION => has_bad_option(&header[2..]),
            // A packet with segments left must be forwarded (RFC 5095).
            ROUTING => header[3] != 0,
            _ => false,
        };
        if is_bad {
            return true;
        }
        (next, rest, is_first) = (*following, others, false);
    }
    false
}

/// Returns true if an option is malformed, or requires hosts that do not know it to discard the
/// packet (RFC 8200 4.2).
fn has_bad_option(mut options: &[u8]) -> bool {
    const PAD: u8 = 1;
    const PADDING_MAX: usize = 7;
    const OPTIONS_MAX: usize = 8;
    // Known to hosts: router alert, jumbo payload, home address and others that are fine where they
    // stand.
    const KNOWN: [u8; 3] = [0x05, 0xc2, 0xc9];
    let (mut padding, mut count) = (0, 0);
    while let [kind, rest @ ..] = options {
        if *kind == 0 {
            padding += 1;
            options = rest;
        } else {
            let Some(len) = rest.first().map(|len| usize::from(*len)) else { return true };
            let Some((content, others)) = rest[1..].split_at_checked(len) else { return true };
            if *kind == PAD {
                padding += len + 2;
                if content.iter().any(|byte| *byte != 0) {
                    return true;
                }
            } else {
                count += 1;
                if kind >> 6 != 0 && !KNOWN.contains(kind) || count > OPTIONS_MAX {
                    return true;
                }
                padding = 0;
            }
            options = others;
        }
        if padding > PADDING_MAX {
            return true;
        }
    }
    false
}
