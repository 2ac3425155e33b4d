//! Capture files and generated traffic.

pub mod ipfix;
