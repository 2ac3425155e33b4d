//! A packet on its way, as filters see it.

use std::net::IpAddr;

use nf::stage::Stage;
use packet::parse::protocol;
use packet::{Packet, PacketClass, TagKind, parse};
use policy::{AttributeValue, FilterInput, FilterNumberField, FilterSide};

use super::Routing;
use crate::topology::NfSet;

/// A packet on its way, as filters see it.
pub(super) struct PacketFields<'a> {
    pub packet: &'a Packet,
    pub routing: &'a Routing,
    pub stages: &'a [Box<dyn Stage>],
    /// The functions that have state of its flow.
    pub started: NfSet,
}

impl FilterInput for PacketFields<'_> {
    fn address(&self, side: FilterSide) -> Option<IpAddr> {
        if self.packet.meta().class == PacketClass::NotIp {
            return None;
        }
        let (source, destination) = parse::ends(self.packet);
        Some(match side {
            FilterSide::Src => source.addr.ip(),
            FilterSide::Dst => destination.addr.ip(),
        })
    }

    fn number(&self, field: FilterNumberField) -> Option<u64> {
        let meta = self.packet.meta();
        let is_ip = meta.class != PacketClass::NotIp;
        let has_ports = matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment)
            && matches!(meta.protocol, protocol::TCP | protocol::UDP | protocol::SCTP);
        match field {
            FilterNumberField::SrcPort => has_ports.then(|| parse::ends(self.packet).0.port.into()),
            FilterNumberField::DstPort => has_ports.then(|| parse::ends(self.packet).1.port.into()),
            FilterNumberField::Proto => is_ip.then_some(meta.protocol.into()),
            FilterNumberField::Vlan => self.packet.tag(TagKind::Vlan).map(|tag| tag.id().into()),
            FilterNumberField::Tenant => Some(meta.key.tenant().into()),
            FilterNumberField::Dscp => self.packet.dscp().map(u64::from),
        }
    }

    fn tcp_flags(&self) -> Option<u8> {
        let meta = self.packet.meta();
        (meta.protocol == protocol::TCP && meta.class == PacketClass::Whole).then_some(meta.tcp_flags)
    }

    fn attribute(&self, nf: usize, name: &str) -> Option<AttributeValue<'_>> {
        let stage = self.routing.topology.stage_of(nf).filter(|stage| self.started.has(*stage));
        let Some(stage) = stage else { return self.routing.brought.value(self.packet, nf, name) };
        let stage = &self.stages[stage];
        let attributes = stage.descriptor().attributes;
        let tags = self.packet.meta().transit.tags;
        let Some(place) = attributes.iter().position(|attribute| attribute.name == name) else {
            let (first, bits) = self.routing.topology.attribute_part(nf, name)?;
            let value = u64::from(stage.tags().get(tags, 0)) >> first & ((1 << bits) - 1);
            return Some(AttributeValue::Number(value));
        };
        let value = stage.tags().get(tags, place);
        Some(match attributes[place].values.get(usize::from(value)) {
            Some(text) => AttributeValue::Text(text),
            None => AttributeValue::Number(value.into()),
        })
    }
}
