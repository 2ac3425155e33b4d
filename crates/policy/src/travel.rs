//! Attributes that travel to the programs of external nodes and back (E24): attributes that earlier
//! NFs set and later filters read, and attributes that the program sets.

use std::collections::{BTreeMap, BTreeSet};

use crate::external::{ExternalNode, TagCarrier};
use crate::filter::Filter;
use crate::pipelet::{Edge, EdgeDirection, Node};
use crate::policy::Policy;

/// An attribute that travels through an external node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TravellingAttribute {
    /// The NF or node that sets it; see [`Policy::owner_name`].
    pub owner: usize,
    /// The part after the dot in `FW.safe`.
    pub name: String,
    /// Its bits, if a program sets it; an NF's descriptor has those of others.
    pub bits: Option<u8>,
    /// By direction, forward and reverse: whether filters after the node read it.
    pub ways: [bool; 2],
}

const DIRECTIONS: [EdgeDirection; 2] = [EdgeDirection::Forward, EdgeDirection::Reverse];

impl Policy {
    /// Returns the name of what sets an attribute: an index in [`Policy::nfs`], or after those, in
    /// [`Policy::externals`].
    pub fn owner_name(&self, owner: usize) -> &str {
        let nf = self.nfs.get(owner).map(|nf| nf.name.as_str());
        let node = owner.checked_sub(self.nfs.len()).and_then(|at| self.externals.get(at));
        nf.or(node.map(|node| node.name.as_str())).unwrap_or_default()
    }

    /// Returns the attributes that travel through a node: first the attributes of its program, in
    /// the order of the text, then others in the order of their NFs and names. None without `tags`.
    pub fn travelling(&self, node: &ExternalNode) -> Vec<TravellingAttribute> {
        if node.tags == TagCarrier::None {
            return Vec::new();
        }
        let own = self.owner_of(node);
        let mut others: BTreeMap<(usize, &str), [bool; 2]> = BTreeMap::new();
        let mut sets: Vec<TravellingAttribute> = node
            .sets
            .iter()
            .map(|set| TravellingAttribute {
                owner: own,
                name: set.name.clone(),
                bits: Some(set.bits),
                ways: [false; 2],
            })
            .collect();
        for (way, direction) in DIRECTIONS.into_iter().enumerate() {
            let before = self.owners_before(node, direction);
            for (owner, name) in self.read_behind(node, direction) {
                if let Some(set) = sets.iter_mut().find(|set| set.owner == owner && set.name == name) {
                    set.ways[way] = true;
                } else if before.contains(&owner) {
                    others.entry((owner, name)).or_default()[way] = true;
                }
            }
        }
        let bits = |owner: usize, name: &str| {
            let node = owner.checked_sub(self.nfs.len()).and_then(|at| self.externals.get(at));
            let sets = self.nfs.get(owner).map(|nf| &nf.sets).or(node.map(|node| &node.sets))?;
            sets.iter().find(|set| set.name == name).map(|set| set.bits)
        };
        sets.extend(others.into_iter().map(|((owner, name), ways)| TravellingAttribute {
            owner,
            name: name.to_owned(),
            bits: bits(owner, name),
            ways,
        }));
        sets
    }

    /// Returns what may have set attributes of packets that begin their path at this port, an index
    /// in [`Policy::ports`]: of a node with tags, the node itself and all before it.
    pub(crate) fn owners_at(&self, port: usize) -> Vec<usize> {
        let node = self.externals.iter().find(|node| [node.inside, node.outside].contains(&port));
        let Some(node) = node.filter(|node| node.tags != TagCarrier::None) else { return Vec::new() };
        let way = if node.source(EdgeDirection::Forward) == Node::Port(port) { 0 } else { 1 };
        let mut owners = self.owners_before(node, DIRECTIONS[way]);
        owners.insert(self.owner_of(node));
        owners.into_iter().collect()
    }

    fn owner_of(&self, node: &ExternalNode) -> usize {
        let at = self.externals.iter().position(|of| of.name == node.name);
        self.nfs.len() + at.unwrap_or_default()
    }

    /// Returns the NFs and nodes that packets on edges of this direction may pass before a node, if
    /// their attributes reach it.
    fn owners_before(&self, node: &ExternalNode, direction: EdgeDirection) -> BTreeSet<usize> {
        let (mut owners, mut reached) = (BTreeSet::new(), vec![node.target(direction)]);
        let mut at = 0;
        while let Some(&to) = reached.get(at) {
            at += 1;
            for edge in self.edges_of(direction).filter(|edge| edge.to == to) {
                let mut from = edge.from;
                match from {
                    Node::Nf(nf) => drop(owners.insert(nf)),
                    Node::Port(_) => {
                        let Some(passed) = self.externals.iter().find(|of| of.source(direction) == from)
                        else {
                            continue;
                        };
                        if passed.tags == TagCarrier::None {
                            continue;
                        }
                        owners.insert(self.owner_of(passed));
                        from = passed.target(direction);
                    }
                    Node::Drop => continue,
                }
                if !reached.contains(&from) {
                    reached.push(from);
                }
            }
        }
        owners
    }

    /// Returns the attributes that filters read after a node, also after further nodes that tags
    /// pass.
    fn read_behind(&self, node: &ExternalNode, direction: EdgeDirection) -> BTreeSet<(usize, &str)> {
        let (mut read, mut reached) = (BTreeSet::new(), vec![node.source(direction)]);
        let mut at = 0;
        while let Some(&from) = reached.get(at) {
            at += 1;
            for edge in self.edges_of(direction).filter(|edge| edge.from == from) {
                add_read(&edge.filter, &mut read);
                let passed = self.externals.iter().find(|of| of.target(direction) == edge.to);
                let next = match (edge.to, passed) {
                    (_, Some(passed)) if passed.tags != TagCarrier::None => passed.source(direction),
                    (Node::Nf(_), _) => edge.to,
                    _ => continue,
                };
                if !reached.contains(&next) {
                    reached.push(next);
                }
            }
        }
        read
    }

    fn edges_of(&self, direction: EdgeDirection) -> impl Iterator<Item = &Edge> {
        let edges = self.pipelets.iter().flat_map(|pipelet| &pipelet.edges);
        edges.filter(move |edge| edge.direction == direction)
    }
}

fn add_read<'f>(filter: &'f Filter, read: &mut BTreeSet<(usize, &'f str)>) {
    match filter {
        Filter::Not(inner) => add_read(inner, read),
        Filter::All(parts) | Filter::Any(parts) => parts.iter().for_each(|part| add_read(part, read)),
        Filter::Attribute { nfs, name, .. } => read.extend(nfs.iter().map(|nf| (*nf, name.as_str()))),
        Filter::Always(_) | Filter::Address { .. } | Filter::Number { .. } | Filter::TcpFlags { .. } => {}
    }
}
