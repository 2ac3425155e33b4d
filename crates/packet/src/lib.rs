//! Packet buffers, header views, flow keys and checksums.

pub mod checksum;
mod link;

pub use link::LinkType;
