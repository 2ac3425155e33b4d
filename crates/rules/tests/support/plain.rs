//! A second reader of rules that knows nothing of the first, but for the names of buffers: it takes a rule that loads apart
//! by plain means and says of each part, with its values, what must have come of it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test uses a part; a test fails by panicking"
)]

use std::net::IpAddr;

use rules::*;

#[path = "options.rs"]
pub mod options;

/// What a rule asks of one buffer: its name, what is done to it first, and the matches.
type Slot = (&'static str, Vec<String>, Vec<String>);

/// That a rule is what its text says: its header, its numbers and texts, its marks, and all that it asks of buffers.
pub fn check(text: &str, rule: &Rule) {
    let (header, _) = text.split_once('(').unwrap();
    check_header(header, rule);
    let mut reader = Reader::default();
    for (name, value) in options(text) {
        reader.option(&name.to_ascii_lowercase(), value);
    }
    let Reader { mut meta, alerts, parts, .. } = reader;
    let mut told = meta_of(rule, &meta);
    meta.sort();
    told.sort();
    assert_eq!(told, meta, "{text}");
    assert_eq!(rule.alerts, alerts.unwrap_or(rule.action != Action::Pass), "{text}");
    let shown = |part: &Part| match part {
        Part::Content(said) => said.show(),
        Part::Other(other) => other.clone(),
    };
    let slots =
        parts.into_iter().map(|(name, steps, parts)| (name, steps, parts.iter().map(shown).collect()));
    let mut slots: Vec<Slot> = slots.collect();
    slots.retain(|slot| !slot.2.is_empty());
    let mut told: Vec<_> = rule.buffers.iter().map(|buffer| slot_of(rule, buffer)).collect();
    // Several namings of one buffer stay in their order; that of different ones is where they were named first.
    slots.sort_by_key(|slot| slot.0);
    told.sort_by_key(|slot| slot.0);
    assert_eq!(told, slots, "{text}");
}

/// The options of a rule: what stands between semicolons that no odd number of `\` stands before.
fn options<'a>(text: &'a str) -> Vec<(&'a str, &'a str)> {
    let names = options::names(text).unwrap();
    let end = text.trim_end().len() - 1;
    let starts = names.iter().map(|(at, _)| *at).skip(1).chain([end]);
    let whole = names.iter().zip(starts).map(|((at, name), end)| (*name, &text[at + name.len()..end]));
    let value = |rest: &'a str| {
        let rest = rest.trim().strip_suffix(';').unwrap().trim();
        rest.strip_prefix(':').unwrap_or(rest).trim()
    };
    whole.map(|(name, rest)| (name, value(rest))).collect()
}

fn check_header(header: &str, rule: &Rule) {
    let mut plain = header.to_owned();
    while let Some(at) = plain.find("! ") {
        plain.remove(at + 1);
    }
    let (mut words, mut depth) = (vec![String::new()], 0);
    for sign in plain.chars() {
        depth += i32::from(sign == '[') - i32::from(sign == ']');
        match (sign.is_ascii_whitespace(), depth) {
            (true, 0) => words.push(String::new()),
            (true, _) => {}
            (false, _) => words.last_mut().unwrap().push(sign),
        }
    }
    words.retain(|word| !word.is_empty());
    let [action, protocol, source, source_ports, arrow, destination, destination_ports] = &words[..] else {
        panic!("{header}")
    };
    let expected = match &action[..] {
        "alert" => Action::Alert,
        "pass" => Action::Pass,
        "drop" => Action::Drop,
        "reject" | "rejectsrc" => Action::Reject(Rejected::Source),
        "rejectdst" => Action::Reject(Rejected::Destination),
        _ => Action::Reject(Rejected::Both),
    };
    assert_eq!(rule.action, expected, "{header}");
    let named = match rule.protocol {
        Protocol::Transport(_) => Transport::by_name(protocol).map(Protocol::Transport),
        Protocol::Application(_) => Application::by_name(protocol).map(Protocol::Application),
    };
    assert_eq!(Some(rule.protocol), named, "{header}");
    assert_eq!(rule.direction == Direction::Both, arrow == "<>", "{header}");
    for (group, addresses) in [(source, &rule.source), (destination, &rule.destination)] {
        let mut samples = vec![0u128, u128::from(u32::MAX)];
        each_element(group, &mut |element| {
            samples.extend(address_ends(element).into_iter().flat_map(|n| [n.1.0, n.1.1]))
        });
        for sample in samples.into_iter().flat_map(|n| [n.wrapping_sub(1), n, n.wrapping_add(1)]) {
            for address in
                [u32::try_from(sample).ok().map(|n| IpAddr::V4(n.into())), Some(IpAddr::V6(sample.into()))]
            {
                let Some(address) = address else { continue };
                let holds = in_group(group, &|element| {
                    let (six, (low, high)) = address_ends(element).unwrap();
                    six == address.is_ipv6() && (low..=high).contains(&sample)
                });
                assert_eq!(addresses.contains(address), holds, "{address} in {group}");
            }
        }
    }
    for (group, ports) in [(source_ports, &rule.source_ports), (destination_ports, &rule.destination_ports)] {
        let mut samples = vec![0, u16::MAX];
        each_element(group, &mut |element| samples.extend([port_ends(element).0, port_ends(element).1]));
        for port in samples.into_iter().flat_map(|n| [n.wrapping_sub(1), n, n.wrapping_add(1)]) {
            let holds =
                in_group(group, &|element| (port_ends(element).0..=port_ends(element).1).contains(&port));
            assert_eq!(ports.contains(port), holds, "{port} in {group}");
        }
    }
}

