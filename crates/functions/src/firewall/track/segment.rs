//! The fields of a TCP segment that tracking needs.

use nf::PacketView;

/// The fields of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment {
    pub seq: u32,
    /// Sequence numbers occupied: bytes, SYN and FIN.
    pub len: u32,
    /// Acknowledgement number, if present.
    pub ack: Option<u32>,
    pub window: u16,
    pub flags: u8,
    /// Window scale shift, if offered.
    pub scale: Option<u8>,
}

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

impl TcpSegment {
    /// Reads a TCP packet or its first fragment; none if its header was not captured.
    pub fn read(packet: &PacketView<'_>) -> Option<TcpSegment> {
        let bytes = packet.transport();
        let header = bytes.first_chunk::<20>()?;
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let header_len = usize::from(header[12] >> 4) * 4;
        let flags = header[13];
        let before = usize::from(packet.meta().l4 - packet.meta().l3) + header_len;
        let payload = network_len(packet).saturating_sub(before) as u32;
        let options = bytes.get(20..header_len).unwrap_or_default();
        Some(TcpSegment {
            seq: word(4),
            len: payload + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0),
            ack: (flags & ACK != 0).then(|| word(8)),
            window: u16::from_be_bytes([header[14], header[15]]),
            flags,
            scale: if flags & SYN != 0 { window_scale(options) } else { None },
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len)
    }
}

/// Returns the length of the flow's own IP packet, whether tunnelled or not.
fn network_len(packet: &PacketView<'_>) -> usize {
    let network = packet.network();
    match network {
        [first, _, 0, 0, ..] if first >> 4 == 4 => network.len(), // Filled in by the sending interface.
        [first, _, high, low, ..] if first >> 4 == 4 => usize::from(u16::from_be_bytes([*high, *low])),
        [_, _, _, _, 0, 0, ..] => network.len(), // A jumbogram (RFC 2675).
        [_, _, _, _, high, low, ..] => 40 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => network.len(),
    }
}

/// Returns the window scale option of a SYN (RFC 7323 2.2).
pub(super) fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        match options {
            [0, ..] | [] => return None,
            [1, rest @ ..] => options = rest,
            [3, 3, scale, ..] => return Some(*scale),
            [_, len, ..] if *len >= 2 => options = options.get(usize::from(*len)..)?,
            _ => return None,
        }
    }
}
