//! Inspection of buffers: keywords, and an independent oracle.

mod keywords;
mod oracle;
mod shared_rules;
mod support;