/// What a variable stands for, of those that there are without a file.
fn variable(name: &str) -> &'static str {
    let mut lines = DEFAULTS.lines().filter_map(|line| line.split_once(" = "));
    lines.find(|(known, _)| *known == name).map_or("any", |(_, group)| group)
}

/// Whether a group has something, by its elements.
fn in_group(group: &str, has: &dyn Fn(&str) -> bool) -> bool {
    let group = group.trim();
    if let Some(rest) = group.strip_prefix('!') {
        return !in_group(rest, has);
    }
    if let Some(name) = group.strip_prefix('$') {
        return in_group(variable(name), has);
    }
    let Some(list) = group.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return group.eq_ignore_ascii_case("any") || has(group);
    };
    let elements = elements(list);
    let (without, with): (Vec<_>, Vec<_>) =
        elements.into_iter().partition(|element| element.trim().starts_with('!'));
    (with.is_empty() || with.iter().any(|element| in_group(element, has)))
        && without.iter().all(|element| in_group(element, has))
}

fn each_element(group: &str, see: &mut dyn FnMut(&str)) {
    let group = group.trim().trim_start_matches(['!', ' ']);
    match (group.strip_prefix('$'), group.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))) {
        (Some(name), _) => each_element(variable(name), see),
        (_, Some(list)) => elements(list).iter().for_each(|element| each_element(element, see)),
        _ if group.eq_ignore_ascii_case("any") => {}
        _ => see(group),
    }
}

fn elements(list: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, sign) in list.char_indices() {
        depth += i32::from(sign == '[') - i32::from(sign == ']');
        if sign == ',' && depth == 0 {
            parts.push(&list[from..at]);
            from = at + 1;
        }
    }
    parts.push(&list[from..]);
    parts
}

/// Whether an element is of IPv6, and its first and last address.
fn address_ends(element: &str) -> Option<(bool, (u128, u128))> {
    let number = |text: &str| match text.trim().parse().unwrap() {
        IpAddr::V4(four) => (false, u128::from(u32::from(four))),
        IpAddr::V6(six) => (true, u128::from(six)),
    };
    let element = element.trim();
    if let Some((network, length)) = element.split_once('/') {
        let (six, network) = number(network);
        let bits: u32 = if six { 128 } else { 32 };
        let length: u32 = length.trim().parse().ok()?;
        let host = if bits == length { 0 } else { u128::MAX >> (128 - (bits - length)) };
        return Some((six, (network & !host, network | host)));
    }
    let (low, high) = element.split_once('-').unwrap_or((element, element));
    let ((six, low), (_, high)) = (number(low), number(high));
    Some((six, (low, high)))
}

fn port_ends(element: &str) -> (u16, u16) {
    let (low, high) = element.split_once(':').unwrap_or((element, element));
    let number = |text: &str, open: u16| match text.trim() {
        "" => open,
        text => u16::try_from(number(text).unwrap()).unwrap(),
    };
    (number(low, 0), number(high, u16::MAX))
}

fn number(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let magnitude = hex.map_or_else(|| digits.parse().ok(), |hex| i128::from_str_radix(hex, 16).ok());
    magnitude.map(|magnitude: i128| sign * magnitude)
}

/// A number as a number, a variable by its name.
fn operand(text: &str) -> String {
    number(text.trim()).map_or_else(|| text.trim().to_owned(), |number| number.to_string())
}

/// A text without quotes, and without the `\` before what is escaped.
fn plain(text: &str) -> String {
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let (mut plain, mut signs) = (String::new(), text.chars().peekable());
    while let Some(sign) = signs.next() {
        match signs.peek() {
            Some(next) if sign == '\\' && ";:\"\\".contains(*next) => plain.extend(signs.next()),
            Some(next) if sign == '\\' => {
                plain.extend([sign, *next]);
                signs.next();
            }
            _ => plain.push(sign),
        }
    }
    plain
}

/// The bytes of a content.
fn bytes(text: &str) -> Vec<u8> {
    let text = &text[1..text.len() - 1];
    let mut bytes = Vec::new();
    for (number, part) in text.split('|').enumerate() {
        if number % 2 == 0 {
            bytes.extend(plain(part).bytes());
            continue;
        }
        let digits: Vec<_> = part.bytes().filter(|byte| *byte != b' ').collect();
        let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
    }
    bytes
}

