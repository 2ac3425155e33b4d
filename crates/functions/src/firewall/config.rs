//! The firewall's configuration.

use std::collections::BTreeMap;
use std::fmt;

use nf::config::Located;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::rule::Action;

/// The firewall's configuration; see its README for what the keys do.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The rules, in order.
    pub rules: RuleTexts,
    /// What is done with valid packets that no rule matches.
    pub default: Action,
    /// Whether only the first packets of flows are judged, and the others follow them.
    pub stateful: bool,
    /// How closely TCP connections are followed.
    pub tcp: Tcp,
    /// Whether a TCP connection may begin in the middle.
    pub pickup: Pickup,
    /// Names for tags, 1 to 255, that rules may use.
    pub tags: BTreeMap<String, u8>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            rules: RuleTexts::default(),
            default: Action::Deny,
            stateful: true,
            tcp: Tcp::Loose,
            pickup: Pickup::Allow,
            tags: BTreeMap::new(),
        }
    }
}

/// How closely TCP connections are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tcp {
    /// By their flow alone.
    Loose,
    /// By their sequence numbers: a segment outside its window is dropped.
    Strict,
}

/// What a TCP flow is that does not open with a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pickup {
    /// A new one, like any other.
    Allow,
    /// Invalid.
    Drop,
}

/// One text with rules, or several: `"..."`, `file("x.rules")`, `["...", "..."]`.
#[derive(Clone, Debug, Default)]
pub struct RuleTexts(pub Vec<Located>);

impl<'de> Deserialize<'de> for RuleTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RuleTexts, D::Error> {
        // Asks for a text that knows its place; a deserializer that has a list hands out the list.
        deserializer.deserialize_newtype_struct(Located::TOKEN, TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = RuleTexts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rules: a string, `file(\"...\")`, or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RuleTexts, E> {
        Ok(RuleTexts(vec![text.into()]))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<RuleTexts, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RuleTexts, A::Error> {
        Ok(RuleTexts(vec![Located::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RuleTexts, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(RuleTexts(texts))
    }
}
