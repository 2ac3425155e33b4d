//! The reader of rules: keywords, headers, properties, and a second reader as the oracle.

mod headers;
mod keywords;
mod properties;
mod shared_rules;
