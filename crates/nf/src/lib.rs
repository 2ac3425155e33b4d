//! What an author of network functions uses.

pub mod config;
