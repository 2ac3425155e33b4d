//! Packet buffers, header views, flow keys and checksums.

mod addr;
mod buffer;
pub mod checksum;
mod key;
mod link;
pub mod memory;
mod meta;
mod normalize;
pub mod parse;
mod reading;
mod reason;
mod rewrite;
pub mod sanity;
pub mod wire;

pub use addr::{Addr, Endpoint};
pub use buffer::{HEADROOM, LARGE_ROOM, NoRoom, Packet, Pool, SMALL_ROOM};
pub use key::{FlowHasher, FlowKey, Scope, split_mix};
pub use link::LinkType;
pub use meta::{Class, Direction, Meta, NO_PORT, Side, Transit};
pub use parse::{Parser, TunnelKind, TunnelPorts, VXLAN_PORTS_MAX};
pub use reason::DropReason;
pub use rewrite::{
    COVER_LEN_MAX, Cover, Covers, End, EndsDraft, NewEnds, OUTER_LEN_MAX, Outer, RewriteError, SHIM_LEN_MAX,
    TAG_LEN, TRAILER_MAX, Tag, TagKind, TagRoom, class_behind, grow_link,
};
pub use sanity::Sanity;