/// What is said of a content.
#[derive(Clone, Default)]
struct Said {
    negated: bool,
    bytes: Vec<u8>,
    nocase: bool,
    starts: bool,
    ends: bool,
    offset: Option<String>,
    depth: Option<String>,
    distance: Option<String>,
    within: Option<String>,
    fast: Option<String>,
}

impl Said {
    fn show(&self) -> String {
        let Said { negated, bytes, nocase, ends, .. } = self;
        let zero = || "0".to_owned();
        let place = if self.distance.is_some() || self.within.is_some() {
            format!("relative {} {:?}", self.distance.clone().unwrap_or_else(zero), self.within)
        } else if self.starts {
            format!("absolute 0 {:?}", Some(bytes.len().to_string()))
        } else {
            format!("absolute {} {:?}", self.offset.clone().unwrap_or_else(zero), self.depth)
        };
        format!("content {negated} {bytes:02x?} nocase {nocase} ends {ends} {place} {:?}", self.fast)
    }
}

/// One match on the way.
enum Part {
    Content(Said),
    Other(String),
}

/// A buffer that was chosen for what follows.
struct Chosen {
    buffer: Buffer,
    steps: Vec<String>,
    /// Where what is asked of it stands, once something is.
    place: Option<usize>,
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    meta: Vec<String>,
    alerts: Option<bool>,
    parts: Vec<(&'static str, Vec<String>, Vec<Part>)>,
    chosen: Option<Chosen>,
    /// Where the last content stands, and the last match.
    last_content: Option<usize>,
    last: Option<usize>,
}

impl Reader {
    fn option(&mut self, name: &str, value: &str) {
        let named = |buffer: &&Buffer| buffer.name() == name || buffer.aliases().contains(&name);
        if let Some(buffer) = Buffer::ALL.iter().find(named) {
            let chosen = Chosen { buffer: *buffer, steps: Vec::new(), place: None };
            self.chosen = (*buffer != Buffer::Payload).then_some(chosen);
            return;
        }
        if let Some(buffer) = Buffer::ALL.iter().find(|buffer| buffer.modifier() == Some(name)) {
            return self.move_content(*buffer);
        }
        let (not, rest) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim()));
        match name {
            "msg" => self.meta.push(format!("msg {}", plain(value))),
            "sid" | "gid" | "rev" | "priority" => self.meta.push(format!("{name} {}", operand(value))),
            "classtype" | "target" => self.meta.push(format!("{name} {value}")),
            "reference" => {
                let (system, id) = value.split_once(',').unwrap();
                self.meta.push(format!(
                    "reference {} {}",
                    system.trim().to_ascii_lowercase(),
                    plain(id.trim())
                ));
            }
            "metadata" => {
                for entry in value.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
                    let (key, value) = entry.split_once(char::is_whitespace).unwrap_or((entry, ""));
                    self.meta.push(format!("metadata {} {}", unescaped(key), unescaped(value.trim())));
                }
            }
            "flow" => self.meta.extend(value.split(',').map(|word| format!("flow {}", word.trim()))),
            "noalert" => self.alerts = Some(false),
            "alert" => self.alerts = Some(true),
            "flowbits" if value == "noalert" => self.alerts = Some(false),
            "flowbits" => {
                let (operation, names) = value.split_once(',').unwrap();
                let names: Vec<_> = names.split('|').map(str::trim).filter(|name| !name.is_empty()).collect();
                self.meta.push(format!("flowbits {} {names:?}", operation.trim()));
            }
            "content" => {
                self.push(Part::Content(Said { negated: not, bytes: bytes(rest), ..Said::default() }));
            }
            "uricontent" => {
                let said = Said { negated: not, bytes: bytes(rest), ..Said::default() };
                self.push_to(Buffer::HttpUri, Part::Content(said));
            }
            "nocase" => self.content().nocase = true,
            "startswith" => self.content().starts = true,
            "endswith" => self.content().ends = true,
            "offset" => self.content().offset = Some(operand(value)),
            "depth" => self.content().depth = Some(operand(value)),
            "distance" => self.content().distance = Some(operand(value)),
            "within" => self.content().within = Some(operand(value)),
            "fast_pattern" => {
                let part =
                    value.split_once(',').map(|(from, len)| format!("{},{}", operand(from), operand(len)));
                self.content().fast = Some(part.unwrap_or_else(|| value.to_owned()));
            }
            "isdataat" => {
                let parts: Vec<_> = rest.split(',').map(str::trim).collect();
                let relative = parts[1..].contains(&"relative");
                if not && relative && operand(parts[0]) == "1" && self.ends() {
                    return;
                }
                self.push_related(relative, format!("isdataat {not} {} {relative}", operand(parts[0])));
            }
            "pcre" => {
                let text = plain_quotes(rest);
                let at = text.rfind('/').unwrap();
                // What a name of a group has behind a comma may hold a slash; such rules are for the first reader alone.
                let letters = text[at + 1..].split(',').next().unwrap().trim();
                let buffer =
                    letters.chars().find_map(|letter| PCRE_BUFFERS.iter().find(|row| row.0 == letter));
                let part = Part::Other(format!("pcre {not} {} {}", &text[1..at], letters.contains('R')));
                match (buffer, &self.chosen) {
                    (Some((_, buffer)), None) => self.push_to(*buffer, part),
                    _ => self.push(part),
                }
            }
            "bsize" => self.push(Part::Other(format!("size {}", comparison(value)))),
            "urilen" => {
                let (size, form) = value.split_once(',').unwrap_or((value, ""));
                let buffer = if form.trim() == "raw" { Buffer::HttpUriRaw } else { Buffer::HttpUri };
                self.push_to(buffer, Part::Other(format!("size {}", comparison(size))));
            }
            "absent" => self.push(Part::Other(format!("absent {}", value == "or_else"))),
            "byte_test" | "byte_jump" | "byte_extract" | "byte_math" | "base64_decode" => {
                let words: Vec<_> = value.split(',').map(str::trim).collect();
                let relative = words.iter().any(|word| word.eq_ignore_ascii_case("relative"));
                self.push_related(relative, number_match(name, &words, relative));
            }
            _ if keyword(name).is_some_and(|keyword| keyword.kind == Kind::Transform) => {
                self.chosen.as_mut().unwrap().steps.push(step(name, value));
            }
            _ => self.meta.extend(test_of(name, value)),
        }
    }

    fn content(&mut self) -> &mut Said {
        let parts = &mut self.parts[self.last_content.unwrap()].2;
        let content = parts.iter_mut().rev().find_map(|part| match part {
            Part::Content(said) => Some(said),
            Part::Other(_) => None,
        });
        content.unwrap()
    }

    fn place(&mut self, buffer: Buffer, steps: &[String]) -> usize {
        let same = |part: &(&str, Vec<String>, Vec<Part>)| part.0 == buffer.name() && part.1 == steps;
        self.parts.iter().position(same).unwrap_or_else(|| {
            self.parts.push((buffer.name(), steps.to_vec(), Vec::new()));
            self.parts.len() - 1
        })
    }

    fn push(&mut self, part: Part) {
        let place = match &mut self.chosen {
            None => self.place(Buffer::Payload, &[]),
            Some(Chosen { place: Some(place), .. }) => *place,
            Some(Chosen { buffer, steps, .. }) => {
                let (buffer, steps) = (*buffer, steps.clone());
                // Each naming of what there may be several of stands for itself.
                let place = if buffer.is_many() {
                    self.parts.push((buffer.name(), steps, Vec::new()));
                    self.parts.len() - 1
                } else {
                    self.place(buffer, &steps)
                };
                self.chosen.as_mut().unwrap().place = Some(place);
                place
            }
        };
        self.push_at(place, part);
    }

    fn push_to(&mut self, buffer: Buffer, part: Part) {
        let place = self.place(buffer, &[]);
        self.push_at(place, part);
    }

    /// What is relative goes to the buffer of the match before it.
    fn push_related(&mut self, relative: bool, part: String) {
        match (&self.chosen, self.last) {
            (None, Some(place)) if relative => self.push_at(place, Part::Other(part)),
            _ => self.push(Part::Other(part)),
        }
    }

    fn push_at(&mut self, place: usize, part: Part) {
        if let Part::Content(_) = part {
            self.last_content = Some(place);
        }
        self.parts[place].2.push(part);
        self.last = Some(place);
    }

    fn move_content(&mut self, buffer: Buffer) {
        let from = self.last_content.unwrap();
        let parts = &mut self.parts[from].2;
        let at = parts.iter().rposition(|part| matches!(part, Part::Content(_))).unwrap();
        let was_last = self.last == Some(from) && at + 1 == parts.len();
        let content = parts.remove(at);
        let to = self.place(buffer, &[]);
        self.parts[to].2.push(content);
        self.last_content = Some(to);
        if was_last {
            self.last = Some(to);
        }
    }

    /// Whether the match before is a content, which then has to stand at the end.
    fn ends(&mut self) -> bool {
        let place = self.chosen.as_ref().map_or(self.last, |chosen| chosen.place);
        match place.and_then(|place| self.parts[place].2.last_mut()) {
            Some(Part::Content(said)) => {
                said.ends = true;
                true
            }
            _ => false,
        }
    }
}

