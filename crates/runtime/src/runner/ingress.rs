//! Frames, and their ingress ports.

use packet::{Addr, LinkType, Packet, parse};

use crate::ports::{PortEntry, Ports};

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Arrival time in nanoseconds.
    pub timestamp_ns: u64,
    /// Type of its first header.
    pub link: LinkType,
    /// Its length on the wire in bytes.
    pub wire_len: u32,
    /// Its bytes; fewer than on the wire if the capture cut it.
    pub data: &'a [u8],
}

/// Origin of a frame.
#[derive(Clone, Copy, Debug)]
pub enum Ingress {
    /// The port with this number.
    Port(u16),
    /// An interface of a capture. The port follows from the source address, or else from the
    /// interface's number.
    Interface(u32),
    /// The port with this number, and the packet's tags in the graph's layout: the program of an
    /// external node has sent it.
    Tagged(u16, u64),
}

impl Ingress {
    /// Returns the tags that the packet comes with.
    pub(crate) fn tags(self) -> u64 {
        match self {
            Ingress::Tagged(_, tags) => tags,
            Ingress::Port(_) | Ingress::Interface(_) => 0,
        }
    }

    /// Returns a packet's ingress port; `None` if there are no ports.
    pub fn port<'a>(self, ports: &'a Ports, packet: &mut Packet) -> Option<&'a PortEntry> {
        let port = match self {
            Ingress::Port(number) | Ingress::Tagged(number, _) => ports.number(number),
            Ingress::Interface(interface) => {
                let source = if ports.ask_for_source() { source_of(packet) } else { None };
                ports.of_captured(interface, source)
            }
        };
        port.or(ports.all().first())
    }
}

/// Returns the source address of a packet that has not been parsed yet.
fn source_of(packet: &mut Packet) -> Option<Addr> {
    let parser = packet::Parser::new(packet::FlowHasher::new(0));
    parser.parse(packet).ok()?;
    (packet.meta().version != 0).then(|| parse::ends(packet).0.addr)
}
