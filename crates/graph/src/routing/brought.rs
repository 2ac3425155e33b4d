//! Attributes that packets bring from the program of an external node (E24).
//!
//! The receiver puts them into a packet's tags. They become the flow's with each packet of its
//! original direction, for which alone filters are evaluated. A rule lasts until they change.

use nf::record::RecordHeader;
use nf::stage::Stage;
use packet::{Direction, Meta, Packet, PacketClass};
use policy::AttributeValue;

use crate::topology::{NfSet, Topology};

/// The place of an attribute in the tags of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeField {
    /// Its lowest bit.
    pub shift: u32,
    /// Its mask before shifting.
    pub mask: u64,
}

impl AttributeField {
    /// Returns the attribute's value in the tags of a packet.
    pub fn get(self, tags: u64) -> u64 {
        tags >> self.shift & self.mask
    }

    /// Returns the tags of a packet that has nothing but this value of the attribute.
    pub fn put(self, value: u64) -> u64 {
        (value & self.mask) << self.shift
    }
}

/// The attributes of packets that enter by a port of an external node.
#[derive(Debug)]
struct BroughtAttributes {
    port: u16,
    /// The bits of all of them.
    mask: u64,
    attributes: Vec<BroughtAttribute>,
}

#[derive(Clone, Debug)]
struct BroughtAttribute {
    owner: usize,
    name: String,
    field: AttributeField,
    /// Names of values.
    values: &'static [&'static str],
}

/// Returns the functions with attributes that travel through external nodes.
pub(super) fn travelling(topology: &Topology) -> NfSet {
    let mut travelling = NfSet::default();
    let attributes = topology.external_attributes().iter().flat_map(|node| &node.attributes);
    attributes.filter_map(|of| topology.stage_of(of.owner)).for_each(|stage| travelling.add(stage));
    travelling
}

/// The attributes that packets bring from external nodes, by port.
#[derive(Debug)]
pub(crate) struct Brought(Vec<BroughtAttributes>);

impl Brought {
    /// Assigns bits of tags, from this one on, to attributes of programs that filters read. Returns
    /// the next free bit as well, or `None` if there is no room.
    pub(super) fn place(
        topology: &Topology,
        stages: &[Box<dyn Stage>],
        mut tag_bit: u32,
    ) -> Option<(Brought, u32)> {
        let mut of_programs: Vec<BroughtAttribute> = Vec::new();
        let mut brought = Vec::new();
        for node in topology.external_attributes() {
            for (way, port) in node.ports.into_iter().enumerate() {
                let mut attributes = Vec::new();
                for travelling in node.attributes.iter().filter(|of| of.ways[way]) {
                    let (owner, name) = (travelling.owner, &travelling.name);
                    let known = of_programs.iter().find(|of| of.owner == owner && of.name == *name);
                    let attribute = match (topology.stage_of(owner), travelling.bits, known) {
                        (Some(stage), ..) => of_stage(topology, (owner, name), &*stages[stage]),
                        (None, _, Some(known)) => Some(known.clone()),
                        (None, Some(bits), None) => {
                            let field = AttributeField { shift: tag_bit, mask: (1 << bits.min(16)) - 1 };
                            tag_bit += u32::from(bits);
                            let attribute =
                                BroughtAttribute { owner, name: name.clone(), field, values: &[] };
                            of_programs.push(attribute.clone());
                            Some(attribute)
                        }
                        (None, None, None) => None,
                    };
                    attributes.extend(attribute);
                }
                if tag_bit > u64::BITS {
                    return None;
                }
                let mask = attributes.iter().fold(0, |mask, of| mask | of.field.put(u64::MAX));
                brought.push(BroughtAttributes { port, mask, attributes });
            }
        }
        brought.retain(|of| of.mask != 0);
        Some((Brought(brought), tag_bit))
    }

    /// Returns true if packets bring none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the place of an attribute of a function or of an external node's program.
    pub fn field(
        &self,
        topology: &Topology,
        (owner, name): (usize, &str),
        stages: &[Box<dyn Stage>],
    ) -> Option<AttributeField> {
        if let Some(stage) = topology.stage_of(owner) {
            return Some(of_stage(topology, (owner, name), &**stages.get(stage)?)?.field);
        }
        let mut all = self.0.iter().flat_map(|of| &of.attributes);
        all.find(|of| of.owner == owner && of.name == name).map(|of| of.field)
    }

    /// Sets a flow's attributes to those that a packet of its original direction brings. Returns
    /// true if they have changed.
    #[inline]
    pub fn take(&self, meta: &Meta, header: &mut RecordHeader) -> bool {
        let Some(brought) = self.0.iter().find(|of| of.port == meta.transit.ingress) else {
            return false;
        };
        let is_whole = matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment);
        let is_own = is_whole && meta.protocol == header.key.protocol;
        if !is_own || meta.transit.direction != Direction::Original {
            return false;
        }
        let tags = header.tags & !brought.mask | meta.transit.tags & brought.mask;
        std::mem::replace(&mut header.tags, tags) != tags
    }

    /// Returns the value of an attribute that a packet brought from an external node.
    pub(super) fn value(&self, packet: &Packet, owner: usize, name: &str) -> Option<AttributeValue<'_>> {
        let transit = &packet.meta().transit;
        let brought = self.0.iter().find(|of| of.port == transit.ingress)?;
        let attribute = brought.attributes.iter().find(|of| of.owner == owner && of.name == name)?;
        let value = attribute.field.get(transit.tags);
        let named = usize::try_from(value).ok().and_then(|value| attribute.values.get(value));
        Some(named.map_or(AttributeValue::Number(value), |text| AttributeValue::Text(text)))
    }
}

/// Returns the place of an attribute of a function.
fn of_stage(
    topology: &Topology,
    (owner, name): (usize, &str),
    stage: &dyn Stage,
) -> Option<BroughtAttribute> {
    if let Some((first, bits)) = topology.attribute_part(owner, name) {
        let (shift, _) = stage.tags().field(0)?;
        let field = AttributeField { shift: shift + first, mask: (1 << bits.min(16)) - 1 };
        return Some(BroughtAttribute { owner, name: name.to_owned(), field, values: &[] });
    }
    let attributes = stage.descriptor().attributes;
    let at = attributes.iter().position(|attribute| attribute.name == name)?;
    let (shift, mask) = stage.tags().field(at)?;
    let field = AttributeField { shift, mask };
    Some(BroughtAttribute { owner, name: name.to_owned(), field, values: attributes[at].values })
}
