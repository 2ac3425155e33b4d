//! Secrets, such as keys.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A secret, such as a key or a password, that no message and no debug output shows.
///
/// A file that it is read from must be private to its owner. The policy's deserializer checks this
/// for a newtype struct named [`Secret::TOKEN`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The name that a secret passes to a deserializer.
    pub const TOKEN: &'static str = "$rivulet::Secret";

    /// Decodes a secret written in hexadecimal digits.
    ///
    /// # Errors
    /// It does not consist of pairs of hexadecimal digits and white space, after an optional `0x`.
    /// The message has no position: showing an error with its source would show the secret.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        let text = self.0.strip_prefix("0x").unwrap_or(&self.0);
        let digits: Option<Vec<u8>> = text
            .chars()
            .filter(|c| !c.is_whitespace())
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        match digits.as_deref().map(<[u8]>::as_chunks::<2>) {
            Some((pairs, [])) => Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect()),
            _ => Err("a key must consist of pairs of hexadecimal digits".to_owned()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        deserializer.deserialize_newtype_struct(Secret::TOKEN, SecretVisitor)
    }
}

struct SecretVisitor;

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret in quotes, or `file(\"...\")`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Secret, E> {
        Ok(Secret(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Secret, E> {
        Ok(Secret(text))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Secret, D::Error> {
        deserializer.deserialize_string(self)
    }
}
