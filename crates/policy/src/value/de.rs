//! Serde deserialization of a [`Value`]. An error points at the innermost key or value at fault.
//!
//! | the value | for an integer | for a string or anything |
//! |---|---|---|
//! | amount (`10s`, `64KiB`, `1Gbps`) | its base units (ns, bytes, bits/s, packets/s) | as written |
//! | integer, float, bool | itself | itself |
//! | address, prefix, range | | as written |
//! | word | | a string; an enum's variant |

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use values::{Located, Secret};

use super::{ConfigEntry, Value, ValueKind};
use crate::diagnostic::Diagnostic;
use crate::files::FileAccess;
use crate::literal::ConfigLiteral;
use crate::source::Span;
use crate::suggest::similar;

/// A configuration that does not deserialize, with the position of the fault.
///
/// The error type of [`Value`] as a `Deserializer`; [`crate::Policy::config`] turns it into a
/// [`Diagnostic`].
#[derive(Debug)]
pub struct Error {
    /// One line.
    pub message: String,
    /// The remedy, if known.
    pub help: Option<String>,
    /// The innermost key or value at fault; `None` for the whole.
    pub span: Option<Span>,
}

impl Error {
    fn new(message: String, help: Option<String>) -> Self {
        Self { message, help, span: None }
    }

    /// Sets the position unless there is one.
    fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }

    /// Removes a file's text from the message: it may be long, or confidential.
    fn without(self, text: &str) -> Self {
        Self { message: self.message.replace(&format!("`{text}`"), "the text of a file"), ..self }
    }

    pub(crate) fn diagnostic(self, default: Span) -> Diagnostic {
        let diagnostic = Diagnostic::error(self.message, self.span.unwrap_or(default));
        match self.help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), None)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Map => "an object".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Str(text) => format!("`{text}`"),
            Unexpected::Unsigned(n) => format!("the number {n}"),
            Unexpected::Signed(n) => format!("the number {n}"),
            other => other.to_string(),
        };
        let expected = match expected.to_string().as_str() {
            "a sequence" => "a list".to_owned(),
            "a map" => "an object".to_owned(),
            "u8" => format!("a number from 0 to {}", u8::MAX),
            "u16" => format!("a number from 0 to {}", u16::MAX),
            "u32" => format!("a number from 0 to {}", u32::MAX),
            "u64" | "usize" => "a non-negative whole number".to_owned(),
            "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number in range".to_owned(),
            "f32" | "f64" => "a number".to_owned(),
            other => other.strip_prefix("struct ").map_or(other.to_owned(), |_| "an object".to_owned()),
        };
        Self::new(format!("expected {expected}, found {found}"), None)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown key `{field}`"), one_of(field, expected, "no keys are allowed here"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown word `{variant}`"), one_of(variant, expected, "no words are allowed here"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the key `{field}` is missing"), Some(format!("add `{field}: ...`")))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format!("the key `{field}` occurs twice"), None)
    }
}

