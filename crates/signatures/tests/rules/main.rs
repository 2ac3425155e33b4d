//! Parsing of rules: keywords, headers, properties, and a second parser as the oracle.

mod headers;
mod keywords;
mod properties;
mod shared_rules;
