//! Rivulet on several hosts (S11, S18, S19; A3-A8, A25-A27).
//!
//! A dispatcher and its units are processes, and flows move between them. The ownership protocol
//! and its state machines are those of [`protocol`]; this crate carries their messages.

pub mod identity;
pub mod wire;