const PCRE_BUFFERS: [(char, Buffer); 13] = [
    ('U', Buffer::HttpUri),
    ('I', Buffer::HttpUriRaw),
    ('P', Buffer::HttpRequestBody),
    ('Q', Buffer::HttpResponseBody),
    ('H', Buffer::HttpHeader),
    ('D', Buffer::HttpHeaderRaw),
    ('M', Buffer::HttpMethod),
    ('C', Buffer::HttpCookie),
    ('S', Buffer::HttpStatusCode),
    ('Y', Buffer::HttpStatusMessage),
    ('V', Buffer::HttpUserAgent),
    ('W', Buffer::HttpHost),
    ('Z', Buffer::HttpHostRaw),
];

fn plain_quotes(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text).trim()
}

fn unescaped(text: &str) -> String {
    // Quotes are part of it here.
    plain(&format!("\"{text}\""))
}

/// A number out of a buffer: bytes and offset, and what they are tested or jumped with.
fn number_match(name: &str, words: &[&str], relative: bool) -> String {
    let named = |wanted: &str| {
        let mut cut = words.iter().filter_map(|word| word.split_once(char::is_whitespace));
        cut.find(|(word, _)| *word == wanted).map(|(_, value)| operand(value.trim()))
    };
    match name {
        "byte_test" => {
            let (not, sign) =
                words[1].strip_prefix('!').map_or((false, words[1]), |rest| (true, rest.trim()));
            let sign = if sign.is_empty() { "=" } else { sign };
            let [bytes, value, offset] = [words[0], words[2], words[3]].map(operand);
            format!("byte_test {bytes} {not} {sign} {value} {offset} {relative}")
        }
        "byte_math" => {
            let [bytes, offset, value] = ["bytes", "offset", "rvalue"].map(|word| named(word).unwrap());
            format!("byte_math {bytes} {offset} {value} {} {relative}", named("result").unwrap())
        }
        "byte_extract" => {
            let [bytes, offset] = [words[0], words[1]].map(operand);
            let multiplier = named("multiplier").unwrap_or_else(|| "1".to_owned());
            format!("byte_extract {bytes} {offset} {} {multiplier} {relative}", words[2])
        }
        "byte_jump" => {
            let [bytes, offset] = [words[0], words[1]].map(operand);
            let [multiplier, post] = [("multiplier", "1"), ("post_offset", "0")]
                .map(|(word, without)| named(word).unwrap_or_else(|| without.to_owned()));
            format!("byte_jump {bytes} {offset} {multiplier} {post} {relative}")
        }
        _ => {
            let bytes = named("bytes");
            format!(
                "base64_decode {bytes:?} {} {relative}",
                named("offset").unwrap_or_else(|| "0".to_owned())
            )
        }
    }
}

