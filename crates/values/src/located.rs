//! Texts that know their source position, and errors that name it.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// A configuration text that knows its source position, so that its parser can report
/// `acl.rules:12:5`. Equal if the texts are equal.
#[derive(Clone, Debug, Default)]
pub struct Located {
    text: String,
    origin: Option<Origin>,
}

/// Source position of a [`Located`] text.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Origin {
    /// Name of the source, normally a file name.
    pub source: String,
    /// Line of the text's first character, from 1.
    pub line: u32,
    /// Column of the text's first character, in characters from 1.
    pub column: u32,
    /// Characters of the text written as escape sequences, in ascending order: byte offset in the
    /// text, and length of the sequence in the source, in characters.
    pub escapes: Vec<(u32, u32)>,
}

/// A position in a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Name of the source; `None` if the text's origin is unknown (lines then count within the
    /// text).
    pub source: Option<Arc<str>>,
    /// Line, from 1.
    pub line: u32,
    /// Column, in characters from 1.
    pub column: u32,
}

/// A fault in a configuration, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The position; `None` for the whole configuration.
    pub position: Option<Position>,
    /// Number of characters at fault, at least 1.
    pub width: u32,
    /// One line, without the position.
    pub message: String,
}

impl Located {
    /// Returns a text of known origin.
    pub fn with_origin(text: impl Into<String>, origin: Origin) -> Self {
        Self { text: text.into(), origin: Some(origin) }
    }

    /// Returns the text with escape sequences resolved.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the position of the text's start, if known.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Returns the source position of byte `offset` of the text; offsets past the end mean the end.
    pub fn position(&self, offset: usize) -> Position {
        let (mut line, mut column) = self.origin.as_ref().map_or((1, 1), |o| (o.line, o.column));
        let mut escapes = self.origin.iter().flat_map(|o| &o.escapes).peekable();
        for (at, c) in self.text.char_indices().take_while(|(at, _)| *at < offset) {
            let escape = escapes.next_if(|(start, _)| *start as usize == at);
            match (escape, c) {
                (Some((_, width)), _) => column += width,
                (None, '\n') => (line, column) = (line + 1, 1),
                (None, _) => column += 1,
            }
        }
        let source = self.origin.as_ref().map(|o| o.source.as_str().into());
        Position { source, line, column }
    }

    /// Returns an error about the bytes `at` of the text.
    pub fn error(&self, at: Range<usize>, message: impl fmt::Display) -> ConfigError {
        let (start, end) = (self.position(at.start), self.position(at.end));
        let width = if start.line == end.line { end.column.saturating_sub(start.column).max(1) } else { 1 };
        ConfigError { position: Some(start), width, message: message.to_string() }
    }

    /// Returns a text and its origin as a deserializer passes them to [`Located`].
    ///
    /// Pass it to `visit_map` when `deserialize_newtype_struct` is called with the name
    /// [`Located::TOKEN`].
    ///
    /// # Errors
    /// None in practice: an origin can always be encoded.
    pub fn into_map<'de, E: de::Error>(self) -> Result<impl MapAccess<'de, Error = E>, E> {
        let origin = serde_json::to_string(&self.origin).map_err(E::custom)?;
        Ok(MapDeserializer::new([("text", self.text), ("origin", origin)].into_iter()))
    }

    /// The name that [`Located`] passes to a deserializer to get its origin.
    pub const TOKEN: &'static str = "$rivulet::Located";
}

impl Deref for Located {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

impl AsRef<str> for Located {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for Located {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), origin: None }
    }
}

impl From<String> for Located {
    fn from(text: String) -> Self {
        Self { text, origin: None }
    }
}

impl PartialEq for Located {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Located {}

impl Serialize for Located {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(Self::TOKEN, LocatedVisitor)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}:")?;
        }
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl ConfigError {
    /// Returns an error about the configuration as a whole.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { position: None, width: 1, message: message.to_string() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = &self.position {
            write!(f, "{position}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

pub(crate) struct LocatedVisitor;

impl<'de> Visitor<'de> for LocatedVisitor {
    type Value = Located;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Located, E> {
        Ok(text.into())
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Located, E> {
        Ok(text.into())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Located, D::Error> {
        deserializer.deserialize_string(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Located, A::Error> {
        let encoded = Encoded::deserialize(MapAccessDeserializer::new(map))?;
        let origin = serde_json::from_str(&encoded.origin).map_err(de::Error::custom)?;
        Ok(Located { text: encoded.text, origin })
    }
}

/// The map of [`Located::into_map`].
#[derive(serde::Deserialize)]
struct Encoded {
    text: String,
    origin: String,
}
