//! A second reader of rules: the text of one, part by part, as plain words and numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A rule.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Action, protocol, addresses, ports, arrow, addresses, ports.
    pub header: Vec<String>,
    pub options: Vec<(String, String)>,
    /// What is asked of each buffer, in order.
    pub asked: BTreeMap<String, Vec<Asked>>,
}

/// Something that is asked of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Content(Content),
    /// An expression: whether it is not to match, whether behind the last match.
    Pcre(String, bool, bool),
    /// Bytes from a place on: whether there are to be none, whether behind the last match.
    DataAt(u32, bool, bool),
    /// Something else, by its keyword.
    Other(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub pattern: Vec<u8>,
    pub negated: bool,
    pub nocase: bool,
    pub ends: bool,
    /// From where on and in how many bytes, behind the last match or not.
    pub relative: bool,
    pub from: i32,
    pub within: Option<i32>,
    /// It is marked as the one to search for; with which part.
    pub fast: Option<String>,
}

/// Which buffers are meant by what follows.
struct Reading {
    /// That of contents.
    sticky: String,
    /// Where the last content is.
    content: String,
    /// Where the last content or expression is, which relative tests are behind.
    last: String,
}

/// Buffers that the content before them is of.
const MODIFIERS: [(&str, &str); 13] = [
    ("http_uri", "http.uri"),
    ("http_raw_uri", "http.uri.raw"),
    ("http_method", "http.method"),
    ("http_stat_code", "http.stat_code"),
    ("http_stat_msg", "http.stat_msg"),
    ("http_header", "http.header"),
    ("http_raw_header", "http.header.raw"),
    ("http_cookie", "http.cookie"),
    ("http_user_agent", "http.user_agent"),
    ("http_host", "http.host"),
    ("http_raw_host", "http.host.raw"),
    ("http_client_body", "http.request_body"),
    ("http_server_body", "http.response_body"),
];
/// Letters of expressions that name a buffer.
const LETTERS: [(char, &str); 13] = [
    ('U', "http.uri"),
    ('I', "http.uri.raw"),
    ('P', "http.request_body"),
    ('Q', "http.response_body"),
    ('H', "http.header"),
    ('D', "http.header.raw"),
    ('M', "http.method"),
    ('C', "http.cookie"),
    ('S', "http.stat_code"),
    ('Y', "http.stat_msg"),
    ('V', "http.user_agent"),
    ('W', "http.host"),
    ('Z', "http.host.raw"),
];
/// Buffers that all is of which follows.
const STICKY: [&str; 14] = [
    "pkt_data",
    "file_data",
    "dns_query",
    "tls_sni",
    "tls_cert_subject",
    "tls_cert_issuer",
    "tls_cert_serial",
    "ssh_proto",
    "http_header_names",
    "http_content_type",
    "http_accept",
    "http_content_len",
    "http_referer",
    "http_connection",
];

impl Read {
    /// Reads a rule.
    pub fn new(text: &str) -> Read {
        let (header, options) = text.split_once('(').unwrap();
        let mut rule =
            Read { header: header.split_whitespace().map(str::to_owned).collect(), ..Read::default() };
        rule.options = parted(options.trim_end().strip_suffix(')').unwrap());
        let mut reading =
            Reading { sticky: "pkt_data".into(), content: "pkt_data".into(), last: "pkt_data".into() };
        for (key, value) in rule.options.clone() {
            rule.option(&key, &value, &mut reading);
        }
        rule.asked.retain(|_, asked| !asked.is_empty());
        rule
    }

