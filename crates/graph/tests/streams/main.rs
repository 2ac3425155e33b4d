//! The reassembler, against a model that keeps every byte by itself.

mod doubt;
mod memory;
mod opening;
mod order;
mod random;
#[path = "../stream_model/mod.rs"]
mod stream_model;

use graph::streams::HostPolicy;
use nf::Connection;
use nf::record::RecordHeader;
use packet::{Addr, Endpoint, FlowKey, Scope};
use zerocopy::FromZeros;

use stream_model::Seen;

const POLICIES: [HostPolicy; 4] = [HostPolicy::First, HostPolicy::Last, HostPolicy::Bsd, HostPolicy::Linux];

fn data(offset: u64, bytes: &[u8]) -> Seen {
    Seen::Data(offset, bytes.to_vec())
}

/// The header of one of four flows, of three sources; two of them are not open.
fn header(flow: usize) -> RecordHeader {
    let end = |addr: u8| Endpoint::new(Addr::from_v4_bytes([192, 0, 2, addr]), 1);
    let (key, reversed) = FlowKey::new(end((flow % 3) as u8), end(9), 6, 4, Scope::default(), 0);
    let mut header = RecordHeader::new_zeroed();
    header.set_key(key, reversed);
    header.connection = if flow < 2 { Connection::ESTABLISHED } else { Connection::SYN_SENT };
    header
}
