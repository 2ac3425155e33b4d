//! Headers as text: a line for each packet, and the differences between two moments.

use std::fmt::Write;

use packet::parse::{self, protocol};
use packet::{LinkType, Packet, PacketClass};

/// Renders a packet as one line, much like tcpdump.
pub fn line(packet: &Packet) -> String {
    let meta = packet.meta();
    if meta.version == 0 {
        return format!("{}, {} bytes", not_ip(packet), meta.wire_len);
    }
    let mut text = String::new();
    if let Some(vlan) = meta.key.scope.vlan() {
        let _ = write!(text, "vlan {vlan} "); // Writing into a String cannot fail.
    }
    let _ = write!(text, "{} > {} {}", end(packet, true), end(packet, false), protocol_name(meta.protocol));
    let more = match (meta.class, meta.protocol) {
        (PacketClass::LaterFragment, _) => format!(" fragment of datagram {:#x}", parse::fragment_id(packet)),
        (_, protocol::TCP) => tcp(packet),
        (_, protocol::ICMP | protocol::ICMPV6) => icmp(packet),
        _ => String::new(),
    };
    text += &more;
    if meta.class == PacketClass::FirstFragment {
        let _ = write!(text, " first fragment of datagram {:#x}", parse::fragment_id(packet));
    }
    let _ = write!(text, ", {} bytes", meta.wire_len);
    text
}

