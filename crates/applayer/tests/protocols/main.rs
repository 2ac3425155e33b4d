//! Detection of protocols, DNS, TLS and SSH: tables, properties, and tshark as an oracle.

mod against_tshark;
mod messages;
mod properties;
#[path = "support/reported.rs"]
mod reported;
mod support;
