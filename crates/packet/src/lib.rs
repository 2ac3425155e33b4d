//! Packet buffers, header views, flow keys and checksums.

mod link;

pub use link::LinkType;
