//! Sources and sinks of packets: network interfaces, capture files, generated traffic, and flow
//! export.
//!
//! - [`port`] receives and sends on network interfaces.
//! - [`capture`] reads and writes pcap and pcapng files, record by record.
//! - [`traffic`] generates traffic from a seed, and answers it as servers would.
//! - [`files`] opens output files.
//! - [`ipfix`] encodes flow reports as IPFIX messages, for files and collectors.
//! - [`cycles`] reads the processor's cycle counter.
#![deny(unsafe_code)]

pub mod capture;
pub mod cycles;
pub mod files;
pub mod ipfix;
pub mod port;
pub mod traffic;
