//! `ids` against the oracle: see `ids_oracle/planted.rs`.

#[path = "ids_oracle/compare.rs"]
mod compare;
mod ids_oracle;
#[path = "ids_oracle/planted.rs"]
mod planted;
