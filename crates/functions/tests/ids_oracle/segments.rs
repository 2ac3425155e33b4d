//! TCP segments in IP packets, read plainly (RFC 791, RFC 8200, RFC 9293).

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// A segment.
#[derive(Clone, Debug)]
pub struct Segment {
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
    /// Bytes of payload that were sent, of which not all may be here.
    pub len: u32,
    pub payload: Vec<u8>,
}

impl Segment {
    /// The segment in a packet from its IP header on; none if there is none, or only a part of one.
    pub fn read(packet: &[u8]) -> Option<Segment> {
        let (from, until) = match packet.first()? >> 4 {
            4 => of_v4(packet)?,
            _ => of_v6(packet)?,
        };
        let tcp = packet.get(from..until.min(packet.len()))?;
        let number = |at: usize| Some(u32::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
        let flags = *tcp.get(13)?;
        let header = usize::from(tcp[12] >> 4) * 4;
        tcp.get(..20)?;
        Some(Segment {
            sequence: number(4)?,
            acknowledged: number(8)?,
            flags,
            len: u32::try_from((until - from).checked_sub(header)?).ok()?,
            payload: tcp.get(header..).unwrap_or_default().to_vec(),
        })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The sequence number of the first byte: a SYN counts as one.
    pub fn first(&self) -> u32 {
        self.sequence.wrapping_add(u32::from(self.has(SYN)))
    }
}

/// From where to where TCP goes.
fn of_v4(packet: &[u8]) -> Option<(usize, usize)> {
    let until = usize::from(u16::from_be_bytes(*packet.get(2..)?.first_chunk()?));
    let is_part = packet.get(6)? & 0x3f != 0 || *packet.get(7)? != 0;
    let header = usize::from(packet[0] & 15) * 4;
    // A length of 0 is that of a packet that the sender's hardware was to cut.
    let until = if until == 0 { packet.len() } else { until };
    (!is_part && *packet.get(9)? == 6 && header <= until).then_some((header, until))
}

fn of_v6(packet: &[u8]) -> Option<(usize, usize)> {
    let until = 40 + usize::from(u16::from_be_bytes(*packet.get(4..)?.first_chunk()?));
    let until = if until == 40 { packet.len() } else { until };
    let (mut next, mut at) = (*packet.get(6)?, 40);
    loop {
        let header = packet.get(at..at + 8)?;
        at += match next {
            6 => return (at <= until).then_some((at, until)),
            0 | 43 | 60 | 135 => 8 + 8 * usize::from(header[1]),
            51 => 8 + 4 * usize::from(header[1]),
            // The only fragment of its packet (RFC 6946).
            44 if header[2..4] == [0, 0] || header[2] == 0 && header[3] & 0xf9 == 0 => 8,
            _ => return None,
        };
        next = header[0];
    }
}
