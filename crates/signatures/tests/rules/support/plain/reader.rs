//! The options of a rule, in order: facts about the rule, and tests of buffers.

use signatures::*;

use super::text::{bytes, operand, plain, plain_quotes, unescaped};
use super::values::{comparison, number_match, step, test_of};

/// The options of a content.
#[derive(Clone, Default)]
pub struct Said {
    pub negated: bool,
    pub bytes: Vec<u8>,
    pub nocase: bool,
    pub starts: bool,
    pub ends: bool,
    pub offset: Option<String>,
    pub depth: Option<String>,
    pub distance: Option<String>,
    pub within: Option<String>,
    pub fast: Option<String>,
}

impl Said {
    /// Returns a canonical text.
    pub fn show(&self) -> String {
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

/// One match.
pub enum Part {
    Content(Said),
    Other(String),
}

/// The buffer selected for the following keywords.
struct Chosen {
    buffer: Buffer,
    steps: Vec<String>,
    /// Its index, once it has a match.
    place: Option<usize>,
}

/// The parsed options so far.
#[derive(Default)]
pub struct Reader {
    /// Facts about the rule itself.
    pub meta: Vec<String>,
    pub alerts: Option<bool>,
    /// The tests of each buffer: its name, its transforms, and its matches.
    pub parts: Vec<(&'static str, Vec<String>, Vec<Part>)>,
    chosen: Option<Chosen>,
    /// Indices of the last content and the last match.
    last_content: Option<usize>,
    last: Option<usize>,
}

impl Reader {
    /// Parses the next option.
    pub fn option(&mut self, name: &str, value: &str) {
        if let Some((.., buffer)) = HTTP.iter().find(|row| row.0 == name) {
            return self.move_content(*buffer);
        }
        // Old names have no dot after the protocol.
        let dotted = name.replacen('_', ".", 1);
        let named = |buffer: &&Buffer| buffer.name() == name || buffer.name() == dotted;
        let also = |buffer: &&Buffer| buffer.aliases().contains(&name);
        if let Some(buffer) = Buffer::ALL.iter().find(named).or_else(|| Buffer::ALL.iter().find(also)) {
            let chosen = Chosen { buffer: *buffer, steps: Vec::new(), place: None };
            self.chosen = (*buffer != Buffer::Payload).then_some(chosen);
            return;
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
            "tls.subject" | "tls.issuerdn" | "tls.fingerprint" => {
                let buffer = match name {
                    "tls.subject" => Buffer::TlsCertSubject,
                    "tls.issuerdn" => Buffer::TlsCertIssuer,
                    _ => Buffer::TlsCertFingerprint,
                };
                let nocase = name == "tls.fingerprint";
                let said = Said { negated: not, bytes: bytes(rest), nocase, ..Said::default() };
                self.push_to(buffer, Part::Content(said));
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
                // The name of a group after a comma may contain a slash; only the first parser
                // supports such rules.
                let letters = text[at + 1..].split(',').next().unwrap().trim();
                let buffer = letters.chars().find_map(|letter| HTTP.iter().find(|row| row.1 == letter));
                let part = Part::Other(format!("pcre {not} {} {}", &text[1..at], letters.contains('R')));
                match (buffer, &self.chosen) {
                    (Some((.., buffer)), None) => self.push_to(*buffer, part),
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
            _ if keyword(name).is_some_and(|keyword| keyword.kind == KeywordKind::Transform) => {
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
                // Each naming of a buffer that can exist several times is separate.
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

    /// Adds a relative match to the buffer of the previous match.
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

    /// Marks the previous match as ending its buffer, if it is a content.
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

/// Keywords, and flags of expressions, that select a buffer.
const HTTP: [(&str, char, Buffer); 13] = [
    ("http_uri", 'U', Buffer::HttpUri),
    ("http_raw_uri", 'I', Buffer::HttpUriRaw),
    ("http_client_body", 'P', Buffer::HttpRequestBody),
    ("http_server_body", 'Q', Buffer::HttpResponseBody),
    ("http_header", 'H', Buffer::HttpHeader),
    ("http_raw_header", 'D', Buffer::HttpHeaderRaw),
    ("http_method", 'M', Buffer::HttpMethod),
    ("http_cookie", 'C', Buffer::HttpCookie),
    ("http_stat_code", 'S', Buffer::HttpStatusCode),
    ("http_stat_msg", 'Y', Buffer::HttpStatusMessage),
    ("http_user_agent", 'V', Buffer::HttpUserAgent),
    ("http_host", 'W', Buffer::HttpHost),
    ("http_raw_host", 'Z', Buffer::HttpHostRaw),
];