    /// The values of an option.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(other, _)| other == key).map(|(_, value)| &value[..])
    }

    fn option(&mut self, key: &str, value: &str, reading: &mut Reading) {
        let (negated, plain) =
            value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim_start()));
        let number = || value.parse::<i32>().unwrap();
        if let Some((_, buffer)) = MODIFIERS.iter().find(|(modifier, _)| *modifier == key && value.is_empty())
        {
            let asked = self.asked.get_mut(&reading.content).unwrap();
            let at = asked.iter().rposition(|one| matches!(one, Asked::Content(_))).unwrap();
            let moved = asked.remove(at);
            reading.content = (*buffer).to_owned();
            self.ask(&reading.content.clone(), moved, reading);
            return;
        }
        if STICKY.contains(&key) || key.contains('.') && value.is_empty() {
            // Names have a point behind the protocol.
            reading.sticky = if key == "pkt_data" { key.to_owned() } else { key.replacen('_', ".", 1) };
            return;
        }
        let is_relative = value.split(',').any(|word| word.trim() == "relative");
        let is_behind = is_relative && reading.sticky == "pkt_data";
        let tested = if is_behind { reading.last.clone() } else { reading.sticky.clone() };
        let last = reading.content.clone();
        let last = &last[..];
        match key {
            "content" | "uricontent" => {
                reading.content =
                    if key == "content" { reading.sticky.clone() } else { "http.uri".to_owned() };
                let content = Content { pattern: bytes(plain), negated, ..Content::default() };
                self.ask(&reading.content.clone(), Asked::Content(content), reading);
            }
            "nocase" => self.last(last).nocase = true,
            "endswith" => self.last(last).ends = true,
            "startswith" => {
                let content = self.last(last);
                content.within = Some(content.pattern.len() as i32);
            }
            "offset" => self.last(last).from = number(),
            "depth" => self.last(last).within = Some(number()),
            "distance" | "within" => {
                let content = self.last(last);
                content.relative = true;
                *(if key == "distance" { &mut content.from } else { content.within.insert(0) }) = number();
            }
            "fast_pattern" => self.last(last).fast = Some(value.to_owned()),
            "pcre" => {
                let text = plain.trim_matches('"');
                let (pattern, letters) = text[1..].rsplit_once('/').unwrap();
                let named = LETTERS.iter().find(|(letter, _)| letters.contains(*letter));
                let buffer = named.map_or(&reading.sticky[..], |(_, buffer)| buffer).to_owned();
                let pcre = Asked::Pcre(pattern.to_owned(), negated, letters.contains('R'));
                self.ask(&buffer, pcre, reading);
            }
            "isdataat" => {
                let from = plain.split(',').next().unwrap().trim().parse().unwrap();
                let asked = self.asked.entry(tested).or_default();
                match asked.last_mut() {
                    // Behind a content nothing more may stand: it ends the buffer.
                    Some(Asked::Content(content)) if (from, negated, is_relative) == (1, true, true) => {
                        content.ends = true;
                    }
                    _ => asked.push(Asked::DataAt(from, negated, is_relative)),
                }
            }
            "byte_test" | "byte_jump" => {
                self.asked.entry(tested).or_default().push(Asked::Other(key.to_owned()));
            }
            _ => {}
        }
    }

    fn ask(&mut self, buffer: &str, asked: Asked, reading: &mut Reading) {
        reading.last = buffer.to_owned();
        self.asked.entry(buffer.to_owned()).or_default().push(asked);
    }

    /// The last content of a buffer.
    fn last(&mut self, buffer: &str) -> &mut Content {
        let contents = self.asked.get_mut(buffer).unwrap().iter_mut().rev();
        let mut contents =
            contents.filter_map(|one| if let Asked::Content(content) = one { Some(content) } else { None });
        contents.next().unwrap()
    }

    /// The content to search for first: the one that is marked, else of those in the buffers of the best kind the longest, the most
    /// varied of them, the first (Suricata's guide, "Suricata Fast Pattern Determination Explained").
    pub fn fast_patterns(&self) -> Vec<(&str, &Content)> {
        let kind = |buffer: &str| match buffer {
            "pkt_data" | "http.stat_msg" => 3,
            "http.method" | "http.stat_code" => 4,
            _ => 2,
        };
        let all =
            self.asked.iter().flat_map(|(buffer, asked)| asked.iter().map(move |one| (&buffer[..], one)));
        let contents: Vec<(&str, &Content)> = all
            .filter_map(
                |(buffer, one)| {
                    if let Asked::Content(content) = one { Some((buffer, content)) } else { None }
                },
            )
            .filter(|(_, content)| !content.negated)
            .collect();
        if let Some(marked) = contents.iter().find(|(_, content)| content.fast.is_some()) {
            return vec![*marked];
        }
        let rank = |(buffer, content): &(&str, &Content)| {
            (-kind(buffer), content.pattern.len(), variety(&content.pattern))
        };
        let best = contents.iter().map(rank).max();
        contents.into_iter().filter(|one| Some(rank(one)) == best).collect()
    }
}

