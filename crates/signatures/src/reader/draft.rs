//! A rule while it is read.

use crate::buffer::Buffer;
use crate::classification::Classifications;
use crate::payload::{BufferMatches, Content, DataAt, MATCHES_MAX, Match, Operand, VARIABLES_MAX, Variable};
use crate::reader::Given;
use crate::reader::check;
use crate::reader::header::Header;
use crate::rule::{DEFAULT_GID, DEFAULT_PRIORITY};
use crate::text::{Piece, Read, Wrong};
use crate::transform::Transform;
use crate::{Action, Flow, PacketTest, Rule, RuleError};

/// A rule as far as it is read.
pub(crate) struct Draft<'c> {
    pub rule: Rule,
    pub classes: &'c Classifications,
    /// The keywords that stand once at most and were seen.
    once: Vec<&'static str>,
    /// The buffer that was chosen last; none for the payload.
    chosen: Option<Chosen>,
    /// Where the last content is, and which of its modifiers were seen.
    last_content: Option<(usize, usize)>,
    modifiers: Vec<&'static str>,
    /// In which of the rule's buffers the last match is.
    last_match: Option<usize>,
    matches: usize,
}

/// A buffer that was chosen for what follows.
struct Chosen {
    buffer: Buffer,
    transforms: Vec<Transform>,
    /// Where the choice stands in the text.
    at: usize,
    /// Its place in the rule, once something was asked of it.
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
            alerts: action != Action::Pass,
            flow: Flow::default(),
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

    /// Notes a keyword that may stand once only.
    pub fn once(&mut self, given: Given<'_>) -> Read<()> {
        if self.once.contains(&given.name) {
            return Err(given.repeated());
        }
        self.once.push(given.name);
        Ok(())
    }

    pub fn has(&self, keyword: &str) -> bool {
        self.once.contains(&keyword)
    }

    /// Adds a test of packets.
    pub fn packet(&mut self, given: Given<'_>, test: PacketTest) -> Read<()> {
        if self.rule.packet.len() == MATCHES_MAX {
            return Err(given.word.error(RuleError::TooMany { what: "tests in a rule", limit: MATCHES_MAX }));
        }
        self.rule.packet.push(test);
        Ok(())
    }

    /// Chooses the buffer for what follows.
    pub fn choose(&mut self, buffer: Buffer, given: Given<'_>) -> Read<()> {
        self.leave()?;
        let decoded = || self.rule.buffers.iter().flat_map(|b| &b.matches);
        if buffer == Buffer::Base64Data && !decoded().any(|m| matches!(m, Match::Base64Decode(_))) {
            return Err(given.alone("a `base64_decode`"));
        }
        self.chosen = match buffer {
            Buffer::Payload => None,
            _ => Some(Chosen { buffer, transforms: Vec::new(), at: given.word.at, place: None }),
        };
        Ok(())
    }

    /// Adds a step to the buffer that was chosen.
    pub fn transform(&mut self, given: Given<'_>, transform: Transform) -> Read<()> {
        match &mut self.chosen {
            Some(Chosen { transforms, place: None, .. }) => {
                transforms.push(transform);
                Ok(())
            }
            _ => Err(given.alone("the name of a buffer, right")),
        }
    }

    /// Puts the last content, so far in the payload, into another buffer.
    pub fn move_content(&mut self, buffer: Buffer, given: Given<'_>) -> Read<()> {
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
        // The order of buffers is that of their first match.
        self.rule.buffers.pop_if(|last| last.matches.is_empty());
        let to = self.place(buffer, &[]);
        self.rule.buffers[to].matches.push(content);
        self.last_content = Some((to, self.rule.buffers[to].matches.len() - 1));
        if was_last {
            self.last_match = Some(to);
        }
        Ok(())
    }

