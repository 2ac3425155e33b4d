//! `ids` against the oracle: see `ids_oracle/captures.rs`.

mod ids_oracle;
#[path = "ids_oracle/compare.rs"]
mod compare;
#[path = "ids_oracle/captures.rs"]
mod captures;
