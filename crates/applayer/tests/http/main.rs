//! The HTTP/1 parser: tables, properties, and other parsers as oracles.

mod against_httparse;
mod against_plain;
mod against_tshark;
mod anomalies;
mod messages;
mod properties;
mod smuggling;
mod support;
