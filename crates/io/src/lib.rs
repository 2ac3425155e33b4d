//! Capture files and generated traffic: where packets come from and go to when there is no network.
//!
//! - [`capture`] reads and writes pcap and pcapng files, record by record.
//! - [`traffic`] makes up traffic from a seed, and answers it as servers would.
//! - [`ipfix`] sends flow reports to collectors.
//! - [`cycles`] reads the processor's cycle counter.
#![deny(unsafe_code)]

pub mod capture;
pub mod cycles;
pub mod ipfix;
pub mod traffic;
