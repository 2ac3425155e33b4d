//! A rule in progress.

use crate::buffer::Buffer;
use crate::classification::Classifications;
use crate::payload::{
    BufferMatches, ByteVariable, Content, DataAt, MATCHES_MAX, Operand, PayloadMatch, VARIABLES_MAX,
};
use crate::reader::KeywordUse;
use crate::reader::check;
use crate::reader::header::Header;
use crate::rule::{DEFAULT_GID, DEFAULT_PRIORITY};
use crate::text::{ParseResult, Piece, SyntaxError};
use crate::transform::BufferTransform;
use crate::{FlowOptions, PacketTest, Rule, RuleAction, RuleError};

/// A rule in progress.
pub(crate) struct Draft<'c> {
    pub rule: Rule,
    pub classes: &'c Classifications,
    /// The unique keywords seen so far.
    once: Vec<&'static str>,
    /// The selected buffer; none for the payload.
    chosen: Option<ChosenBuffer>,
    /// The place of the last content, and its modifiers so far.
    last_content: Option<(usize, usize)>,
    modifiers: Vec<&'static str>,
    /// The index of the buffer with the last match.
    last_match: Option<usize>,
    matches: usize,
}

/// The buffer selected for the following keywords.
struct ChosenBuffer {
    buffer: Buffer,
    transforms: Vec<BufferTransform>,
    /// Offset of the selection in the text.
    at: usize,
    /// The index in the rule, once it has a match.
    place: Option<usize>,
}

impl<'c> Draft<'c> {
    pub fn new(header: Header, classes: &'c Classifications) -> Self {
        let Header { action, protocol, source, source_ports, direction, destination, destination_ports } =
            header;
        let rule = Rule {
            action,
            protocol,
            source,
            source_ports,
            direction,
            destination,
            destination_ports,
            msg: String::new(),
            sid: 0,
            gid: DEFAULT_GID,
            rev: 0,
            classtype: None,
            priority: DEFAULT_PRIORITY,
            references: Vec::new(),
            metadata: Vec::new(),
            target: None,
            alerts: action != RuleAction::Pass,
            flow: FlowOptions::default(),
            packet: Vec::new(),
            application: Vec::new(),
            buffers: Vec::new(),
            variables: Vec::new(),
            flowbits: Vec::new(),
            flowints: Vec::new(),
            xbits: Vec::new(),
            threshold: None,
            detection_filter: None,
            tags: Vec::new(),
        };
        Self {
            rule,
            classes,
            once: Vec::new(),
            chosen: None,
            last_content: None,
            modifiers: Vec::new(),
            last_match: None,
            matches: 0,
        }
    }

    /// Records a keyword that must be unique.
    pub fn once(&mut self, given: KeywordUse<'_>) -> ParseResult<()> {
        if self.once.contains(&given.name) {
            return Err(given.repeated());
        }
        self.once.push(given.name);
        Ok(())
    }

    pub fn has(&self, keyword: &str) -> bool {
        self.once.contains(&keyword)
    }

    /// Adds a packet test.
    pub fn packet(&mut self, given: KeywordUse<'_>, test: PacketTest) -> ParseResult<()> {
        if self.rule.packet.len() == MATCHES_MAX {
            return Err(given.word.error(RuleError::TooMany { what: "tests in a rule", limit: MATCHES_MAX }));
        }
        self.rule.packet.push(test);
        Ok(())
    }

    /// Selects the buffer for the following keywords.
    pub fn choose(&mut self, buffer: Buffer, given: KeywordUse<'_>) -> ParseResult<()> {
        self.leave()?;
        let decoded = || self.rule.buffers.iter().flat_map(|b| &b.matches);
        if buffer == Buffer::Base64Data && !decoded().any(|m| matches!(m, PayloadMatch::Base64Decode(_))) {
            return Err(given.alone("a `base64_decode`"));
        }
        self.chosen = match buffer {
            Buffer::Payload => None,
            _ => Some(ChosenBuffer { buffer, transforms: Vec::new(), at: given.word.at, place: None }),
        };
        Ok(())
    }