/// How varied bytes are: letters count 3 for the first time, other characters that are common 4, others 6, and 1 again.
fn variety(pattern: &[u8]) -> usize {
    let first = |at: usize| !pattern[..at].contains(&pattern[at]);
    let of = |at: usize| match pattern[at] {
        _ if !first(at) => 1,
        byte if byte.is_ascii_alphabetic() => 3,
        byte if byte.is_ascii_graphic() || matches!(byte, b' ' | 0 | 1 | 0xff) => 4,
        _ => 6,
    };
    (0..pattern.len()).map(of).sum()
}

/// Keys and values, which stand apart by semicolons outside of quotes and behind no backslash.
fn parted(text: &str) -> Vec<(String, String)> {
    let (mut all, mut one, mut quoted, mut escaped) = (Vec::new(), String::new(), false, false);
    for letter in text.chars() {
        if letter == ';' && !quoted && !escaped {
            let (key, value) = one.split_once(':').unwrap_or((&one, ""));
            all.push((key.trim().to_owned(), value.trim().to_owned()));
            one.clear();
            continue;
        }
        quoted ^= letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        one.push(letter);
    }
    all
}

/// The bytes of a content in quotes.
fn bytes(quoted: &str) -> Vec<u8> {
    let text = quoted.trim_matches('"');
    let mut out = Vec::new();
    for (number, part) in text.split('|').enumerate() {
        if number % 2 == 1 {
            let digits: Vec<u8> = part.bytes().filter(u8::is_ascii_hexdigit).collect();
            let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
            out.extend(digits.chunks(2).map(byte));
            continue;
        }
        let mut escaped = false;
        for byte in part.bytes() {
            escaped = byte == b'\\' && !escaped;
            if !escaped {
                out.push(byte);
            }
        }
    }
    out
}

/// Whether a group of a header has an address or a port: `leaf` says it of a single one.
pub fn has(group: &str, variables: &BTreeMap<String, String>, leaf: &dyn Fn(&str) -> bool) -> bool {
    if group == "any" {
        return true;
    }
    if let Some(rest) = group.strip_prefix('!') {
        return !has(rest, variables, leaf);
    }
    if let Some(name) = group.strip_prefix('$') {
        return has(&variables[name], variables, leaf);
    }
    let Some(list) = group.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return leaf(group);
    };
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in list.chars().filter(|letter| !letter.is_whitespace()) {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(letter),
        }
    }
    let (without, with): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.starts_with('!'));
    without.iter().all(|part| has(part, variables, leaf))
        && (with.is_empty() || with.iter().any(|part| has(part, variables, leaf)))
}

/// Whether an address is in a network such as `10.0.0.0/8`.
pub fn is_in(network: &str, address: IpAddr) -> bool {
    let (base, len) = network.split_once('/').unwrap_or((network, ""));
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let base: IpAddr = base.parse().unwrap();
    let ((one, width), (other, _)) = (bits(base), bits(address));
    let len: u32 = len.parse().unwrap_or(width);
    base.is_ipv4() == address.is_ipv4() && (one ^ other).checked_shr(128 - len).unwrap_or(0) == 0
}

/// Whether a port is in a range such as `80` or `1024:`.
pub fn is_within(range: &str, port: u16) -> bool {
    let (low, high) = range.split_once(':').unwrap_or((range, range));
    low.parse().unwrap_or(0) <= port && port <= high.parse().unwrap_or(u16::MAX)
}
