//! Values after the names in them are resolved: what a network function's configuration is read
//! from.

mod de;

use std::sync::Arc;

use values::Located;

use crate::files::FileAccess;
use crate::literal::ConfigLiteral;
use crate::source::Span;

pub use de::Error as ConfigFault;

/// A value and where it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// What it is.
    pub kind: ValueKind,
    /// Where it stands. For a whole configuration block, this is the name that the block belongs
    /// to.
    pub span: Span,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueKind {
    /// A literal of one word.
    Literal(ConfigLiteral),
    /// A string, with its origin.
    Text(Arc<Located>),
    /// The text of a file, with its origin, and who may use the file if that is known.
    File(Arc<Located>, Option<Arc<FileAccess>>),
    /// A word that is not the name of a value; it means what the reader of the configuration takes
    /// it for.
    Word(String),
    /// Values in order.
    List(Vec<Value>),
    /// Keys, each once, with their values, in order.
    Object(Vec<ConfigEntry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// The key.
    pub key: String,
    /// Where it stands.
    pub key_span: Span,
    /// The value.
    pub value: Value,
}

impl Value {
    /// The value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match &self.kind {
            ValueKind::Object(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.value),
            _ => None,
        }
    }

    /// An object without entries.
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
