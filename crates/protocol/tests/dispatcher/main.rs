//! The dispatcher: invariants under random traffic, held by a witness.

mod invariants;
mod witness;