fn one_of(word: &str, expected: &[&str], none: &str) -> Option<String> {
    if let Some(near) = similar(word, expected.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let all: Vec<String> = expected.iter().map(|e| format!("`{e}`")).collect();
    Some(if all.is_empty() { none.to_owned() } else { format!("expected one of {}", all.join(", ")) })
}

/// Integers of all sizes are deserialized like the largest; serde's visitors check the range.
macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_u64(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for &'de Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let result = match &self.kind {
            ValueKind::Literal(literal) => visit_literal(literal, visitor),
            ValueKind::Text(text) => visitor.visit_borrowed_str(text.as_str()),
            ValueKind::File(text, _) => {
                visitor.visit_borrowed_str(text.as_str()).map_err(|error: Error| error.without(text))
            }
            ValueKind::Word(word) => visitor.visit_borrowed_str(word),
            ValueKind::List(values) => visitor.visit_seq(Values(values.iter())),
            ValueKind::Object(entries) => visitor.visit_map(Entries { rest: entries.iter(), value: None }),
        };
        result.map_err(|e| e.at(self.span))
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.kind {
            ValueKind::Literal(ConfigLiteral::Amount(amount, _)) => {
                visitor.visit_u64(amount.value).map_err(|e: Error| e.at(self.span))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    integers! { deserialize_u8 deserialize_u16 deserialize_u32 deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let result = match &self.kind {
            _ if name == Secret::TOKEN => self.secret(visitor),
            ValueKind::Text(text) | ValueKind::File(text, _) if name == Located::TOKEN => {
                Located::clone(text).into_map().and_then(|map| visitor.visit_map(map))
            }
            _ => visitor.visit_newtype_struct(self),
        };
        result.map_err(|e| e.at(self.span))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let result = match &self.kind {
            ValueKind::Word(word) => visitor.visit_enum(Variant { word, span: self.span, value: None }),
            ValueKind::Text(text) => visitor.visit_enum(Variant { word: text, span: self.span, value: None }),
            ValueKind::File(text, _) => {
                let variant = Variant { word: text, span: self.span, value: None };
                visitor.visit_enum(variant).map_err(|error: Error| error.without(text))
            }
            ValueKind::Object(entries) if entries.len() == 1 => visitor.visit_enum(Variant {
                word: &entries[0].key,
                span: entries[0].key_span,
                value: Some(&entries[0].value),
            }),
            _ => return self.deserialize_any(visitor),
        };
        result.map_err(|e| e.at(self.span))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier
    }
}

impl Value {
    /// Deserializes a secret. Errors do not show it.
    fn secret<'de, V: Visitor<'de>>(&'de self, visitor: V) -> Result<V::Value, Error> {
        let text = match &self.kind {
            ValueKind::Text(text) => text,
            ValueKind::File(text, access) => {
                if let Some(access) = access.as_ref().filter(|access| !access.is_private()) {
                    let FileAccess { path, mode } = &**access;
                    let message = format!(
                        "the file of a secret must be its owner's alone: `{path}` has mode {mode:04o}, so its group or \
                         others may read or write it"
                    );
                    return Err(Error::new(message, Some(format!("chmod 600 {path}"))));
                }
                text
            }
            _ => {
                let message = "expected a secret, in quotes or as `file(\"...\")`".to_owned();
                return Err(Error::new(message, None));
            }
        };
        // A visitor's message may quote the text.
        visitor.visit_borrowed_str(text.as_str()).map_err(|error: Error| error.without(text))
    }
}

fn visit_literal<'de, V: Visitor<'de>>(literal: &'de ConfigLiteral, visitor: V) -> Result<V::Value, Error> {
    match literal {
        ConfigLiteral::Bool(value) => visitor.visit_bool(*value),
        ConfigLiteral::Integer(value) => match (u64::try_from(*value), i64::try_from(*value)) {
            (Ok(value), _) => visitor.visit_u64(value),
            (_, Ok(value)) => visitor.visit_i64(value),
            _ => visitor.visit_i128(*value),
        },
        ConfigLiteral::Float(value) => visitor.visit_f64(*value),
        ConfigLiteral::Amount(_, text) => visitor.visit_borrowed_str(text),
        ConfigLiteral::Address(_)
        | ConfigLiteral::Prefix(_)
        | ConfigLiteral::AddressRange(..)
        | ConfigLiteral::NumberRange(..)
        | ConfigLiteral::Mac(_) => visitor.visit_string(literal.to_string()),
    }
}

struct Values<'de>(std::slice::Iter<'de, Value>);

impl<'de> SeqAccess<'de> for Values<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(value) = self.0.next() else { return Ok(None) };
        seed.deserialize(value).map(Some).map_err(|e| e.at(value.span))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Entries<'de> {
    rest: std::slice::Iter<'de, ConfigEntry>,
    /// The value of the most recent key.
    value: Option<&'de Value>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(entry) = self.rest.next() else { return Ok(None) };
        self.value = Some(&entry.value);
        let key: StrDeserializer<'_, Error> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|e| e.at(entry.key_span))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some(value) = self.value.take() else {
            return Err(de::Error::custom("a value was requested before its key"));
        };
        seed.deserialize(value).map_err(|e| e.at(value.span))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// An enum's variant: a word, or `{ word: value }`.
struct Variant<'de> {
    word: &'de str,
    span: Span,
    value: Option<&'de Value>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let word: StrDeserializer<'_, Error> = self.word.into_deserializer();
        let variant = seed.deserialize(word).map_err(|e| e.at(self.span))?;
        Ok((variant, self))
    }
}

impl<'de> Variant<'de> {
    fn content(self) -> Result<&'de Value, Error> {
        self.value.ok_or_else(|| {
            let message = format!("`{}` needs a value", self.word);
            Error::new(message, Some(format!("write `{{ {}: ... }}`", self.word))).at(self.span)
        })
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.value {
            None => Ok(()),
            Some(value) => Err(Error::new(format!("`{}` takes no value", self.word), None).at(value.span)),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        let value = self.content()?;
        seed.deserialize(value).map_err(|e| e.at(value.span))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        self.content()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.content()?.deserialize_any(visitor)
    }
}
