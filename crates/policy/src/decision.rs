//! A list of filters, compiled: finds the first filter that a packet passes.
//!
//! Each filter becomes a disjunction of terms; a term has a set of values for each field. Terms are
//! numbered in the order of their filters. For each field, its values fall into intervals with the
//! same matching terms: a bit set each. A lookup finds the interval of each field by binary search,
//! intersects the bit sets, and takes the first bit. Conditions on attributes are checked for the
//! terms that are left.
//!
//! Terms are compiled in blocks, so that the size of all bit sets is linear in the number of terms.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::analysis::formula::{FilterField, Formula, History, ScalarSet, TextSet, Values, Variable};
use crate::filter::{AttributeValue, Filter, FilterInput};

/// Terms of a block.
const BLOCK: usize = 1024;

/// Limit on the terms of a filter. One with more is checked as it is written.
const TERMS_MAX: usize = 256;

/// Filters in order, compiled.
#[derive(Clone, Debug)]
pub struct FilterTable {
    blocks: Vec<Block>,
}

/// Up to [`BLOCK`] terms.
#[derive(Clone, Debug)]
struct Block {
    /// For each field that a term reads.
    columns: Vec<Column>,
    terms: Vec<Term>,
}

/// A term's filter, and what the columns do not check.
#[derive(Clone, Debug)]
struct Term {
    filter: usize,
    attributes: Vec<AttributeTest>,
    /// The filter as it is written, if it has too many terms.
    written: Option<Filter>,
}

#[derive(Clone, Debug)]
struct AttributeTest {
    nf: usize,
    name: String,
    /// `None`: it must be absent.
    values: Option<ScalarSet>,
}

/// The intervals of a field.
#[derive(Clone, Debug)]
struct Column {
    field: FilterField,
    /// First values of the intervals, in ascending order; the first one is that of absent fields.
    starts: Vec<Key>,
    /// For each interval, the terms that hold in it.
    holds: Vec<Bits>,
}

/// A set of terms of a block.
type Bits = [u64; BLOCK / 64];

/// A field's value. Absent fields come first, IPv4 addresses before IPv6 ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Absent,
    Number(u64),
    V4(u32),
    V6(u128),
    /// After all values.
    End,
}

/// A term: allowed values of each variable; `None` if it must be absent.
type TermValues = BTreeMap<Variable, Option<Values>>;

impl FilterTable {
    /// Compiles filters.
    pub fn new<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> FilterTable {
        let mut all: Vec<(Term, TermValues)> = Vec::new();
        for (number, filter) in filters.into_iter().enumerate() {
            match terms(filter) {
                Some(terms) => {
                    all.extend(terms.into_iter().map(|values| (Term::new(number, &values), values)))
                }
                None => {
                    let written = Some(filter.clone());
                    all.push((Term { filter: number, attributes: Vec::new(), written }, TermValues::new()));
                }
            }
        }
        FilterTable { blocks: all.chunks(BLOCK).map(Block::new).collect() }
    }

    /// Returns the number of the first filter that the packet passes.
    pub fn first(&self, packet: &impl FilterInput) -> Option<usize> {
        self.blocks.iter().find_map(|block| block.first(packet))
    }
}

impl Term {
    fn new(filter: usize, values: &TermValues) -> Term {
        let attributes = values.iter().filter_map(|(variable, values)| match (variable, values) {
            (Variable::Attribute(nf, name), Some(Values::Scalars(set))) => {
                Some(AttributeTest { nf: *nf, name: name.clone(), values: Some(set.clone()) })
            }
            (Variable::Attribute(nf, name), None) => {
                Some(AttributeTest { nf: *nf, name: name.clone(), values: None })
            }
            _ => None,
        });
        Term { filter, attributes: attributes.collect(), written: None }
    }

    fn holds(&self, packet: &impl FilterInput) -> bool {
        let tests =
            self.attributes.iter().all(|test| match (packet.attribute(test.nf, &test.name), &test.values) {
                (None, None) => true,
                (Some(value), Some(values)) => values.contains(value),
                _ => false,
            });
        tests && self.written.as_ref().is_none_or(|filter| filter.passes(packet))
    }
}

impl ScalarSet {
    fn contains(&self, value: AttributeValue<'_>) -> bool {
        match value {
            AttributeValue::Number(number) => self.numbers.contains(number),
            AttributeValue::Text(text) => match &self.texts {
                TextSet::Only(texts) => texts.iter().any(|one| one == text),
                TextSet::Except(texts) => texts.iter().all(|one| one != text),
            },
        }
    }
}

impl Block {
    fn new(terms: &[(Term, TermValues)]) -> Block {
        let fields =
            terms.iter().flat_map(|(_, values)| values.keys()).filter_map(|variable| match variable {
                Variable::Field(field, _) => Some(*field),
                Variable::Attribute(..) => None,
            });
        let fields: std::collections::BTreeSet<FilterField> = fields.collect();
        Block {
            columns: fields.into_iter().map(|field| Column::new(field, terms)).collect(),
            terms: terms.iter().map(|(term, _)| term.clone()).collect(),
        }
    }

    fn first(&self, packet: &impl FilterInput) -> Option<usize> {
        let mut left = [u64::MAX; BLOCK / 64];
        let words = self.terms.len().div_ceil(64);
        for column in &self.columns {
            let holds = column.lookup(packet);
            left[..words].iter_mut().zip(holds).for_each(|(left, holds)| *left &= holds);
        }
        for (word, bits) in left[..words].iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let term = self.terms.get(64 * word + bits.trailing_zeros() as usize)?;
                if term.holds(packet) {
                    return Some(term.filter);
                }
                bits &= bits - 1;
            }
        }
        None
    }
}