/// A transform with its values.
fn step(name: &str, value: &str) -> String {
    let words = plain_quotes(value).split(',').map(|part| part.trim().trim_matches('"').trim());
    let words: Vec<Vec<&str>> = words.map(|part| part.split_whitespace().collect()).collect();
    let of = |wanted: &[&str]| {
        let named = |words: &&Vec<&str>| words.len() == 2 && wanted.contains(&words[0]);
        words.iter().filter(named).map(|words| words[1]).next_back()
    };
    let offset = of(&["offset"]).map_or_else(|| "0".to_owned(), operand);
    match name {
        "xor" => {
            let key = words.iter().find(|words| words.len() == 1).unwrap()[0];
            format!("xor {offset} {:02x?}", bytes(&format!("\"|{key}|\"")))
        }
        "pcrexform" => {
            let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            format!("pcrexform {}", quoted.unwrap_or(value))
        }
        "from_base64" => {
            let mode = match of(&["mode", "mode:"]) {
                Some("rfc2045") => Base64Mode::Rfc2045,
                Some("strict") => Base64Mode::Strict,
                _ => Base64Mode::Rfc4648,
            };
            let bytes: Option<u32> = of(&["bytes"]).map(|bytes| number(bytes).unwrap().try_into().unwrap());
            format!("from_base64 {bytes:?} {offset} {mode:?}")
        }
        _ => name.to_owned(),
    }
}

/// A test of a number, as [`Comparison`] shows itself.
fn comparison(text: &str) -> String {
    let text = text.trim();
    let value = |text: &str| {
        let text = text.trim().to_ascii_lowercase();
        let units = [("kib", 10), ("mib", 20), ("gib", 30), ("kb", 10), ("mb", 20), ("gb", 30)];
        let unit = units.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, *bits)));
        let (digits, bits) = unit.unwrap_or((&text, 0));
        number(digits.trim()).unwrap() << bits
    };
    if let Some((mask, wanted)) = text.strip_prefix('&').and_then(|rest| rest.split_once('=')) {
        let (name, mask) = mask.strip_suffix('!').map_or(("Masked", mask), |mask| ("NotMasked", mask));
        return format!("{name} {{ mask: {}, value: {} }}", value(mask), value(wanted));
    }
    if let Some((low, high)) = text.split_once("<>").or_else(|| text.split_once('-'))
        && !low.trim().is_empty()
    {
        let (name, low) = low.trim().strip_prefix('!').map_or(("Between", low), |low| ("Outside", low));
        return format!("{name}({}, {})", value(low), value(high));
    }
    let signs = [
        ("<=", "AtMost"),
        (">=", "AtLeast"),
        ("!=", "NotEqual"),
        ("!", "NotEqual"),
        ("<", "Less"),
        (">", "Greater"),
        ("=", "Equal"),
        ("", "Equal"),
    ];
    let (rest, name) = signs.iter().find_map(|(sign, name)| Some((text.strip_prefix(sign)?, name))).unwrap();
    format!("{name}({})", value(rest))
}

