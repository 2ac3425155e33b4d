//! Captures as workloads of simulations.

use std::path::Path;
use std::sync::Arc;

use io::capture::{CaptureReader, RECORD_BYTES_MAX};
use packet::{FlowHasher, FlowKey, Packet, PacketClass, Parser};
use sim::scenario::RecordedPackets;

/// Reads a capture's packets with an IP header, as a simulation needs them: time, flow, length.
/// ICMP errors belong to the flow that they quote; later fragments, which have no ports, to a flow
/// of their own.
///
/// # Errors
///
/// If the file cannot be read, or has no packets, or too many.
pub fn read(file: &Path) -> Result<Arc<RecordedPackets>, String> {
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
    RecordedPackets::new(packets).map(Arc::new).map_err(|error| wrong(&error))
}
