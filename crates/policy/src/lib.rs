//! The operator's language.
