//! Captures as workloads of simulations.

use std::path::Path;
use std::sync::Arc;

use io::capture::{CaptureReader, RECORD_BYTES_MAX};
use packet::{FlowHasher, FlowKey, Packet, PacketClass, Parser};
use sim::workload::Recording;

/// What a simulation asks for of a capture's packets with an IP header: when, of which flow, how
/// long. ICMP errors are of the flow that they quote; fragments behind the first one, which have no
/// ports, are of a flow for themselves.
///
/// # Errors
/// If it cannot be read, or there are none, or too many.
pub fn read(file: &Path) -> Result<Arc<Recording>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let mut reader = CaptureReader::open(file).map_err(|error| wrong(&error))?;
    let parser = Parser::new(FlowHasher::new(1));
    let mut packets: Vec<(u64, FlowKey, u32)> = Vec::new();
    while let Some(record) = reader.next().map_err(|error| wrong(&error))? {
        let mut packet = Packet::from_bytes(record.data);
        packet.meta_mut().link = record.link_type;
        packet.meta_mut().wire_len = record.wire_len;
        if parser.parse(&mut packet).is_ok() && packet.meta().class != PacketClass::NotIp {
            // What a file says of the length may be absurd.
            let len = record.wire_len.max(record.data.len() as u32).min(RECORD_BYTES_MAX);
            packets.push((record.timestamp_ns, packet.meta().key, len));
        }
    }
    Recording::new(packets).map(Arc::new).map_err(|error| wrong(&error))
}