/// A test of packets, a mark, or how often a rule reports.
fn test_of(name: &str, value: &str) -> Option<String> {
    let parts: Vec<_> = value.split(',').map(str::trim).collect();
    let of = |wanted: &str| {
        let mut cut = parts.iter().filter_map(|part| part.split_once(char::is_whitespace));
        cut.find(|(word, _)| *word == wanted).map(|(_, value)| value.trim())
    };
    let track = || match of("track").unwrap() {
        "by_src" | "ip_src" => "Source",
        "by_dst" | "ip_dst" => "Destination",
        "by_both" => "Both",
        "by_rule" => "Rule",
        "by_flow" => "Flow",
        "ip_pair" => "Pair",
        _ => "Transaction",
    };
    let operation = |word: &str| match word {
        "set" => "Set",
        "unset" => "Unset",
        "isset" => "IsSet",
        "toggle" => "Toggle",
        _ => "IsNotSet",
    };
    Some(match name {
        "ttl" => format!("packet Ttl({})", comparison(value)),
        "id" => format!("packet IpId({})", comparison(value)),
        "fragoffset" => format!("packet FragmentOffset({})", comparison(value)),
        "seq" | "tcp.seq" => format!("packet Sequence({})", comparison(value)),
        "ack" | "tcp.ack" => format!("packet Acknowledgement({})", comparison(value)),
        "window" | "tcp.window" => format!("packet Window({})", comparison(value)),
        "tcp.mss" => format!("packet Mss({})", comparison(value)),
        "tcp.wscale" => format!("packet WindowScale({})", comparison(value)),
        "itype" => format!("packet IcmpType({})", comparison(value)),
        "icode" => format!("packet IcmpCode({})", comparison(value)),
        "dsize" => format!("packet PayloadBytes({})", comparison(value)),
        "ip_proto" => "packet IpProtocol".to_owned(),
        "sameip" => "packet SameAddress".to_owned(),
        "icmp_id" => format!("packet IcmpId({})", operand(plain_quotes(value))),
        "icmp_seq" => format!("packet IcmpSequence({})", operand(plain_quotes(value))),
        "ipopts" if value == "any" => "packet IpOption(Any)".to_owned(),
        "ipopts" => {
            let option = IpOption::NAMES.iter().find(|(name, _)| *name == value).unwrap();
            format!("packet IpOption(Type({}))", option.1)
        }
        "tos" => {
            let (negated, value) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim()));
            let hex = value.strip_prefix('x').map(|digits| i128::from_str_radix(digits, 16).unwrap());
            let value = hex.or_else(|| number(value)).unwrap();
            format!("packet Tos {{ negated: {negated}, value: {value} }}")
        }
        "flags" | "tcp.flags" => format!("packet TcpFlags({})", flags(value, &Bits::TCP)),
        "fragbits" => format!("packet FragmentBits({})", flags(value, &Bits::FRAGMENT)),
        "stream_size" => {
            let side = match parts[0] {
                "client" => "Client",
                "server" => "Server",
                "both" => "Both",
                _ => "Either",
            };
            let bytes = comparison(&format!("{}{}", parts[1], parts[2]));
            format!("packet StreamSize(StreamSize {{ side: {side}, bytes: {bytes} }})")
        }
        "flowint" => {
            let value = || match number(parts[2]) {
                Some(number) => format!("Number({number})"),
                None => format!("Name({:?})", parts[2]),
            };
            let operation = match parts[1] {
                "isset" => "IsSet".to_owned(),
                "isnotset" | "notset" => "IsNotSet".to_owned(),
                "=" => format!("Set({})", value()),
                "+" => format!("Add({})", value()),
                "-" => format!("Subtract({})", value()),
                "<" => format!("Test(Less, {})", value()),
                "<=" => format!("Test(AtMost, {})", value()),
                ">" => format!("Test(Greater, {})", value()),
                ">=" => format!("Test(AtLeast, {})", value()),
                "==" => format!("Test(Equal, {})", value()),
                _ => format!("Test(NotEqual, {})", value()),
            };
            format!("flowint {} {operation}", parts[0])
        }
        "xbits" => {
            let expire = of("expire").map_or_else(|| DEFAULT_XBIT_SECONDS.to_string(), operand);
            format!("xbit {} {} {} {expire}", operation(parts[0]), parts[1], track())
        }
        "hostbits" => {
            let whose = if parts.get(2) == Some(&"dst") { "Destination" } else { "Source" };
            format!("xbit {} {} {whose} {DEFAULT_XBIT_SECONDS}", operation(parts[0]), parts[1])
        }
        "threshold" => {
            let seconds = || operand(of("seconds").unwrap());
            let kind = match of("type").unwrap() {
                "limit" => format!("Limit {{ seconds: {} }}", seconds()),
                "threshold" => format!("Each {{ seconds: {} }}", seconds()),
                "both" => format!("Once {{ seconds: {} }}", seconds()),
                _ => format!("Backoff {{ multiplier: {} }}", operand(of("multiplier").unwrap())),
            };
            format!("threshold {kind} {} {}", track(), operand(of("count").unwrap()))
        }
        "detection_filter" => {
            let unique = of("unique_on").map(|port| match port {
                "src_port" => UniqueOn::SourcePort,
                _ => UniqueOn::DestinationPort,
            });
            let [count, seconds] = ["count", "seconds"].map(|word| operand(of(word).unwrap()));
            format!("detection_filter {} {count} {seconds} {unique:?}", track())
        }
        "tag" => {
            let scope = match (parts[0], parts.get(3)) {
                ("session", _) => "Session",
                (_, Some(&"src")) => "Source",
                _ => "Destination",
            };
            let unit = match parts.get(2) {
                Some(&"bytes") => "Bytes",
                Some(&"seconds") => "Seconds",
                _ => "Packets",
            };
            let count = parts.get(1).map_or_else(|| DEFAULT_TAG_PACKETS.to_string(), |count| operand(count));
            format!("tag {scope} {count} {unit}")
        }
        _ => return None,
    })
}

