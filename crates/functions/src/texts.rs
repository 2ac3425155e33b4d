//! Configuration values that are one or more texts, possibly from files.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use values::Located;

/// One or more texts: `"..."`, `file("x.rules")`, `["...", "..."]`.
#[derive(Clone, Debug, Default)]
pub struct TextList(pub Vec<Located>);

impl<'de> Deserialize<'de> for TextList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextList, D::Error> {
        // Requests a text with its position; a deserializer of a list returns the list.
        deserializer.deserialize_newtype_struct(Located::TOKEN, TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = TextList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, `file(\"...\")`, or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TextList, E> {
        Ok(TextList(vec![text.into()]))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<TextList, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextList, A::Error> {
        Ok(TextList(vec![Located::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<TextList, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(TextList(texts))
    }
}
