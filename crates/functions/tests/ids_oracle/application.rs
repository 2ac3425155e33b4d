//! A second implementation of protocol detection by the first bytes of clients and servers.

use packet::Direction;

/// First bytes of a direction that count.
const HEAD: usize = 16;
/// Bytes of a direction without a result before detection fails.
const LIMIT: u64 = 16_384;
/// The same in datagrams to or from port 53.
const DATAGRAMS: u32 = 4;

/// Methods of HTTP itself.
const USUAL_METHODS: &str = "GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH";
/// Other methods that are registered (RFC 9110 16.1.1; except `PRI`, which is HTTP/2's), or in wide
/// use.
const METHODS: &str = "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL \
    MKREDIRECTREF MKWORKSPACE MOVE ORDERPATCH PROPFIND PROPPATCH QUERY REBIND REPORT SEARCH UNBIND UNCHECKOUT UNLINK UNLOCK \
    UPDATE UPDATEREDIRECTREF VERSION-CONTROL M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE PURGE";

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    Http1,
    Http2,
    Tls,
    Ssh,
    Smtp,
    Ftp,
    Smb,
    Dns,
}

/// The detection of a flow.
#[derive(Clone, Debug, Default)]
pub struct Detection {
    known: Option<Spoken>,
    failed: bool,
    heads: [Head; 2],
}

#[derive(Clone, Debug, Default)]
struct Head {
    bytes: Vec<u8>,
    lost: bool,
    seen: u64,
    /// Bytes of empty lines before a client's first ones.
    empty: u64,
    datagrams: u32,
}

/// The result of examining first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guess {
    No,
    Perhaps,
    /// A `220` that SMTP and FTP share; or a command that FTP clients share with others.
    Half,
    Yes(Spoken),
}

impl Detection {
    pub fn known(&self) -> Option<Spoken> {
        self.known
    }

    /// Returns whether it may still become known.
    pub fn is_open(&self) -> bool {
        self.known.is_none() && !self.failed
    }

    /// Returns whether these client bytes may begin another protocol, which is not followed here.
    pub fn may_change(&self, bytes: &[u8]) -> bool {
        let may = match self.known {
            None => self.failed || bytes.len() >= 6,
            Some(known) => matches!(known, Spoken::Smtp | Spoken::Ftp),
        };
        may && self.heads[0].seen > 0 && record(&bytes[..bytes.len().min(6)], 1) != Guess::No
    }

    /// Adds bytes of a stream, wherever this detection began.
    pub fn next(&mut self, direction: Direction, bytes: &[u8], ports: (u16, u16)) {
        let head = &self.heads[direction.index()];
        let offset = head.empty + head.seen;
        self.stream(direction, offset, bytes, ports);
    }

    /// Adds bytes of a stream; `ports` are the client's and the server's.
    pub fn stream(&mut self, direction: Direction, offset: u64, bytes: &[u8], ports: (u16, u16)) {
        let head = &mut self.heads[direction.index()];
        let (offset, mut bytes) = (offset - head.empty, bytes);
        let may_be_empty = direction.index() == 0 && ports.0 != 53 && ports.1 != 53 && !head.lost;
        if may_be_empty && head.bytes.is_empty() && offset == 0 {
            while let [b'\r' | b'\n', rest @ ..] = bytes {
                (bytes, head.empty) = (rest, head.empty + 1);
            }
        }
        if bytes.is_empty() {
            return;
        }
        if head.bytes.len() < HEAD && offset != head.bytes.len() as u64 {
            head.lost = true;
        }
        let room = HEAD - head.bytes.len();
        head.bytes.extend(bytes.iter().take(room));
        head.seen = offset + bytes.len() as u64;
        if self.known.is_some() {
            return;
        }
        let client = self.guess(0, ports);
        let server = self.guess(1, ports);
        self.known = match (client, server) {
            (Guess::Yes(spoken), _) | (_, Guess::Yes(spoken)) => Some(spoken),
            (Guess::Half, Guess::Half) => Some(Spoken::Ftp),
            _ => None,
        };
        let hopeless =
            matches!((client, server), (Guess::No | Guess::Half, Guess::No) | (Guess::No, Guess::Half));
        // A silent direction may still decide.
        self.failed = self.known.is_none()
            && (self.failed || hopeless || self.heads.iter().any(|head| head.seen > LIMIT));
    }

