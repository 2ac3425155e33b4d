//! Capture files and generated traffic: where packets come from and go to when there is no network.
//!
//! - [`capture`] reads and writes pcap and pcapng files, record by record.
#![forbid(unsafe_code)]

pub mod capture;
