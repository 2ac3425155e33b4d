//! Tags: attributes of packets on their way to the program of an external node and back (E24, E25).
//!
//! `docs/external-nodes.md` describes layout and frames to authors of programs.

mod codec;

use std::fmt::{self, Display};

use nf::Registry;
use policy::{Diagnostic, ExternalKind, ExternalNode, Policy, TagCarrier, Value};

pub use codec::{GENEVE_OPTION_CLASS, GENEVE_OPTION_KIND, TagCodec, TagFault, TunnelEnds};

/// The bits of attributes that a VLAN tag takes: its identifier.
pub const VLAN_TAG_BITS: u32 = 12;
/// The bits of attributes that a Geneve option takes: a packet has no more tags.
pub const GENEVE_TAG_BITS: u32 = 64;

/// The layout of the tags of an external node.
#[derive(Clone, Debug, Default)]
pub struct NodeTags {
    /// Name of the node.
    pub node: String,
    /// The carrier of the tags.
    pub carrier: TagCarrier,
    /// Attributes from the lowest bit on; none if no tag travels.
    pub fields: Vec<NodeTagField>,
    /// Number of the node in its policy, from 0.
    number: usize,
}

/// The place of an attribute in the tags of an external node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTagField {
    /// The NF or node that sets it; see [`Policy::owner_name`].
    pub owner: usize,
    /// The name of the owner.
    pub owner_name: String,
    /// The part after the dot.
    pub name: String,
    /// Its lowest bit.
    pub first: u32,
    /// Its width.
    pub bits: u32,
    /// Names of values, from 0 on.
    pub values: &'static [&'static str],
    /// The program sets it, so it is 0 on the way to it.
    pub is_own: bool,
    /// By direction, from inside and from outside: whether filters after the node read it.
    pub ways: [bool; 2],
}

impl NodeTagField {
    fn mask(&self) -> u64 {
        (1 << self.bits.min(16)) - 1
    }

    /// Returns the value in a tag.
    pub(crate) fn get(&self, tag: u64) -> u64 {
        tag >> self.first & self.mask()
    }

    /// Returns the tag that has only this value.
    pub(crate) fn put(&self, value: u64) -> u64 {
        (value & self.mask()) << self.first
    }
}

impl NodeTags {
    /// Lays out the tags of all external nodes of a policy.
    ///
    /// # Errors
    /// Each node without enough room for its attributes.
    pub fn of_policy(policy: &Policy, registry: &Registry<Value>) -> Result<Vec<NodeTags>, Vec<Diagnostic>> {
        let (mut all, mut wrong) = (Vec::new(), Vec::new());
        for (number, node) in policy.externals.iter().enumerate() {
            match NodeTags::of_node(policy, (number, node), registry) {
                Ok(tags) => all.push(tags),
                Err(error) => wrong.push(*error),
            }
        }
        if wrong.is_empty() { Ok(all) } else { Err(wrong) }
    }

    fn of_node(
        policy: &Policy,
        (number, node): (usize, &ExternalNode),
        registry: &Registry<Value>,
    ) -> Result<NodeTags, Box<Diagnostic>> {
        let mut fields: Vec<NodeTagField> = Vec::new();
        let mut next = 0;
        for of in policy.travelling(node) {
            let nf = policy.nfs.get(of.owner).and_then(|nf| registry.find(&nf.type_name));
            let declared = nf.map(|entry| entry.descriptor.attributes).unwrap_or_default();
            let declared = declared.iter().find(|attribute| attribute.name == of.name);
            // An attribute that its NF does not set is reported where a filter reads it.
            let Some(bits) = of.bits.or(declared.map(|attribute| attribute.bits)) else { continue };
            let owner_name = policy.owner_name(of.owner).to_owned();
            fields.push(NodeTagField {
                is_own: owner_name == node.name,
                owner: of.owner,
                owner_name,
                name: of.name,
                first: next,
                bits: bits.into(),
                values: declared.map(|attribute| attribute.values).unwrap_or_default(),
                ways: of.ways,
            });
            next += u32::from(bits);
        }
        let tags = NodeTags { node: node.name.clone(), carrier: node.tags, fields, number };
        tags.fault(node).map_or(Ok(tags), |fault| Err(Box::new(fault)))
    }

