//! Packet buffers, header views, flow keys and checksums.

mod addr;
mod buffer;
mod key;
pub mod checksum;
mod link;
pub mod memory;
mod meta;
mod reason;

pub use addr::{Addr, Endpoint};
pub use buffer::{HEADROOM, LARGE_ROOM, NoRoom, Packet, Pool, SMALL_ROOM};
pub use key::{FlowHasher, FlowKey, Scope, split_mix};
pub use link::LinkType;
pub use meta::{Class, Direction, Meta, Side};
pub use reason::DropReason;
