//! Packet buffers, header views, flow keys and checksums.

mod addr;
mod buffer;
pub mod checksum;
mod key;
mod link;
pub mod memory;
mod meta;
pub mod mptcp;
mod normalize;
pub mod parse;
mod reading;
mod reason;
mod rewrite;
pub mod sanity;
pub mod wire;

pub use addr::{Addr, Endpoint};
pub use buffer::{HEADROOM, LARGE_ROOM, NoRoom, Packet, PacketPool, SMALL_ROOM};
pub use key::{FlowHasher, FlowKey, SEGMENT_MAX, Scope, TENANT_MAX, split_mix};
pub use link::LinkType;
pub use meta::{Direction, Meta, NO_PORT, PacketClass, Side, Transit};
pub use parse::{Parser, Sanity, TunnelKind, TunnelPorts, VXLAN_PORTS_MAX};
pub use reason::DropReason;
pub use rewrite::{
    End, EndsDraft, MssOptions, NewEnds, OUTER_LEN_MAX, OUTER_MATCH_LEN_MAX, OuterHeaders, OuterMatch,
    OuterMatches, RewriteError, SHIM_LEN_MAX, TAG_LEN, TRAILER_MAX, Tag, TagKind, TagRoom, class_after_decap,
    grow_link, set_link_protocol,
};