    /// Adds a transform to the selected buffer.
    pub fn transform(&mut self, given: KeywordUse<'_>, transform: BufferTransform) -> ParseResult<()> {
        match &mut self.chosen {
            Some(ChosenBuffer { transforms, place: None, .. }) => {
                transforms.push(transform);
                Ok(())
            }
            _ => Err(given.alone("the name of a buffer, right")),
        }
    }

    /// Moves the last content, so far in the payload, to another buffer.
    pub fn move_content(&mut self, buffer: Buffer, given: KeywordUse<'_>) -> ParseResult<()> {
        if self.chosen.is_some() {
            let (one, other) = ("a buffer named for all that follows", "one named behind a content");
            return Err(given.word.error(RuleError::Conflict { one, other }));
        }
        let Some((from, index)) = self.last_content else { return Err(given.alone("a `content`")) };
        if self.rule.buffers[from].buffer != Buffer::Payload {
            return Err(given.alone("a `content` that has no buffer yet"));
        }
        let was_last = self.last_match == Some(from) && index + 1 == self.rule.buffers[from].matches.len();
        let content = self.rule.buffers[from].matches.remove(index);
        // Buffers are in the order of their first match.
        self.rule.buffers.pop_if(|last| last.matches.is_empty());
        let to = self.place(buffer, &[]);
        self.rule.buffers[to].matches.push(content);
        self.last_content = Some((to, self.rule.buffers[to].matches.len() - 1));
        if was_last {
            self.last_match = Some(to);
        }
        Ok(())
    }

    /// Adds a match to the selected buffer.
    pub fn push(&mut self, given: KeywordUse<'_>, one: PayloadMatch) -> ParseResult<()> {
        let place = match &self.chosen {
            None => self.place(Buffer::Payload, &[]),
            Some(ChosenBuffer { place: Some(place), .. }) => *place,
            Some(ChosenBuffer { buffer, transforms, .. }) => {
                let (buffer, transforms) = (*buffer, transforms.clone());
                let place = match buffer.is_many() {
                    true => self.new_place(buffer, transforms),
                    false => self.place(buffer, &transforms),
                };
                if let Some(chosen) = &mut self.chosen {
                    chosen.place = Some(place);
                }
                place
            }
        };
        self.push_at(given, place, one)
    }

    /// Adds a match to the buffer that its keyword implies, whatever is selected.
    pub fn push_to(&mut self, given: KeywordUse<'_>, buffer: Buffer, one: PayloadMatch) -> ParseResult<()> {
        let place = self.place(buffer, &[]);
        self.push_at(given, place, one)
    }

    /// Adds a match that may refer to the last one: to the selected buffer, or, if relative and
    /// none is selected, to the buffer of the last match.
    pub fn push_related(
        &mut self,
        given: KeywordUse<'_>,
        relative: bool,
        one: PayloadMatch,
    ) -> ParseResult<()> {
        match (&self.chosen, self.last_match) {
            (None, Some(place)) if relative => self.push_at(given, place, one),
            _ => self.push(given, one),
        }
    }

    /// Marks the last match as ending its buffer, if it is a content that this
    /// `isdataat:!1,relative` refers to.
    pub fn ends(&mut self, test: DataAt) -> bool {
        let says_ends = test == DataAt { offset: Operand::Value(1), relative: true, negated: true };
        let place = match &self.chosen {
            Some(chosen) => chosen.place,
            None => self.last_match,
        };
        let last = place.and_then(|place| self.rule.buffers[place].matches.last_mut());
        match last {
            Some(PayloadMatch::Content(content)) if says_ends => {
                content.ends = true;
                true
            }
            _ => false,
        }
    }

    /// Returns the content that modifiers refer to.
    pub fn content(&mut self, given: KeywordUse<'_>) -> ParseResult<&mut Content> {
        let place = self.last_content.and_then(|(b, m)| self.rule.buffers.get_mut(b)?.matches.get_mut(m));
        match place {
            Some(PayloadMatch::Content(content)) => Ok(content),
            _ => Err(given.alone("a `content`")),
        }
    }

