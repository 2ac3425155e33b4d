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
