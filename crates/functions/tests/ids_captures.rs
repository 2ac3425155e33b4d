//! `ids` against the oracle: see `ids_oracle/captures.rs`.

#[path = "ids_oracle/captures.rs"]
mod captures;
#[path = "ids_oracle/compare.rs"]
mod compare;
mod ids_oracle;
