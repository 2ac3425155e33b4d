//! Where packets come from and go to: network interfaces, capture files, generated traffic; and
//! flow export.
//!
//! - [`port`] receives and sends on network interfaces.
//! - [`capture`] reads and writes pcap and pcapng files, record by record.
//! - [`traffic`] makes up traffic from a seed, and answers it as servers would.
//! - [`files`] opens the files that are written.
//! - [`ipfix`] turns flow reports into IPFIX messages and sends them to files or collectors.
//! - [`cycles`] reads the processor's cycle counter.
#![deny(unsafe_code)]

pub mod capture;
pub mod cycles;
pub mod files;
pub mod ipfix;
pub mod port;
pub mod traffic;