    /// Adds a match to the buffer that was chosen last.
    pub fn push(&mut self, given: Given<'_>, one: Match) -> Read<()> {
        let place = match &self.chosen {
            None => self.place(Buffer::Payload, &[]),
            Some(Chosen { place: Some(place), .. }) => *place,
            Some(Chosen { buffer, transforms, .. }) => {
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

    /// Adds a match to a buffer whichever was chosen: one whose keyword names the buffer.
    pub fn push_to(&mut self, given: Given<'_>, buffer: Buffer, one: Match) -> Read<()> {
        let place = self.place(buffer, &[]);
        self.push_at(given, place, one)
    }

    /// Adds a match that may be about the last one. With a chosen buffer it is of that buffer;
    /// else, if relative, of the buffer that the last match is of.
    pub fn push_related(&mut self, given: Given<'_>, relative: bool, one: Match) -> Read<()> {
        match (&self.chosen, self.last_match) {
            (None, Some(place)) if relative => self.push_at(given, place, one),
            _ => self.push(given, one),
        }
    }

    /// Marks the last match as ending its buffer, if it is a content that this
    /// `isdataat:!1,relative` is about.
    pub fn ends(&mut self, test: DataAt) -> bool {
        let says_ends = test == DataAt { offset: Operand::Value(1), relative: true, negated: true };
        let place = match &self.chosen {
            Some(chosen) => chosen.place,
            None => self.last_match,
        };
        let last = place.and_then(|place| self.rule.buffers[place].matches.last_mut());
        match last {
            Some(Match::Content(content)) if says_ends => {
                content.ends = true;
                true
            }
            _ => false,
        }
    }

    /// The content that modifiers are about.
    pub fn content(&mut self, given: Given<'_>) -> Read<&mut Content> {
        let place = self.last_content.and_then(|(b, m)| self.rule.buffers.get_mut(b)?.matches.get_mut(m));
        match place {
            Some(Match::Content(content)) => Ok(content),
            _ => Err(given.alone("a `content`")),
        }
    }

    /// Notes a modifier that a content may have once only.
    pub fn modify(&mut self, given: Given<'_>, excludes: &[&'static str]) -> Read<()> {
        if self.modifiers.contains(&given.name) {
            return Err(given.repeated());
        }
        if let Some(other) = excludes.iter().copied().find(|name| self.modifiers.contains(name)) {
            return Err(given.word.error(RuleError::Conflict { one: given.name, other }));
        }
        self.modifiers.push(given.name);
        Ok(())
    }

    /// The buffer that the last content is in.
    pub fn content_buffer(&self) -> Option<Buffer> {
        self.last_content.map(|(place, _)| self.rule.buffers[place].buffer)
    }

    /// The buffer that was chosen for what follows, if one was.
    pub fn chosen_buffer(&self) -> Option<Buffer> {
        self.chosen.as_ref().map(|chosen| chosen.buffer)
    }

    /// A variable that was defined before.
    pub fn variable(&self, name: Piece<'_>) -> Read<Variable> {
        let place = self.rule.variables.iter().position(|known| known == name.text);
        place.and_then(|place| u8::try_from(place).ok()).map(Variable).ok_or_else(|| {
            name.wrong("a number, or a variable that `byte_extract` or `byte_math` set before")
        })
    }

    /// Defines a variable.
    pub fn define(&mut self, name: Piece<'_>) -> Read<Variable> {
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
                Ok(Variable(index))
            }
            _ => Err(name.error(RuleError::TooMany { what: "variables in a rule", limit: VARIABLES_MAX })),
        }
    }

    /// The whole rule, if its parts go together.
    pub fn finish(mut self, text: Piece<'_>) -> Read<Rule> {
        self.leave()?;
        if !self.has("sid") {
            return Err(text.trim().error(RuleError::Missing { what: "`sid`" }));
        }
        self.rule.buffers.retain(|buffer| !buffer.matches.is_empty());
        check::together(&mut self.rule).map_err(|error| text.trim().error(error))?;
        Ok(self.rule)
    }

    /// Leaves the buffer that was chosen; something must have been asked of it.
    fn leave(&self) -> Read<()> {
        match &self.chosen {
            Some(Chosen { place: None, buffer, at, .. }) => {
                Err(Wrong { at: *at, error: RuleError::UnusedBuffer { name: buffer.name() } })
            }
            _ => Ok(()),
        }
    }

    fn push_at(&mut self, given: Given<'_>, place: usize, one: Match) -> Read<()> {
        if self.matches == MATCHES_MAX {
            return Err(given
                .word
                .error(RuleError::TooMany { what: "matches in a rule", limit: MATCHES_MAX }));
        }
        self.matches += 1;
        let is_content = matches!(one, Match::Content(_));
        let matches = &mut self.rule.buffers[place].matches;
        matches.push(one);
        self.last_match = Some(place);
        if is_content {
            self.last_content = Some((place, matches.len() - 1));
            self.modifiers.clear();
        }
        Ok(())
    }

    /// The place of a buffer in the rule, which is made if there is none.
    fn place(&mut self, buffer: Buffer, transforms: &[Transform]) -> usize {
        let same = |known: &BufferMatches| known.buffer == buffer && known.transforms == transforms;
        match self.rule.buffers.iter().position(same) {
            Some(place) => place,
            None => self.new_place(buffer, transforms.to_vec()),
        }
    }

    fn new_place(&mut self, buffer: Buffer, transforms: Vec<Transform>) -> usize {
        self.rule.buffers.push(BufferMatches { buffer, transforms, matches: Vec::new() });
        self.rule.buffers.len() - 1
    }
}
