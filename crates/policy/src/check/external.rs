//! Tags of external nodes: the carrier of attributes, and the attributes that a program sets.

use super::Checker;
use crate::ast::{Name, ValueExpr, ValueExprKind};
use crate::diagnostic::Diagnostic;
use crate::external::{ExternalKind, ExternalNode, TagCarrier};
use crate::literal::ConfigLiteral;
use crate::pipelet::NodeAttribute;
use crate::source::Span;
use crate::suggest::similar;
use crate::value::{Value, ValueKind};

/// Limit on the attributes that a program sets.
pub const NODE_ATTRIBUTES_MAX: usize = 16;
/// Limit on the bits of an attribute, and of all of a program that gets streams.
const ATTRIBUTE_BITS_MAX: i128 = 16;
/// The key of a native node with a program that gets streams in place of packets.
const DELIVERS: &str = "delivers";

/// Returns true if a node of this kind delivers streams to its program: then it is a function of
/// the graph, which packets pass.
pub(super) fn delivers_streams(kind: ExternalKind, config: Option<&ValueExpr>) -> bool {
    let Some(ValueExprKind::Object(entries)) = config.map(|config| &config.node) else { return false };
    kind == ExternalKind::Native && entries.iter().any(|(key, _)| key.node == DELIVERS)
}

impl Checker<'_, '_> {
    /// Reads `tags` and `sets` of all external nodes.
    pub(super) fn read_tags(&mut self) {
        for node in &mut self.externals {
            let mut faults = Vec::new();
            let tags = node.config.get("tags").map(|value| carrier(value, &mut faults));
            node.tags = tags.unwrap_or_default();
            let sets = node.config.get("sets").map(|value| attributes(value, &mut faults));
            node.sets = sets.unwrap_or_default();
            if faults.is_empty() {
                faults.extend(no_carrier(node));
            }
            faults.into_iter().for_each(|fault| self.report.push(fault));
        }
        for nf in self.nfs.iter_mut().filter(|nf| nf.delivers_streams()) {
            let mut faults = Vec::new();
            if let Some(value) = nf.config.get("sets") {
                nf.sets = attributes(value, &mut faults);
                faults.extend(too_many_bits(&nf.name, &nf.sets, value.span));
            }
            faults.into_iter().for_each(|fault| self.report.push(fault));
        }
    }

    /// Checks that an external node sets this attribute; reports it otherwise.
    pub(super) fn is_set_by(&mut self, node: usize, owner: &Name, name: &Name) -> bool {
        let sets = self.externals[node].sets.clone();
        self.is_among(&sets, ("tags: vlan, ", owner), name)
    }

    /// Checks that this attribute is set by the program of an instance that delivers streams;
    /// reports it otherwise. The attributes of other types are not known here.
    pub(super) fn is_set_by_nf(&mut self, nf: usize, owner: &Name, name: &Name) -> bool {
        let nf = &self.nfs[nf];
        let sets = nf.sets.clone();
        !nf.delivers_streams() || self.is_among(&sets, ("", owner), name)
    }

    fn is_among(&mut self, sets: &[NodeAttribute], (keys, owner): (&str, &Name), name: &Name) -> bool {
        if sets.iter().any(|set| set.name == name.node) {
            return true;
        }
        let owner = &owner.node;
        let error = Diagnostic::error(format!("`{owner}` has no attribute `{}`", name.node), name.span);
        let near = similar(&name.node, sets.iter().map(|set| set.name.as_str()));
        self.report.push(match near {
            Some(near) => error.help(format!("did you mean `{owner}.{near}`?")),
            None => error.help(format!(
                "if its program sets it, write `{keys}sets: {{ {}: 1 }}` at `{owner}`",
                name.node
            )),
        });
        false
    }
}

/// Returns the error of attributes that do not fit the space of a flow.
fn too_many_bits(name: &str, sets: &[NodeAttribute], span: Span) -> Option<Diagnostic> {
    let bits = sets.iter().map(|set| i128::from(set.bits)).sum::<i128>();
    let message = format!(
        "the attributes of `{name}` take {bits} bits; a program that gets streams has {ATTRIBUTE_BITS_MAX}"
    );
    (bits > ATTRIBUTE_BITS_MAX).then(|| Diagnostic::error(message, span))
}

fn carrier(value: &Value, faults: &mut Vec<Diagnostic>) -> TagCarrier {
    let word = match &value.kind {
        ValueKind::Word(word) => word.as_str(),
        ValueKind::Text(text) => text.as_str(),
        _ => "",
    };
    let found = TagCarrier::ALL.into_iter().find(|carrier| carrier.name() == word);
    if found.is_none() {
        faults.push(Diagnostic::error("expected `none`, `vlan` or `geneve`", value.span));
    }
    found.unwrap_or_default()
}

fn attributes(value: &Value, faults: &mut Vec<Diagnostic>) -> Vec<NodeAttribute> {
    let ValueKind::Object(entries) = &value.kind else {
        let message = "expected attributes and their bits, such as `{ safe: 1, class: 3 }`";
        faults.push(Diagnostic::error(message, value.span));
        return Vec::new();
    };
    if entries.len() > NODE_ATTRIBUTES_MAX {
        let message = format!("a program sets up to {NODE_ATTRIBUTES_MAX} attributes, not {}", entries.len());
        faults.push(Diagnostic::error(message, value.span));
        return Vec::new();
    }
    let read = entries.iter().filter_map(|entry| match entry.value.kind {
        ValueKind::Literal(ConfigLiteral::Integer(bits)) if (1..=ATTRIBUTE_BITS_MAX).contains(&bits) => {
            Some(NodeAttribute { name: entry.key.clone(), bits: bits as u8 })
        }
        _ => {
            let message =
                format!("expected the bits of `{}`: a number from 1 to {ATTRIBUTE_BITS_MAX}", entry.key);
            faults.push(Diagnostic::error(message, entry.value.span));
            None
        }
    });
    read.collect()
}

/// Returns the error of a node without a carrier for the attributes that its program sets.
fn no_carrier(node: &ExternalNode) -> Option<Diagnostic> {
    let is_missing = node.tags == TagCarrier::None && !node.sets.is_empty();
    let span = node.config.get("sets").map_or(node.span, |value| value.span);
    let message = format!("`{}` has no `tags`, so attributes do not come back from its program", node.name);
    is_missing.then(|| Diagnostic::error(message, span).help("write `tags: vlan`"))
}
