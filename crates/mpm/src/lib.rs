//! Finds thousands of literals in a stream of bytes, in one pass, wherever the stream is cut. What
//! it has to remember between two pieces of a stream is a [`Cursor`] of 32 bytes that can be moved
//! as bytes: what an intrusion detection function needs, where each flow's state travels with the
//! flow (S25).
//!
//! ```
//! use mpm::{Cursor, Literal, Set};
//!
//! let set = Set::new([Literal::exact("/cmd.php"), Literal::nocase("x-shell:")])?;
//! let (mut cursor, mut seen) = (Cursor::default(), Vec::new());
//! set.scan(&mut cursor, b"GET /cmd.p", |literal, end| seen.push((literal, end)));
//! set.scan(&mut cursor, b"hp HTTP/1.1\r\nX-Shell: id\r\n", |literal, end| seen.push((literal, end)));
//! assert_eq!(seen, [(0, 2), (1, 21)]);
//! # Ok::<(), mpm::SetError>(())
//! ```
//!
//! # How
//!
//! Text is looked at through windows of four bytes, at every fourth byte if all literals have at
//! least seven. Wherever a literal lies, one of its windows is then looked at; so [`Set::new`]
//! picks a window for each way it can lie, the one least common in HTTP, and marks a hash of it in
//! a table that the fastest cache holds. The windows of 128 bytes are hashed with the processor's
//! vectors, and what the table says of them becomes the bits of one number; what few of them are
//! set, another table leads to the literals, which are compared.

mod cursor;
mod layer;
mod literal;
mod model;
mod packed;
mod plan;
mod set;
mod sieve;
mod windows;

pub use cursor::Cursor;
pub use literal::{LITERAL_MAX, Literal};
pub use set::{LITERALS_MAX, Set, SetError};