/// A test of flags, as [`Bits`] shows itself.
fn flags(text: &str, letters: &[(char, u8)]) -> String {
    let (asked, ignored) = text.split_once(',').unwrap_or((text, ""));
    let bits = |text: &str| {
        let plain = text.to_ascii_uppercase().replace('1', "C").replace('2', "E");
        let bit = |letter: char| letters.iter().find(|row| row.0 == letter).map_or(0, |row| row.1);
        plain.chars().map(bit).sum::<u8>()
    };
    let mode = match asked.chars().find(|sign| "+*!-=".contains(*sign)) {
        Some('+') => BitsMode::All,
        Some('*') => BitsMode::Any,
        Some('!' | '-') => BitsMode::NotAll,
        _ => BitsMode::Exactly,
    };
    format!("{:?}", Bits { mode, bits: bits(asked), ignored: bits(ignored) })
}

/// What the rule has of what the text says about the rule itself. What it has without being told is left out.
fn meta_of(rule: &Rule, said: &[String]) -> Vec<String> {
    let mut meta = vec![
        format!("msg {}", rule.msg),
        format!("sid {}", rule.sid),
        format!("gid {}", rule.gid),
        format!("rev {}", rule.rev),
        format!("priority {}", rule.priority),
    ];
    meta.retain(|one| {
        let (name, value) = one.split_once(' ').unwrap();
        let is_said = said.iter().any(|said| said.split(' ').next() == Some(name));
        assert!(is_said || name == "priority" || ["", "1", "0"].contains(&value), "{one}");
        is_said
    });
    meta.extend(rule.classtype.iter().map(|class| format!("classtype {class}")));
    meta.extend(rule.target.map(|target| match target {
        Target::Source => "target src_ip".to_owned(),
        Target::Destination => "target dest_ip".to_owned(),
    }));
    meta.extend(rule.references.iter().map(|one| format!("reference {} {}", one.system, one.id)));
    meta.extend(rule.metadata.iter().map(|(key, value)| format!("metadata {key} {value}")));
    let to_server = |said: &[String]| said.iter().any(|said| said == "flow from_client");
    let to_client = |said: &[String]| said.iter().any(|said| said == "flow from_server");
    let flow = &rule.flow;
    let words = [
        flow.direction.map(|way| match way {
            Way::ToServer => {
                if to_server(said) {
                    "from_client"
                } else {
                    "to_server"
                }
            }
            Way::ToClient => {
                if to_client(said) {
                    "from_server"
                } else {
                    "to_client"
                }
            }
        }),
        flow.state.map(|state| match state {
            State::Established => "established",
            State::NotEstablished => "not_established",
            State::Stateless => "stateless",
        }),
        flow.stream.map(|only| if only == Only::Assembled { "only_stream" } else { "no_stream" }),
        flow.fragments.map(|only| if only == Only::Assembled { "only_frag" } else { "no_frag" }),
    ];
    meta.extend(words.into_iter().flatten().map(|word| format!("flow {word}")));
    meta.extend(rule.packet.iter().map(|test| match test {
        // By name or number.
        PacketTest::IpProtocol(_) => "packet IpProtocol".to_owned(),
        test => format!("packet {test:?}"),
    }));
    meta.extend(rule.flowints.iter().map(|one| format!("flowint {} {:?}", one.name, one.operation)));
    meta.extend(
        rule.xbits.iter().map(|one| {
            format!("xbit {:?} {} {:?} {}", one.operation, one.name, one.track, one.expire_seconds)
        }),
    );
    meta.extend(rule.threshold.map(|one| format!("threshold {:?} {:?} {}", one.kind, one.track, one.count)));
    meta.extend(rule.detection_filter.map(|one| {
        format!("detection_filter {:?} {} {} {:?}", one.track, one.count, one.seconds, one.unique_on)
    }));
    meta.extend(rule.tags.iter().map(|one| format!("tag {:?} {} {:?}", one.scope, one.count, one.unit)));
    meta.extend(rule.flowbits.iter().map(|bit| {
        let (operation, names) = match bit {
            Flowbit::IsSet(names) => ("isset", names),
            Flowbit::IsNotSet(names) => ("isnotset", names),
            Flowbit::Set(names) => ("set", names),
            Flowbit::Unset(names) => ("unset", names),
            Flowbit::Toggle(names) => ("toggle", names),
        };
        format!("flowbits {operation} {names:?}")
    }));
    meta
}

