//! The one search for many patterns: which rules may hold, told by what they cannot hold without.

use mpm::{Cursor, LITERAL_MAX, Literal, Set, SetError};
use signatures::{Buffer, Content, Match, Operand, Position, Rule};

/// Rules that look at the same bytes, each told by a literal. A rule stands for itself, or for what
/// is to become of it (`T`).
pub struct Prefilter<T = u32> {
    set: Set,
    /// For each literal, its rule and its length.
    rules: Vec<(T, usize)>,
}

/// A rule's literal, and the rule.
pub type Entry<T = u32> = (Literal, T);

impl<T: Copy> Prefilter<T> {
    /// A search for these.
    pub fn new(entries: Vec<Entry<T>>) -> Result<Prefilter<T>, SetError> {
        let rules = entries.iter().map(|(literal, rule)| (*rule, literal.bytes.len())).collect();
        Ok(Prefilter { set: Set::new(entries.into_iter().map(|(literal, _)| literal))?, rules })
    }

    /// Tells of each rule whose literal is in the text.
    #[inline]
    pub fn find(&self, text: &[u8], mut found: impl FnMut(Hit<T>)) {
        self.set.find(text, |literal, end| found(self.hit(literal, end)));
    }

    /// Goes on with a stream, and tells of each rule whose literal ends in the piece.
    #[inline]
    pub fn scan(&self, cursor: &mut Cursor, piece: &[u8], mut found: impl FnMut(Hit<T>)) {
        self.set.scan(cursor, piece, |literal, end| found(self.hit(literal, end)));
    }

    /// What it takes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.set.memory_bytes() + size_of_val(&self.rules[..])) as u64
    }

    fn hit(&self, literal: u32, end: usize) -> Hit<T> {
        let (rule, len) = self.rules[literal as usize];
        Hit { rule, end, len }
    }
}

/// A literal that was found.
#[derive(Clone, Copy, Debug)]
pub struct Hit<T = u32> {
    /// Its rule.
    pub rule: T,
    /// Where it ends, in bytes from the beginning of the text or piece.
    pub end: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// What to search for in a content: all of it, or its beginning.
fn literal(content: &Content) -> Literal {
    let bytes = &content.pattern[..content.pattern.len().min(LITERAL_MAX)];
    if content.nocase { Literal::nocase(bytes) } else { Literal::exact(bytes) }
}

/// The rule's anchor in streams and packets: its fast pattern, if that is in the payload as it is.
pub fn anchor(rule: &Rule) -> Option<Literal> {
    let (buffer, at) = rule.fast_pattern()?;
    let buffer = &rule.buffers[buffer];
    match &buffer.matches[at] {
        Match::Content(content) if buffer.buffer == Buffer::Payload && buffer.transforms.is_empty() => {
            Some(literal(content))
        }
        _ => None,
    }
}

/// The most bytes from the beginning of a packet in which a literal is said to be near it.
pub const NEAR_BYTES: usize = 256;

/// A literal that must stand near the beginning of the payload, and how many bytes from there it
/// ends at most: the longest that the rule has.
pub fn near(rule: &Rule) -> Option<(Literal, usize)> {
    let payload =
        rule.buffers.iter().filter(|one| one.buffer == Buffer::Payload && one.transforms.is_empty());
    let contents = payload.flat_map(|one| &one.matches).filter_map(|one| match one {
        Match::Content(content) if !content.negated => Some(content),
        _ => None,
    });
    let near = contents.filter_map(|content| match content.position {
        Position::Absolute { offset: Operand::Value(offset), depth: Some(Operand::Value(depth)) } => {
            let reach = usize::from(offset) + usize::from(depth);
            (reach <= NEAR_BYTES).then(|| (literal(content), reach))
        }
        _ => None,
    });
    near.max_by_key(|(literal, _)| literal.bytes.len()).filter(|(literal, _)| literal.bytes.len() >= 2)
}

/// What to search a message for: a content of one of its buffers that is likely to be rare. It says
/// nothing of what the rule means, only where it cannot hold.
pub fn in_message(rule: &Rule) -> Option<(Buffer, Literal)> {
    let marked = rule.fast_pattern();
    let mut best: Option<((u8, u8, usize), &Content, Buffer)> = None;
    for (b, buffer) in rule.buffers.iter().enumerate().filter(|(_, one)| one.transforms.is_empty()) {
        for (m, one) in buffer.matches.iter().enumerate() {
            let Match::Content(content) = one else { continue };
            let Some(rank) = rank(buffer.buffer).filter(|_| !content.negated) else { continue };
            let len = content.pattern.len().min(LITERAL_MAX);
            let class = match () {
                // One of a few bytes is found everywhere.
                () if len < 4 => 0,
                // Whoever wrote the rule knows what is rare.
                () if marked == Some((b, m)) => 2,
                () => 1,
            };
            if best.is_none_or(|(other, ..)| (class, rank, len) > other) {
                best = Some(((class, rank, len), content, buffer.buffer));
            }
        }
    }
    best.map(|(_, content, buffer)| (buffer, literal(content)))
}

/// How rare what is found in the buffer is likely to be; none: not searched.
fn rank(buffer: Buffer) -> Option<u8> {
    use Buffer as B;
    Some(match buffer {
        B::Base64Data | B::Payload => return None,
        B::HttpMethod | B::HttpProtocol | B::HttpStatusCode => 0,
        B::HttpHeaderNames
        | B::HttpStatusMessage
        | B::HttpStart
        | B::HttpRequestLine
        | B::HttpResponseLine => 1,
        B::HttpHeader | B::HttpHeaderRaw | B::HttpRequestHeader | B::HttpResponseHeader => 2,
        _ => 3,
    })
}
