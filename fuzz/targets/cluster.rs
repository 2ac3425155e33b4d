//! Frames between hosts: any bytes are read or refused, and a packet that is read is one that a
//! graph can take.

#![no_main]

use cluster::wire::{ArrivedFrame, read_frame, read_output};
use graph::{Graph, Options};
use libfuzzer_sys::fuzz_target;
use packet::PacketPool;

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = read_frame(bytes, 1 << 40, |_| 0) else { return };
    let mut pool = PacketPool::new(1);
    match frame {
        ArrivedFrame::Packet(packet) | ArrivedFrame::Forwarded(packet) => {
            let options = Options { flows_max: 4, ..Options::default() };
            let Ok(graph) = Graph::new(Vec::new(), options) else { return };
            if let Some(packet) = packet.into_packet(0, &graph, &mut pool) {
                assert!(packet.len() <= bytes.len());
                assert!(usize::from(packet.meta().l3) <= packet.len());
            }
        }
        ArrivedFrame::Output(mut rest) => {
            if let Ok(packet) = read_output(&mut rest, |frame| pool.take(frame)) {
                assert!(packet.len() <= bytes.len());
            }
        }
        _ => {}
    }
});
