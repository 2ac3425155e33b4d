//! Witness packets in messages.

use std::fmt::Write;
use std::net::IpAddr;

use crate::filter::{Fields, FilterNumberField, Scalar};
use crate::policy::Policy;

/// Returns a packet as a message shows it: `tcp 10.0.0.1:40000 -> 192.0.2.1:80, f.safe = 1`.
pub(super) fn describe(packet: &Fields, policy: &Policy) -> String {
    let number = |field| packet.numbers.get(&field).copied();
    let mut text = match number(FilterNumberField::Proto) {
        None => "a frame that is not IP".to_owned(),
        Some(1) => "icmp".to_owned(),
        Some(6) => "tcp".to_owned(),
        Some(17) => "udp".to_owned(),
        Some(58) => "icmp6".to_owned(),
        Some(132) => "sctp".to_owned(),
        Some(other) => format!("proto {other}"),
    };
    let end = |address: IpAddr, port: Option<u64>| match (address, port) {
        (address, None) => address.to_string(),
        (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
        (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
    };
    if let (Some(source), Some(destination)) = (packet.src_ip, packet.dst_ip) {
        let (from, to) = (number(FilterNumberField::SrcPort), number(FilterNumberField::DstPort));
        let _ = write!(text, " {} -> {}", end(source, from), end(destination, to));
    }
    for (field, name) in [(FilterNumberField::Vlan, "vlan"), (FilterNumberField::Tenant, "tenant")] {
        if let Some(value) = number(field) {
            let _ = write!(text, ", {name} {value}");
        }
    }
    if let Some(dscp) = number(FilterNumberField::Dscp).filter(|dscp| *dscp != 0) {
        let _ = write!(text, ", dscp {dscp}");
    }
    if let Some(flags) = packet.tcp_flags.filter(|flags| *flags != 0x10) {
        let names = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
        let set: Vec<_> = (0..8).filter(|bit| flags & (1 << bit) != 0).map(|bit| names[bit]).collect();
        let _ = write!(text, ", flags {}", if set.is_empty() { "none".to_owned() } else { set.join(",") });
    }
    for ((nf, name), value) in &packet.attributes {
        let owner = policy.owner_name(*nf);
        let _ = match value {
            Scalar::Number(value) => write!(text, ", {owner}.{name} = {value}"),
            Scalar::Text(value) => write!(text, ", {owner}.{name} = {value:?}"),
        };
    }
    text
}