impl Column {
    fn new(field: FilterField, terms: &[(Term, TermValues)]) -> Column {
        let variable = Variable::Field(field, 0);
        let all = [(Key::Absent, Key::End)];
        let ranges: Vec<Vec<(Key, Key)>> = terms
            .iter()
            .map(|(_, values)| match values.get(&variable) {
                None => all.to_vec(),
                Some(None) => vec![(Key::Absent, Key::Number(0))],
                Some(Some(values)) => key_ranges(values),
            })
            .collect();
        let mut starts: Vec<Key> = ranges.iter().flatten().flat_map(|(first, end)| [*first, *end]).collect();
        starts.extend([Key::Absent, Key::Number(0), Key::V4(0), Key::V6(0)]);
        starts.sort_unstable();
        starts.dedup();
        let mut holds = vec![[0; BLOCK / 64]; starts.len()];
        for (term, ranges) in ranges.iter().enumerate() {
            for (first, end) in ranges {
                let first = starts.partition_point(|start| start < first);
                let end = starts.partition_point(|start| start < end);
                holds[first..end].iter_mut().for_each(|bits| bits[term / 64] |= 1 << (term % 64));
            }
        }
        Column { field, starts, holds }
    }

    fn lookup(&self, packet: &impl FilterInput) -> &Bits {
        let key = match self.field {
            FilterField::Address(side) => packet.address(side).map(|address| match address {
                IpAddr::V4(address) => Key::V4(address.to_bits()),
                IpAddr::V6(address) => Key::V6(address.to_bits()),
            }),
            FilterField::Number(field) => packet.number(field).map(Key::Number),
            FilterField::TcpFlags => packet.tcp_flags().map(|flags| Key::Number(flags.into())),
        };
        let key = key.unwrap_or(Key::Absent);
        // The first interval begins with `Absent`, before which there is nothing.
        &self.holds[self.starts.partition_point(|start| *start <= key) - 1]
    }
}

/// Returns the values as ranges: first, and the end after the last.
fn key_ranges(values: &Values) -> Vec<(Key, Key)> {
    let after_number = |last: u64| last.checked_add(1).map_or(Key::V4(0), Key::Number);
    match values {
        Values::Numbers(set) => {
            set.ranges().iter().map(|(first, last)| (Key::Number(*first), after_number(*last))).collect()
        }
        Values::Addresses(set) => set
            .ranges()
            .iter()
            .filter_map(|range| match range {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    let end = last.to_bits().checked_add(1).map_or(Key::V6(0), Key::V4);
                    Some((Key::V4(first.to_bits()), end))
                }
                (IpAddr::V6(first), IpAddr::V6(last)) => {
                    let end = last.to_bits().checked_add(1).map_or(Key::End, Key::V6);
                    Some((Key::V6(first.to_bits()), end))
                }
                _ => None,
            })
            .collect(),
        Values::Flags(set, clear) => (0..=u8::MAX)
            .filter(|flags| flags & set == *set && flags & clear == 0)
            .map(|flags| (Key::Number(flags.into()), Key::Number(u64::from(flags) + 1)))
            .collect(),
        Values::Scalars(_) => Vec::new(),
    }
}

/// Returns the terms of a filter; `None` if there are too many.
fn terms(filter: &Filter) -> Option<Vec<TermValues>> {
    let mut history = History::default();
    note_nfs(filter, &mut history);
    expand(&history.formula(filter, true))
}

/// Attributes of all NFs may be set.
fn note_nfs(filter: &Filter, history: &mut History) {
    match filter {
        Filter::Not(inner) => note_nfs(inner, history),
        Filter::All(parts) | Filter::Any(parts) => parts.iter().for_each(|part| note_nfs(part, history)),
        Filter::Attribute { nfs, .. } => history.nfs.extend(nfs.iter()),
        _ => {}
    }
}

fn expand(formula: &Formula) -> Option<Vec<TermValues>> {
    let single = |variable: &Variable, values| vec![TermValues::from([(variable.clone(), values)])];
    match formula {
        Formula::Constant(true) => Some(vec![TermValues::new()]),
        Formula::Constant(false) => Some(Vec::new()),
        Formula::In(variable, values) => Some(single(variable, Some(values.clone()))),
        Formula::Absent(variable) => Some(single(variable, None)),
        Formula::Any(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(expand(part)?);
                if all.len() > TERMS_MAX {
                    return None;
                }
            }
            Some(all)
        }
        Formula::All(parts) => {
            let mut all = vec![TermValues::new()];
            for part in parts {
                let part = expand(part)?;
                all = all.iter().flat_map(|left| part.iter().filter_map(|right| both(left, right))).collect();
                if all.len() > TERMS_MAX {
                    return None;
                }
            }
            Some(all)
        }
    }
}

/// Returns the conjunction of two terms; `None` if nothing meets it.
fn both(left: &TermValues, right: &TermValues) -> Option<TermValues> {
    let mut all = left.clone();
    for (variable, values) in right {
        let values = match (left.get(variable), values) {
            (None, values) => values.clone(),
            (Some(None), None) => None,
            (Some(Some(left)), Some(right)) => Some(left.intersection(right)?),
            _ => return None,
        };
        all.insert(variable.clone(), values);
    }
    Some(all)
}