/// A header field and its value.
pub type Field = (&'static str, String);

/// Returns the fields that differ between two moments of a packet: field, before, after. A missing
/// field is `-`.
pub fn changes(before: &Packet, after: &Packet) -> Vec<(&'static str, String, String)> {
    let (old, new) = (fields(before), fields(after));
    let value = |fields: &[Field], name: &str| {
        fields.iter().find(|(known, _)| *known == name).map_or("-".to_owned(), |(_, value)| value.clone())
    };
    let mut names: Vec<_> = old.iter().map(|&(name, _)| name).collect();
    names.extend(new.iter().map(|&(name, _)| name).filter(|name| old.iter().all(|(known, _)| known != name)));
    let mut changes = Vec::new();
    for name in names {
        let (from, to) = (value(&old, name), value(&new, name));
        if from != to {
            changes.push((name, from, to));
        }
    }
    if payload(before) != payload(after) {
        changes.push(("payload", bytes(payload(before)), bytes(payload(after))));
    }
    changes
}

/// Returns the header fields, from the outermost header inwards.
fn fields(packet: &Packet) -> Vec<Field> {
    let (data, meta) = (packet.data(), packet.meta());
    let mut fields = Vec::new();
    if meta.link == LinkType::Ethernet && data.len() >= 12 {
        fields.push(("ethernet destination", mac(&data[0..6])));
        fields.push(("ethernet source", mac(&data[6..12])));
    }
    if meta.version == 0 {
        return fields;
    }
    let (outer, l3, l4) = (meta.outer_l3 as usize, meta.l3 as usize, meta.l4 as usize);
    if outer != l3 {
        fields.push(("tunnel", tunnel(data, outer, l3)));
    }
    fields.push(("source", end(packet, true)));
    fields.push(("destination", end(packet, false)));
    let ip = data.get(l3..).unwrap_or_default();
    if let Some(traffic_class) = match ip {
        [_, tos, ..] if meta.version == 4 => Some(*tos),
        [a, b, ..] => Some(a << 4 | b >> 4),
        _ => None,
    } {
        fields.push(("dscp", (traffic_class >> 2).to_string()));
        fields.push(("ecn", (traffic_class & 3).to_string()));
    }
    if let Some(hops) = ip.get(if meta.version == 4 { 8 } else { 7 }) {
        fields.push(("time to live", hops.to_string()));
    }
    if meta.version == 4
        && let Some(ident) = be16(ip, 4)
    {
        fields.push(("identification", ident.to_string()));
    }
    if meta.protocol == protocol::TCP && meta.has_transport() {
        let tcp = data.get(l4..).unwrap_or_default();
        fields.push(("tcp flags", tcp_flags(meta.tcp_flags)));
        for (name, at) in [("tcp sequence", 4), ("tcp acknowledgement", 8)] {
            if let Some(number) = be32(tcp, at) {
                fields.push((name, number.to_string()));
            }
        }
        if let Some(window) = be16(tcp, 14) {
            fields.push(("tcp window", window.to_string()));
        }
    }
    if meta.class == PacketClass::IcmpError
        && let Some(quoted) = parse::embedded(data, l4, meta.version)
    {
        let addresses = addresses(data, quoted.l3, quoted.version);
        let ports = (be16(data, quoted.l4), be16(data, quoted.l4 + 2));
        fields.push(("quoted source", with_port(addresses.0, ports.0.filter(|_| quoted.has_transport))));
        fields.push(("quoted destination", with_port(addresses.1, ports.1.filter(|_| quoted.has_transport))));
    }
    fields
}

fn tunnel(data: &[u8], outer: usize, inner: usize) -> String {
    let version = data.get(outer).map_or(0, |first| first >> 4);
    let (source, destination) = addresses(data, outer, version);
    let number = data.get(outer + if version == 4 { 9 } else { 6 }).copied().unwrap_or(0);
    format!("{source} > {destination} {}, {} bytes of headers", protocol_name(number), inner - outer)
}

/// Returns the addresses of an IP header.
fn addresses(data: &[u8], l3: usize, version: u8) -> (packet::Addr, packet::Addr) {
    let v4 = |at: usize| {
        let bytes = data.get(at..).and_then(|d| d.first_chunk()).copied().unwrap_or_default();
        packet::Addr::from_v4_bytes(bytes)
    };
    let v6 = |at: usize| {
        let bytes = data.get(at..).and_then(|d| d.first_chunk()).copied().unwrap_or_default();
        packet::Addr::from_bytes(bytes)
    };
    if version == 4 { (v4(l3 + 12), v4(l3 + 16)) } else { (v6(l3 + 8), v6(l3 + 24)) }
}

fn with_port(address: packet::Addr, port: Option<u16>) -> String {
    match port {
        Some(port) => packet::Endpoint::new(address, port).to_string(),
        None => address.to_string(),
    }
}

/// Returns an endpoint of a packet, with its port if it has one.
fn end(packet: &Packet, source: bool) -> String {
    let (from, to) = parse::ends(packet);
    let end = if source { from } else { to };
    let has_ports = !matches!(packet.meta().protocol, protocol::ICMP | protocol::ICMPV6);
    with_port(end.addr, (end.port != 0 && has_ports).then_some(end.port))
}

fn tcp(packet: &Packet) -> String {
    let tcp = packet.data().get(packet.meta().l4 as usize..).unwrap_or_default();
    let mut text = format!(" [{}]", tcp_flags(packet.meta().tcp_flags));
    if let Some(sequence) = be32(tcp, 4) {
        let _ = write!(text, " seq {sequence}");
    }
    if packet.meta().tcp_flags & 0x10 != 0
        && let Some(acknowledged) = be32(tcp, 8)
    {
        let _ = write!(text, " ack {acknowledged}");
    }
    text
}

fn tcp_flags(flags: u8) -> String {
    const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
    let set = NAMES.iter().enumerate().filter(|&(bit, _)| flags >> bit & 1 == 1).map(|(_, name)| *name);
    let set: Vec<_> = set.collect();
    if set.is_empty() { "none".to_owned() } else { set.join(" ") }
}

fn icmp(packet: &Packet) -> String {
    let meta = packet.meta();
    let Some(&[kind, code, _, _, a, b, c, d]) =
        packet.data().get(meta.l4 as usize..).and_then(|icmp| icmp.first_chunk())
    else {
        return String::new();
    };
    if meta.class == PacketClass::IcmpError {
        let quoted = parse::embedded(packet.data(), meta.l4 as usize, meta.version);
        let about = quoted.map_or_else(String::new, |quoted| {
            let (source, destination) = addresses(packet.data(), quoted.l3, quoted.version);
            format!(" about {source} > {destination} {}", protocol_name(quoted.protocol))
        });
        return format!(" error type {kind} code {code}{about}");
    }
    let (ident, sequence) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    match (meta.protocol, kind) {
        (protocol::ICMP, 8) | (protocol::ICMPV6, 128) => format!(" echo request id {ident} seq {sequence}"),
        (protocol::ICMP, 0) | (protocol::ICMPV6, 129) => format!(" echo reply id {ident} seq {sequence}"),
        _ => format!(" type {kind} code {code}"),
    }
}

fn not_ip(packet: &Packet) -> String {
    let data = packet.data();
    match packet.meta().link {
        LinkType::Ethernet if data.len() >= 14 => {
            let kind = u16::from_be_bytes([data[12], data[13]]);
            let name = match kind {
                0x0806 => "ARP".to_owned(),
                0x0800 | 0x86dd => "damaged IP".to_owned(),
                ..=1500 => "LLC".to_owned(),
                other => format!("ethertype {other:#06x}"),
            };
            format!("{} > {} {name}", mac(&data[6..12]), mac(&data[0..6]))
        }
        LinkType::Ethernet => "cut Ethernet frame".to_owned(),
        other => format!("frame of link type {}", other.number()),
    }
}

fn payload(packet: &Packet) -> &[u8] {
    match packet.meta() {
        // The payload of an ICMP error is headers, which are compared as such.
        meta if meta.class == PacketClass::IcmpError => &[],
        meta if meta.version == 0 => packet.data(),
        meta => {
            let end = (meta.outer_l3 as usize + packet.ip_len()).min(packet.len());
            packet.data().get(meta.payload as usize..end).unwrap_or_default()
        }
    }
}

fn bytes(payload: &[u8]) -> String {
    const SHOWN: usize = 16;
    let mut text = format!("{} bytes", payload.len());
    if !payload.is_empty() {
        text += ":";
    }
    for byte in payload.iter().take(SHOWN) {
        let _ = write!(text, " {byte:02x}");
    }
    if payload.len() > SHOWN { text + " ..." } else { text }
}

/// Returns the usual name of a protocol, or its number.
pub fn protocol_name(number: u8) -> String {
    match number {
        1 => "icmp",
        4 => "ipip",
        6 => "tcp",
        17 => "udp",
        41 => "ipv6",
        47 => "gre",
        50 => "esp",
        58 => "icmp6",
        132 => "sctp",
        other => return format!("proto {other}"),
    }
    .to_owned()
}

fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn be32(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
