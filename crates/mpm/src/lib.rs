//! Multi-pattern matching: finds thousands of literals in a byte stream in one pass.
//!
//! The stream may be cut into pieces anywhere. Between two pieces, a [`Cursor`] of 32 bytes holds
//! the state. It can be moved as bytes, as intrusion detection requires when a flow's state moves
//! with the flow (S25).
//!
//! ```
//! use mpm::{Cursor, Literal, LiteralSet};
//!
//! let set = LiteralSet::new([Literal::exact("/cmd.php"), Literal::nocase("x-shell:")])?;
//! let (mut cursor, mut seen) = (Cursor::default(), Vec::new());
//! set.scan(&mut cursor, b"GET /cmd.p", |literal, end| seen.push((literal, end)));
//! set.scan(&mut cursor, b"hp HTTP/1.1\r\nX-Shell: id\r\n", |literal, end| seen.push((literal, end)));
//! assert_eq!(seen, [(0, 2), (1, 21)]);
//! # Ok::<(), mpm::LiteralSetError>(())
//! ```
//!
//! # How it works
//!
//! The search examines windows of four bytes, at every fourth byte if all literals have at least
//! seven. Wherever a literal is, one of its windows is examined. So [`LiteralSet::new`] picks a
//! window for each alignment, the one rarest in HTTP, and marks its hash in a table that fits the
//! L1 cache. The windows of 128 bytes are hashed with vector instructions, and the lookups become
//! the bits of one number. For the few bits that are set, a second table leads to the literals,
//! which are compared.

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
pub use set::{LITERALS_MAX, LiteralSet, LiteralSetError};
