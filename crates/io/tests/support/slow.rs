//! A slow parser of frames, written from the RFCs, without the crate's code.
#![allow(dead_code, reason = "each test file uses its part")]

/// A frame's fields, after all lengths and checksums were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    pub macs: [u8; 12],
    pub vlan: Option<u16>,
    pub source: Vec<u8>,
    pub destination: Vec<u8>,
    pub protocol: u8,
    /// Offset in bytes and the more-fragments flag of a fragment.
    pub fragment: Option<(usize, bool)>,
    pub ident: u32,
    /// The IP payload.
    pub transport: Vec<u8>,
}

impl Parsed {
    pub fn ports(&self) -> (u16, u16) {
        (word(&self.transport, 0), word(&self.transport, 2))
    }

    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes(self.transport[4..8].try_into().unwrap())
    }

    pub fn acknowledgement(&self) -> u32 {
        u32::from_be_bytes(self.transport[8..12].try_into().unwrap())
    }

    pub fn flags(&self) -> u8 {
        self.transport[13]
    }

    /// Returns the payload of the transport header.
    pub fn payload(&self) -> &[u8] {
        let header = if self.protocol == 6 { usize::from(self.transport[12] >> 4) * 4 } else { 8 };
        &self.transport[header..]
    }
}

/// Parses a frame; returns the first fault.
pub fn parse(frame: &[u8]) -> Result<Parsed, String> {
    if frame.len() < 60 {
        return Err(format!("a frame of {} bytes", frame.len()));
    }
    let (vlan, ip) = match word(frame, 12) {
        0x8100 => (Some(word(frame, 14)), 18),
        _ => (None, 14),
    };
    let macs = frame[..12].try_into().unwrap();
    let packet = &frame[ip..];
    let mut parsed = match word(frame, ip - 2) {
        0x0800 => parse_v4(packet)?,
        0x86dd => parse_v6(packet)?,
        other => return Err(format!("ethertype {other:04x}")),
    };
    (parsed.macs, parsed.vlan) = (macs, vlan);
    let used =
        ip + if parsed.source.len() == 4 { 20 } else { 40 + if parsed.fragment.is_some() { 8 } else { 0 } };
    let used = used + parsed.transport.len();
    if frame.len() != used.max(60) || frame[used..].iter().any(|&byte| byte != 0) {
        return Err(format!("{} bytes of frame around {used} of packet", frame.len()));
    }
    if parsed.fragment.is_none() {
        check_transport(&parsed)?;
    }
    Ok(parsed)
}

fn parse_v4(packet: &[u8]) -> Result<Parsed, String> {
    if packet[0] != 0x45 {
        return Err(format!("first byte {:02x}", packet[0]));
    }
    if slow_sum(&packet[..20]) != 0xffff {
        return Err("the IP checksum is wrong".to_owned());
    }
    let place = word(packet, 6);
    let fragment = (usize::from(place & 0x1fff) * 8, place & 0x2000 != 0);
    Ok(Parsed {
        macs: [0; 12],
        vlan: None,
        source: packet[12..16].to_vec(),
        destination: packet[16..20].to_vec(),
        protocol: packet[9],
        fragment: (fragment != (0, false)).then_some(fragment),
        ident: word(packet, 4).into(),
        transport: packet.get(20..usize::from(word(packet, 2))).ok_or("the total length is wrong")?.to_vec(),
    })
}

fn parse_v6(packet: &[u8]) -> Result<Parsed, String> {
    if packet[0] != 0x60 {
        return Err(format!("first byte {:02x}", packet[0]));
    }
    let end = 40 + usize::from(word(packet, 4));
    let (protocol, fragment, ident, start) = match packet[6] {
        44 => {
            let place = word(packet, 42);
            let ident = u32::from_be_bytes(packet[44..48].try_into().unwrap());
            (packet[40], Some((usize::from(place & !7), place & 1 == 1)), ident, 48)
        }
        protocol => (protocol, None, 0, 40),
    };
    Ok(Parsed {
        macs: [0; 12],
        vlan: None,
        source: packet[8..24].to_vec(),
        destination: packet[24..40].to_vec(),
        protocol,
        fragment,
        ident,
        transport: packet.get(start..end).ok_or("the payload length is wrong")?.to_vec(),
    })
}

/// Checks the length and checksum of a whole transport packet.
pub fn check_transport(parsed: &Parsed) -> Result<(), String> {
    let transport = &parsed.transport;
    let mut summed = Vec::new();
    if parsed.protocol != 1 {
        summed.extend(&parsed.source);
        summed.extend(&parsed.destination);
        summed.extend((transport.len() as u32).to_be_bytes());
        summed.extend([0, 0, 0, parsed.protocol]);
    }
    summed.extend(transport);
    if slow_sum(&summed) != 0xffff {
        return Err(format!("the checksum of protocol {} is wrong", parsed.protocol));
    }
    if parsed.protocol == 17
        && (usize::from(word(transport, 4)) != transport.len() || word(transport, 6) == 0)
    {
        return Err("the UDP length or checksum is wrong".to_owned());
    }
    Ok(())
}

/// Returns the sum of RFC 1071, word by word, carry by carry.
fn slow_sum(bytes: &[u8]) -> u16 {
    let mut total = 0_u16;
    for pair in bytes.chunks(2) {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (added, carry) = total.overflowing_add(word);
        total = added + u16::from(carry);
    }
    total
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
