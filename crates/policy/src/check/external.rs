//! Tags of external nodes: the carrier of attributes, and those that a program sets.

use super::Checker;
use crate::ast::Name;
use crate::diagnostic::Diagnostic;
use crate::external::{ExternalNode, NodeAttribute, TagCarrier};
use crate::literal::ConfigLiteral;
use crate::suggest::similar;
use crate::value::{Value, ValueKind};

/// Limit on the attributes that a program sets.
pub const NODE_ATTRIBUTES_MAX: usize = 16;
/// Limit on the bits of an attribute.
const ATTRIBUTE_BITS_MAX: i128 = 16;

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
    }

    /// Checks that an external node sets this attribute; reports it otherwise.
    pub(super) fn is_set_by(&mut self, node: usize, owner: &Name, name: &Name) -> bool {
        let node = &self.externals[node];
        if node.sets.iter().any(|set| set.name == name.node) {
            return true;
        }
        let owner_name = &owner.node;
        let error = Diagnostic::error(format!("`{owner_name}` has no attribute `{}`", name.node), name.span);
        let near = similar(&name.node, node.sets.iter().map(|set| set.name.as_str()));
        self.report.push(match near {
            Some(near) => error.help(format!("did you mean `{owner_name}.{near}`?")),
            None => error.help(format!(
                "if its program sets it, write `tags: vlan, sets: {{ {}: 1 }}` at `{owner_name}`",
                name.node
            )),
        });
        false
    }
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

/// Returns the error of a node whose program sets attributes that cannot come back.
fn no_carrier(node: &ExternalNode) -> Option<Diagnostic> {
    let is_missing = node.tags == TagCarrier::None && !node.sets.is_empty();
    let span = node.config.get("sets").map_or(node.span, |value| value.span);
    let message = format!("`{}` has no `tags`, so attributes do not come back from its program", node.name);
    is_missing.then(|| Diagnostic::error(message, span).help("write `tags: vlan`"))
}
