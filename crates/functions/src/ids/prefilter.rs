//! The prefilter: a multi-pattern search for literals without which a rule cannot match.

use mpm::{Cursor, LITERAL_MAX, Literal, LiteralSet, LiteralSetError};
use signatures::{Buffer, Content, ContentPosition, Operand, PayloadMatch, Rule};

/// A search for one literal per rule. A rule is identified by its index, or by its use (`T`).
pub struct Prefilter<T = u32> {
    set: LiteralSet,
    /// Rule and length of each literal.
    rules: Vec<(T, usize)>,
}

/// A literal, and its rule.
pub type PrefilterEntry<T = u32> = (Literal, T);

impl<T: Copy> Prefilter<T> {
    /// Builds the search.
    pub fn new(entries: Vec<PrefilterEntry<T>>) -> Result<Prefilter<T>, LiteralSetError> {
        let rules = entries.iter().map(|(literal, rule)| (*rule, literal.bytes.len())).collect();
        Ok(Prefilter { set: LiteralSet::new(entries.into_iter().map(|(literal, _)| literal))?, rules })
    }

    /// Reports each rule with a literal in the text.
    #[inline]
    pub fn find(&self, text: &[u8], mut found: impl FnMut(PatternHit<T>)) {
        self.set.find(text, |literal, end| found(self.hit(literal, end)));
    }

    /// Continues the search of a stream, and reports each rule with a literal that ends in the
    /// piece.
    #[inline]
    pub fn scan(&self, cursor: &mut Cursor, piece: &[u8], mut found: impl FnMut(PatternHit<T>)) {
        self.set.scan(cursor, piece, |literal, end| found(self.hit(literal, end)));
    }

    /// Returns the memory used, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.set.memory_bytes() + size_of_val(&self.rules[..])) as u64
    }

    fn hit(&self, literal: u32, end: usize) -> PatternHit<T> {
        let (rule, len) = self.rules[literal as usize];
        PatternHit { rule, end, len }
    }
}

/// An occurrence of a literal.
#[derive(Clone, Copy, Debug)]
pub struct PatternHit<T = u32> {
    /// Its rule.
    pub rule: T,
    /// End offset from the beginning of the text or piece.
    pub end: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// Returns the literal of a content: all of it, or its beginning.
fn literal(content: &Content) -> Literal {
    let bytes = &content.pattern[..content.pattern.len().min(LITERAL_MAX)];
    if content.nocase { Literal::nocase(bytes) } else { Literal::exact(bytes) }
}

/// Returns the rule's anchor in streams and packets: its fast pattern, if the payload contains it
/// unchanged.
pub fn anchor(rule: &Rule) -> Option<Literal> {
    let (buffer, at) = rule.fast_pattern()?;
    let buffer = &rule.buffers[buffer];
    match &buffer.matches[at] {
        PayloadMatch::Content(content)
            if buffer.buffer == Buffer::Payload && buffer.transforms.is_empty() =>
        {
            Some(literal(content))
        }
        _ => None,
    }
}

/// The distance from the beginning of a packet within which a literal counts as near.
pub const NEAR_BYTES: usize = 256;

/// Returns the rule's longest literal that must be near the beginning of the payload, and the
/// maximum offset of its end.
pub fn near(rule: &Rule) -> Option<(Literal, usize)> {
    let payload =
        rule.buffers.iter().filter(|one| one.buffer == Buffer::Payload && one.transforms.is_empty());
    let contents = payload.flat_map(|one| &one.matches).filter_map(|one| match one {
        PayloadMatch::Content(content) if !content.negated => Some(content),
        _ => None,
    });
    let near = contents.filter_map(|content| match content.position {
        ContentPosition::Absolute { offset: Operand::Value(offset), depth: Some(Operand::Value(depth)) } => {
            let reach = usize::from(offset) + usize::from(depth);
            (reach <= NEAR_BYTES).then(|| (literal(content), reach))
        }
        _ => None,
    });
    near.max_by_key(|(literal, _)| literal.bytes.len()).filter(|(literal, _)| literal.bytes.len() >= 2)
}

/// Returns the literal to search for in a message: a content of one of its buffers that is likely
/// to be rare. It only excludes messages that the rule cannot match.
pub fn in_message(rule: &Rule) -> Option<(Buffer, Literal)> {
    let marked = rule.fast_pattern();
    let mut best: Option<((u8, u8, usize), &Content, Buffer)> = None;
    for (b, buffer) in rule.buffers.iter().enumerate().filter(|(_, one)| one.transforms.is_empty()) {
        for (m, one) in buffer.matches.iter().enumerate() {
            let PayloadMatch::Content(content) = one else { continue };
            let Some(rank) = rank(buffer.buffer).filter(|_| !content.negated) else { continue };
            let len = content.pattern.len().min(LITERAL_MAX);
            let class = match () {
                // A literal of few bytes is found everywhere.
                () if len < 4 => 0,
                // The author of the rule knows which one is rare.
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

/// Ranks buffers by how rare their contents are likely to be; `None`: not searched.
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
