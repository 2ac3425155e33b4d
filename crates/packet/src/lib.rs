//! Packet buffers, header views, flow keys and checksums.

pub mod checksum;
mod link;
pub mod wire;

pub use link::LinkType;