    /// Returns the bits that the attributes take.
    pub fn bits(&self) -> u32 {
        self.fields.iter().map(|field| field.bits).sum()
    }

    /// Returns the bits that there are.
    pub fn bits_max(&self) -> u32 {
        match self.carrier {
            TagCarrier::None => 0,
            TagCarrier::Vlan => VLAN_TAG_BITS,
            TagCarrier::Geneve => GENEVE_TAG_BITS,
        }
    }

    /// Returns the addresses of Rivulet and the program, inside and outside, if a tunnel carries
    /// the tags.
    pub fn tunnel_ends(&self) -> Option<super::Sides<TunnelEnds>> {
        (self.carrier == TagCarrier::Geneve).then(|| [0, 1].map(|side| TunnelEnds::of(self.number, side)))
    }

    /// Returns what writes and reads the tags at a side; `None` if no tag travels.
    pub fn codec(&self, side: usize) -> Option<TagCodec> {
        TagCodec::new(self.carrier, self.bits(), TunnelEnds::of(self.number, side))
            .filter(|_| !self.fields.is_empty())
    }

    fn fault(&self, node: &ExternalNode) -> Option<Diagnostic> {
        let span = node.config.get("tags").map_or(node.span, |value| value.span);
        if self.carrier == TagCarrier::Geneve && node.kind == ExternalKind::Legacy {
            let message = "only the program of a `Native` node gets Geneve: the interfaces of a legacy one carry its packets";
            return Some(Diagnostic::error(message, span).help("write `tags: vlan`"));
        }
        let (bits, max) = (self.bits(), self.bits_max());
        if bits <= max {
            return None;
        }
        let parts: Vec<String> = self.fields.iter().map(|field| format!("{field} {}", field.bits)).collect();
        let name = &self.node;
        let message = match self.carrier {
            TagCarrier::Vlan => format!(
                "attributes through `{name}` take {bits} bits, and a VLAN tag has {max}: {}",
                parts.join(", ")
            ),
            _ => format!(
                "attributes through `{name}` take {bits} bits, of {max} that there are: {}",
                parts.join(", ")
            ),
        };
        let help = match (self.carrier, node.kind) {
            (TagCarrier::Vlan, ExternalKind::Native) => "read fewer behind the node, or write `tags: geneve`",
            _ => "read fewer behind the node",
        };
        Some(Diagnostic::error(message, span).help(help))
    }
}

impl Display for NodeTagField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.owner_name, self.name)
    }
}

/// The layout as a table for operators and authors of programs; empty if no tag travels.
impl Display for NodeTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fields.is_empty() {
            return Ok(());
        }
        let (carrier, bits, max) = (self.carrier.name(), self.bits(), self.bits_max());
        writeln!(f, "tags of {} ({carrier}, {bits} of {max} bits)", self.node)?;
        if let Some(ends) = self.tunnel_ends() {
            for (ends, side) in ends.iter().zip(super::SIDE_NAMES) {
                writeln!(f, "  {side}: {ends}")?;
            }
        }
        for field in &self.fields {
            let last = field.first + field.bits - 1;
            let place = if field.bits == 1 { last.to_string() } else { format!("{last}-{}", field.first) };
            let values: Vec<String> =
                field.values.iter().enumerate().map(|(value, name)| format!("{value} {name}")).collect();
            let values = if values.is_empty() { String::new() } else { format!("  ({})", values.join(", ")) };
            let way = match (field.is_own, field.ways) {
                (true, _) => "set by the program",
                (false, [true, false]) => "from inside",
                (false, [false, true]) => "from outside",
                (false, _) => "both ways",
            };
            writeln!(f, "  bits {place:<6}{:<24}{way}{values}", field.to_string())?;
        }
        Ok(())
    }
}
