//! What stands in a packet that was parsed, to be read.

use crate::parse::{self, EmbeddedPacket};
use crate::{Endpoint, Packet, PacketClass};

impl Packet {
    /// From the flow's IP header on.
    #[inline]
    pub fn network(&self) -> &[u8] {
        self.data().get(self.meta().l3 as usize..).unwrap_or_default()
    }

    /// From the transport header on; link-layer padding may follow the packet.
    #[inline]
    pub fn transport(&self) -> &[u8] {
        self.data().get(self.meta().l4 as usize..).unwrap_or_default()
    }

    /// The transport's payload as far as it was captured, without link-layer padding.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let data = self.data();
        let end = self.flow_end().min(data.len());
        data.get(self.meta().payload as usize..end).unwrap_or_default()
    }

    /// The outermost IP packet, with what the link layer has behind it.
    #[inline]
    pub fn outermost(&self) -> &[u8] {
        self.data().get(self.meta().outer_l3 as usize..).unwrap_or_default()
    }

    /// Length of the flow's IP packet in bytes, without the headers of tunnels that it is in.
    #[inline]
    pub fn flow_len(&self) -> usize {
        self.flow_end() - usize::from(self.meta().l3)
    }

    /// Source and destination as the headers are now: functions may have changed them.
    #[inline]
    pub fn ends(&self) -> (Endpoint, Endpoint) {
        parse::ends(self)
    }

    /// The packet that this ICMP error quotes, if it is one.
    pub fn embedded(&self) -> Option<EmbeddedPacket> {
        let meta = self.meta();
        if meta.class != PacketClass::IcmpError {
            return None;
        }
        parse::embedded(self.data(), meta.l4 as usize, meta.version)
    }
}
