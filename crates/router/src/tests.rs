//! The router as a whole: rule by rule, against a reference, and what always holds.

mod bench;
mod flowlets;
mod invariants;
mod reference;
mod scaling;
