//! Values with all names resolved: the input of an NF's configuration.

mod de;

use std::sync::Arc;

use values::Located;

use crate::files::FileAccess;
use crate::literal::ConfigLiteral;
use crate::source::Span;

pub use de::Error as ConfigFault;

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The value itself.
    pub kind: ValueKind,
    /// Its position. For a whole configuration block, that of the name that the block belongs to.
    pub span: Span,
}

/// Kinds of values.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueKind {
    /// A literal of one word.
    Literal(ConfigLiteral),
    /// A string, with its origin.
    Text(Arc<Located>),
    /// The text of a file, with its origin and, if known, its access rights.
    File(Arc<Located>, Option<Arc<FileAccess>>),
    /// A word that does not name a value; its meaning is up to the reader of the configuration.
    Word(String),
    /// Values in order.
    List(Vec<Value>),
    /// Unique keys with their values, in order.
    Object(Vec<ConfigEntry>),
}

/// The start of the hash FNV-1a.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// Feeds bytes to the hash FNV-1a, and an end mark.
fn feed(hash: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x100_0000_01b3;
    let all = bytes.iter().copied().chain([0xff]);
    all.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// The key.
    pub key: String,
    /// Position of the key.
    pub key_span: Span,
    /// The value.
    pub value: Value,
}

impl Value {
    /// Returns the value of an object's key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match &self.kind {
            ValueKind::Object(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.value),
            _ => None,
        }
    }

    /// Returns a digest of the value, wherever it stands in the policy: it is the same for the same
    /// words, and for a file's text whatever the name of the file.
    pub fn digest(&self) -> u32 {
        let hash = self.feed(FNV_OFFSET);
        (hash ^ hash >> 32) as u32
    }

    /// Feeds the value to a hash.
    fn feed(&self, hash: u64) -> u64 {
        // Kinds and lengths are fed, too, so that no two values look alike.
        let text = |hash, kind: u8, text: &str| feed(feed(hash, &[kind]), text.as_bytes());
        match &self.kind {
            ValueKind::Literal(literal) => text(hash, 0, &format!("{literal:?}")),
            ValueKind::Text(located) | ValueKind::File(located, _) => text(hash, 1, located),
            ValueKind::Word(word) => text(hash, 2, word),
            ValueKind::List(values) => {
                let hash = feed(feed(hash, &[3]), &values.len().to_le_bytes());
                values.iter().fold(hash, |hash, value| value.feed(hash))
            }
            ValueKind::Object(entries) => {
                let hash = feed(feed(hash, &[4]), &entries.len().to_le_bytes());
                entries.iter().fold(hash, |hash, entry| entry.value.feed(text(hash, 5, &entry.key)))
            }
        }
    }

    /// Returns an empty object.
    pub(crate) fn empty(span: Span) -> Self {
        Self { kind: ValueKind::Object(Vec::new()), span }
    }
}

impl nf::ConfigSource for Value {
    type Error = ConfigFault;

    fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, ConfigFault> {
        T::deserialize(self)
    }
}