    /// Adds a datagram.
    pub fn datagram(&mut self, direction: Direction, payload: &[u8], ports: (u16, u16)) {
        if self.known.is_some() || self.failed {
            return;
        }
        let head = &mut self.heads[direction.index()];
        head.datagrams += 1;
        let at_port = ports.0 == 53 || ports.1 == 53;
        if at_port && is_dns(payload, payload.len()) {
            self.known = Some(Spoken::Dns);
        }
        self.failed = self.known.is_none() && (!at_port || head.datagrams >= DATAGRAMS);
    }

    fn guess(&self, side: usize, ports: (u16, u16)) -> Guess {
        let head = &self.heads[side];
        if head.lost {
            return Guess::No;
        }
        let guesses = if side == 0 { client(&head.bytes, ports) } else { server(&head.bytes, ports) };
        let perhaps = head.bytes.is_empty() || guesses.contains(&Guess::Perhaps);
        match guesses.into_iter().find(|guess| matches!(guess, Guess::Yes(_) | Guess::Half)) {
            Some(guess) => guess,
            None if perhaps && head.bytes.len() < HEAD => Guess::Perhaps,
            None => Guess::No,
        }
    }
}

fn client(head: &[u8], ports: (u16, u16)) -> Vec<Guess> {
    let ftp = if ports.1 == 21 { Guess::Yes(Spoken::Ftp) } else { Guess::Half };
    let upper = head.to_ascii_uppercase();
    let mut guesses = vec![
        begins(head, b"PRI * HTTP/2.0\r\n", Guess::Yes(Spoken::Http2)),
        request(head),
        record(head, 1),
        ssl2(head, &[&|_| true, &|b| b == 1, &|b| b == 0 || b == 3, &|b| b <= 3]),
        begins(head, b"SSH-", Guess::Yes(Spoken::Ssh)),
    ];
    if guesses[3] == Guess::Yes(Spoken::Tls) && head[3] == 0 && head[4] != 2 {
        guesses[3] = Guess::No; // Version 0.2 is SSL 2; there is no other before 3.
    }
    guesses.extend(smb(head, ports));
    let smtp: [&[u8]; 4] = [b"EHLO ", b"HELO ", b"EHLO\r", b"HELO\r"];
    guesses.extend(smtp.map(|word| begins(&upper, word, Guess::Yes(Spoken::Smtp))));
    let words = ["USER ", "PASS ", "PORT ", "AUTH ", "HOST ", "OPTS ", "FEAT\r", "SYST\r", "CLNT "];
    guesses.extend(words.map(|word| begins(&upper, word.as_bytes(), ftp)));
    guesses.push(dns(head, ports));
    guesses
}

fn server(head: &[u8], ports: (u16, u16)) -> Vec<Guess> {
    let greeting = match ports.1 {
        21 | 2121 => Guess::Yes(Spoken::Ftp),
        25 | 465 | 587 | 2525 => Guess::Yes(Spoken::Smtp),
        _ => Guess::Half,
    };
    let yes = Guess::Yes;
    let settings: [&dyn Fn(u8) -> bool; 9] = [
        &|b| b == 0,
        &|b| b == 0,
        &|b| b % 6 == 0,
        &|b| b == 4,
        &|b| b == 0,
        &|b| b == 0,
        &|b| b == 0,
        &|b| b == 0,
        &|b| b == 0,
    ];
    let alert: [&dyn Fn(u8) -> bool; 6] =
        [&|b| b == 21, &|b| b == 3, &|b| b <= 4, &|b| b == 0, &|b| b == 2, &|b| b == 1 || b == 2];
    let mut guesses = vec![
        begins(head, b"HTTP/1.0", yes(Spoken::Http1)),
        begins(head, b"HTTP/1.", Guess::Perhaps),
        begins(head, b"HTTP/0.", yes(Spoken::Http1)),
        shaped(head, &settings, Spoken::Http2),
        record(head, 2),
        shaped(head, &alert, Spoken::Tls),
        ssl2(head, &[&|_| true, &|b| b == 4, &|b| b <= 1, &|b| b <= 1, &|b| b == 0, &|b| b == 2]),
        begins(head, b"SSH-", yes(Spoken::Ssh)),
        begins(head, b"220 ", greeting),
        begins(head, b"220-", greeting),
        dns(head, ports),
    ];
    if head.starts_with(b"HTTP/1.") {
        guesses[1] = yes(Spoken::Http1);
    }
    guesses.extend(smb(head, ports));
    guesses
}

