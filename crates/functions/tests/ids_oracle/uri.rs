//! Request targets: the host, and the normal form (RFC 3986).

/// Returns scheme, host and port of an absolute form or of CONNECT's; and the rest.
pub fn authority<'a>(method: &[u8], target: &'a [u8]) -> (Option<&'a [u8]>, &'a [u8]) {
    if method == b"CONNECT" && !target.contains(&b'/') {
        return (Some(target), target);
    }
    let Some(at) = target.windows(3).position(|three| three == b"://") else { return (None, target) };
    let is_scheme = target[..at].iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    if at == 0 || !target[0].is_ascii_alphabetic() || !is_scheme {
        return (None, target);
    }
    let behind = &target[at + 3..];
    let end = behind.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(behind.len());
    (Some(&behind[..end]), &behind[end..])
}

/// Returns the host without user and port.
pub fn host(authority: &[u8]) -> &[u8] {
    let user = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    let host = &authority[user..];
    let from = host.iter().position(|byte| *byte == b']').unwrap_or(0);
    let end = host[from..].iter().rposition(|byte| *byte == b':').map_or(host.len(), |at| from + at);
    &host[..end]
}

/// Returns the content of `http.uri`.
pub fn normal(method: &[u8], target: &[u8]) -> Vec<u8> {
    let (_, rest) = authority(method, target);
    let end = rest.iter().position(|byte| b"?#".contains(byte)).unwrap_or(rest.len());
    let mut path = plain_ascii(&decoded(&rest[..end]));
    path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    path.dedup_by(|a, b| (*a, *b) == (b'/', b'/'));
    [without_dots(&path), decoded(&rest[end..])].concat()
}

/// Decodes escapes once.
fn decoded(text: &[u8]) -> Vec<u8> {
    let digits = |from: usize, count: usize| {
        let digits = std::str::from_utf8(text.get(from..from + count)?).ok()?;
        let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        are_digits.then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let wide = matches!(text.get(at + 1), Some(b'u' | b'U')).then(|| digits(at + 2, 4)).flatten();
        let (byte, len) = match (text[at], digits(at + 1, 2), wide) {
            (b'%', Some(byte), _) => (byte as u8, 3),
            (b'%', _, Some(code @ ..0x100)) => (code as u8, 6),
            (b'%', _, Some(code @ 0xff01..=0xff5e)) => ((code - 0xfee0) as u8, 6),
            (b'%', _, Some(_)) => (b'?', 6),
            (byte, ..) => (byte, 1),
        };
        out.push(byte);
        at += len;
    }
    out
}

/// Decodes overlong and fullwidth forms of ASCII characters.
fn plain_ascii(text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let (byte, len) = match text[at..] {
            [a @ (0xc0 | 0xc1), b @ 0x80..=0xbf, ..] => (a << 6 | b & 0x3f, 2),
            [0xe0, a @ (0x80 | 0x81), b @ 0x80..=0xbf, ..] => (a << 6 | b & 0x3f, 3),
            [0xf0, 0x80, a @ (0x80 | 0x81), b @ 0x80..=0xbf, ..] => (a << 6 | b & 0x3f, 4),
            [0xef, 0xbc, b @ 0x81..=0xbf, ..] => (b - 0x60, 3),
            [0xef, 0xbd, b @ 0x80..=0x9e, ..] => (b - 0x20, 3),
            [byte, ..] => (byte, 1),
            [] => break,
        };
        out.push(byte);
        at += len;
    }
    out
}

/// Removes dot segments (RFC 3986 5.2.4), letter by letter.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let (mut input, mut out) = (path.to_vec(), Vec::new());
    while !input.is_empty() {
        if let Some(dots) = [&b"../"[..], b"./"].into_iter().find(|dots| input.starts_with(dots)) {
            input.drain(..dots.len());
        } else if input.starts_with(b"/./") || input == b"/." {
            input.splice(..input.len().min(3), *b"/");
        } else if input.starts_with(b"/../") || input == b"/.." {
            input.splice(..input.len().min(4), *b"/");
            out.truncate(out.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
        } else if input == b"." || input == b".." {
            input.clear();
        } else {
            let end = input[1..].iter().position(|byte| *byte == b'/').map_or(input.len(), |at| at + 1);
            out.extend(input.drain(..end));
        }
    }
    out
}
