//! Parsing of rules: keywords, headers, properties, and a second parser as the oracle.

mod headers;
mod keywords;
#[path = "support/plain/mod.rs"]
mod plain;
mod properties;
mod shared_rules;