    /// Records a content modifier, which must be unique.
    pub fn modify(&mut self, given: KeywordUse<'_>, excludes: &[&'static str]) -> ParseResult<()> {
        if self.modifiers.contains(&given.name) {
            return Err(given.repeated());
        }
        if let Some(other) = excludes.iter().copied().find(|name| self.modifiers.contains(name)) {
            return Err(given.word.error(RuleError::Conflict { one: given.name, other }));
        }
        self.modifiers.push(given.name);
        Ok(())
    }

    /// Returns the buffer of the last content.
    pub fn content_buffer(&self) -> Option<Buffer> {
        self.last_content.map(|(place, _)| self.rule.buffers[place].buffer)
    }

    /// Returns the selected buffer, if any.
    pub fn chosen_buffer(&self) -> Option<Buffer> {
        self.chosen.as_ref().map(|chosen| chosen.buffer)
    }

    /// Returns a variable defined before.
    pub fn variable(&self, name: Piece<'_>) -> ParseResult<ByteVariable> {
        let place = self.rule.variables.iter().position(|known| known == name.text);
        place.and_then(|place| u8::try_from(place).ok()).map(ByteVariable).ok_or_else(|| {
            name.wrong("a number, or a variable that `byte_extract` or `byte_math` set before")
        })
    }

    /// Defines a variable.
    pub fn define(&mut self, name: Piece<'_>) -> ParseResult<ByteVariable> {
        let first = name.text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
        let rest = name.text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        if !first || !rest {
            return Err(name.wrong("the name of a variable, which begins with a letter"));
        }
        if self.rule.variables.iter().any(|known| known == name.text) {
            return Err(name.wrong("a variable that is not set yet"));
        }
        let next = self.rule.variables.len();
        match u8::try_from(next) {
            Ok(index) if next < VARIABLES_MAX => {
                self.rule.variables.push(name.text.to_owned());
                Ok(ByteVariable(index))
            }
            _ => Err(name.error(RuleError::TooMany { what: "variables in a rule", limit: VARIABLES_MAX })),
        }
    }

    /// Checks and returns the whole rule.
    pub fn finish(mut self, text: Piece<'_>) -> ParseResult<Rule> {
        self.leave()?;
        if !self.has("sid") {
            return Err(text.trim().error(RuleError::Missing { what: "`sid`" }));
        }
        self.rule.buffers.retain(|buffer| !buffer.matches.is_empty());
        check::together(&mut self.rule).map_err(|error| text.trim().error(error))?;
        Ok(self.rule)
    }

    /// Leaves the selected buffer, which must have a match.
    fn leave(&self) -> ParseResult<()> {
        match &self.chosen {
            Some(ChosenBuffer { place: None, buffer, at, .. }) => {
                Err(SyntaxError { at: *at, error: RuleError::UnusedBuffer { name: buffer.name() } })
            }
            _ => Ok(()),
        }
    }

    fn push_at(&mut self, given: KeywordUse<'_>, place: usize, one: PayloadMatch) -> ParseResult<()> {
        if self.matches == MATCHES_MAX {
            return Err(given
                .word
                .error(RuleError::TooMany { what: "matches in a rule", limit: MATCHES_MAX }));
        }
        self.matches += 1;
        let is_content = matches!(one, PayloadMatch::Content(_));
        let matches = &mut self.rule.buffers[place].matches;
        matches.push(one);
        self.last_match = Some(place);
        if is_content {
            self.last_content = Some((place, matches.len() - 1));
            self.modifiers.clear();
        }
        Ok(())
    }

    /// Returns the index of a buffer in the rule, adding it if necessary.
    fn place(&mut self, buffer: Buffer, transforms: &[BufferTransform]) -> usize {
        let same = |known: &BufferMatches| known.buffer == buffer && known.transforms == transforms;
        match self.rule.buffers.iter().position(same) {
            Some(place) => place,
            None => self.new_place(buffer, transforms.to_vec()),
        }
    }

    fn new_place(&mut self, buffer: Buffer, transforms: Vec<BufferTransform>) -> usize {
        self.rule.buffers.push(BufferMatches { buffer, transforms, matches: Vec::new() });
        self.rule.buffers.len() - 1
    }
}
