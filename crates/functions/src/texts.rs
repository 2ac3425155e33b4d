//! Texts of a configuration that may be files, and several.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use values::Located;

/// One text, or several: `"..."`, `file("x.rules")`, `["...", "..."]`.
#[derive(Clone, Debug, Default)]
pub struct Texts(pub Vec<Located>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        // Asks for a text that knows its place; a deserializer that has a list hands out the list.
        deserializer.deserialize_newtype_struct(Located::TOKEN, TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, `file(\"...\")`, or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
        Ok(Texts(vec![text.into()]))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Texts, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Texts, A::Error> {
        Ok(Texts(vec![Located::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(Texts(texts))
    }
}