/// Matches a registered method and a blank.
fn request(head: &[u8]) -> Guess {
    let line = without_line_ends(head);
    let Some(end) = line.iter().position(|byte| !byte.is_ascii_uppercase() && *byte != b'-') else {
        return Guess::Perhaps;
    };
    let method = &line[..end];
    if !matches!(line[end], b' ' | b'\t') || !is_method(method) {
        return Guess::No;
    }
    // RTSP and SIP have OPTIONS and DESCRIBE, too.
    let is_shared = method == b"OPTIONS" || !is_one_of(USUAL_METHODS, method);
    match line.get(end + 1) {
        Some(b's' | b'S' | b'r' | b'R') if is_shared => Guess::No,
        None if is_shared && head.len() < HEAD => Guess::Perhaps,
        _ => Guess::Yes(Spoken::Http1),
    }
}

/// Returns whether a word is an HTTP method.
pub fn is_method(word: &[u8]) -> bool {
    is_one_of(USUAL_METHODS, word) || is_one_of(METHODS, word)
}

fn is_one_of(words: &str, word: &[u8]) -> bool {
    words.split(' ').any(|known| known.as_bytes() == word)
}

/// Skips empty lines.
fn without_line_ends(head: &[u8]) -> &[u8] {
    let from = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(head.len());
    &head[from..]
}

/// Matches a TLS record with this handshake message.
fn record(head: &[u8], message: u8) -> Guess {
    if head.len() >= 5 && head[3..5] == [0, 0] {
        return Guess::No;
    }
    let shape: [&dyn Fn(u8) -> bool; 6] =
        [&|b| b == 22, &|b| b == 3, &|b| b <= 4, &|b| b <= 0x48, &|_| true, &|b| b == message];
    shaped(head, &shape, Spoken::Tls)
}

/// Matches an SSL 2 record with these bytes after the first.
fn ssl2(head: &[u8], rest: &[&dyn Fn(u8) -> bool]) -> Guess {
    let mut shape: Vec<&dyn Fn(u8) -> bool> = vec![&|b| b >= 0x80];
    shape.extend(rest);
    shaped(head, &shape, Spoken::Tls)
}

fn smb(head: &[u8], ports: (u16, u16)) -> Vec<Guess> {
    let message: [&dyn Fn(u8) -> bool; 8] = [
        &|b| b == 0,
        &|_| true,
        &|_| true,
        &|_| true,
        &|b| b >= 0xfd,
        &|b| b == b'S',
        &|b| b == b'M',
        &|b| b == b'B',
    ];
    let session: [&dyn Fn(u8) -> bool; 4] =
        [&|b| (0x81..=0x83).contains(&b), &|b| b <= 1, &|b| b == 0, &|_| true];
    let mut guesses = vec![shaped(head, &message, Spoken::Smb)];
    if ports.1 == 139 {
        guesses.push(shaped(head, &session, Spoken::Smb));
    }
    guesses
}

fn dns(head: &[u8], ports: (u16, u16)) -> Guess {
    if ports.0 != 53 && ports.1 != 53 {
        return Guess::No;
    }
    if head.len() < 14 {
        return Guess::Perhaps;
    }
    let len = usize::from(head[0]) << 8 | usize::from(head[1]);
    if is_dns(&head[2..], len) { Guess::Yes(Spoken::Dns) } else { Guess::No }
}

/// Returns whether a message of this length that begins like this can be DNS.
pub fn is_dns(message: &[u8], len: usize) -> bool {
    let Some(header) = message.first_chunk::<12>() else { return false };
    let word = |at: usize| usize::from(header[2 * at]) << 8 | usize::from(header[2 * at + 1]);
    let (questions, records) = (word(2), word(3) + word(4) + word(5));
    let whole = 12 + 5 * questions + 11 * records <= len;
    let cut = header[2] & 2 != 0 && 12 + 5 * questions <= len;
    ![3, 7, 8, 9, 10, 11, 12, 13, 14, 15].contains(&(header[2] >> 3 & 15))
        && questions + records > 0
        && (whole || cut)
}

fn begins(head: &[u8], with: &[u8], then: Guess) -> Guess {
    match (head.starts_with(with), with.starts_with(head)) {
        (true, _) => then,
        (false, true) => Guess::Perhaps,
        (false, false) => Guess::No,
    }
}

fn shaped(head: &[u8], shape: &[&dyn Fn(u8) -> bool], spoken: Spoken) -> Guess {
    match head.iter().zip(shape).all(|(byte, right)| right(*byte)) {
        false => Guess::No,
        true if head.len() < shape.len() => Guess::Perhaps,
        true => Guess::Yes(spoken),
    }
}