/// What the rule asks of a buffer, in the words of [`Reader`].
fn slot_of(rule: &Rule, buffer: &BufferMatches) -> Slot {
    let steps = buffer.transforms.iter().map(step_of).collect();
    (buffer.buffer.name(), steps, buffer.matches.iter().map(|one| match_of(rule, one)).collect())
}

fn step_of(step: &Transform) -> String {
    let name = match step {
        Transform::DotPrefix => "dotprefix",
        Transform::StripWhitespace => "strip_whitespace",
        Transform::CompressWhitespace => "compress_whitespace",
        Transform::ToLowercase => "to_lowercase",
        Transform::ToUppercase => "to_uppercase",
        Transform::ToMd5 => "to_md5",
        Transform::ToSha1 => "to_sha1",
        Transform::ToSha256 => "to_sha256",
        Transform::UrlDecode => "url_decode",
        Transform::HeaderLowercase => "header_lowercase",
        Transform::StripPseudoHeaders => "strip_pseudo_headers",
        Transform::Xor { offset, key } => return format!("xor {offset} {key:02x?}"),
        Transform::Pcre { pattern } => return format!("pcrexform {pattern}"),
        Transform::FromBase64 { bytes, offset, mode } => {
            return format!("from_base64 {bytes:?} {offset} {mode:?}");
        }
        _ => "another",
    };
    name.to_owned()
}

fn match_of(rule: &Rule, one: &Match) -> String {
    fn value<N: ToString + Copy>(rule: &Rule, operand: Operand<N>) -> String {
        match operand {
            Operand::Value(number) => number.to_string(),
            Operand::Variable(Variable(index)) => rule.variables[usize::from(index)].clone(),
        }
    }
    let number = |number: &Number| (value(rule, number.bytes), value(rule, number.offset), number.relative);
    let name = |variable: Variable| &rule.variables[usize::from(variable.0)];
    match one {
        Match::Content(content) => {
            let mut said = Said {
                negated: content.negated,
                bytes: content.pattern.clone(),
                nocase: content.nocase,
                ends: content.ends,
                ..Said::default()
            };
            match content.position {
                Position::Absolute { offset, depth } => {
                    said.offset = Some(value(rule, offset));
                    said.depth = depth.map(|depth| value(rule, depth));
                }
                Position::Relative { distance, within } => {
                    said.distance = Some(value(rule, distance));
                    said.within = within.map(|within| value(rule, within));
                }
            }
            said.fast = content.fast_pattern.map(|fast| match fast {
                FastPattern::Whole => String::new(),
                FastPattern::Only => "only".to_owned(),
                FastPattern::Part { offset, length } => format!("{offset},{length}"),
            });
            said.show()
        }
        Match::Pcre(pcre) => format!("pcre {} {} {}", pcre.negated, pcre.pattern, pcre.relative),
        Match::DataAt(at) => format!("isdataat {} {} {}", at.negated, value(rule, at.offset), at.relative),
        Match::Size(size) => format!("size {size:?}"),
        Match::ByteTest(test) => {
            let (bytes, offset, relative) = number(&test.number);
            let sign = match test.operator {
                TestOperator::Less => "<",
                TestOperator::AtMost => "<=",
                TestOperator::Greater => ">",
                TestOperator::AtLeast => ">=",
                TestOperator::Equal => "=",
                TestOperator::And => "&",
                TestOperator::Xor => "^",
            };
            format!(
                "byte_test {bytes} {} {sign} {} {offset} {relative}",
                test.negated,
                value(rule, test.value)
            )
        }
        Match::ByteJump(jump) => {
            let (bytes, offset, relative) = number(&jump.number);
            let post = value(rule, jump.post_offset);
            format!("byte_jump {bytes} {offset} {} {post} {relative}", jump.multiplier)
        }
        Match::ByteExtract(extract) => {
            let (bytes, offset, relative) = number(&extract.number);
            format!(
                "byte_extract {bytes} {offset} {} {} {relative}",
                name(extract.result),
                extract.multiplier
            )
        }
        Match::ByteMath(math) => {
            let (bytes, offset, relative) = number(&math.number);
            format!("byte_math {bytes} {offset} {} {} {relative}", value(rule, math.value), name(math.result))
        }
        Match::Base64Decode(decode) => {
            let bytes = decode.bytes.map(|bytes| bytes.to_string());
            format!("base64_decode {bytes:?} {} {}", decode.offset, decode.relative)
        }
        Match::Absent { or_else } => format!("absent {or_else}"),
        _ => "another".to_owned(),
    }
}
