//! The router as a whole: rule by rule, and against a reference.

mod bench;
mod flowlets;
mod reference;
mod scaling;
