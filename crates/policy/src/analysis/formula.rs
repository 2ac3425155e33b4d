//! Conditions on a packet along a path, in negation normal form.
//!
//! A field that an NF may write is another variable after the NF. So a condition before the NF says
//! nothing about the field after it.

use std::collections::BTreeMap;

use crate::ast::{FilterComparison, FilterSide};
use crate::filter::{Filter, FilterAddressSet, FilterNumberField, NumberSet, Scalar};

/// A field of a packet that filters read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilterField {
    /// Source or destination address.
    Address(FilterSide),
    /// A number.
    Number(FilterNumberField),
    /// Flags of TCP.
    TcpFlags,
}

/// A variable: a field, or an attribute of an NF.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Variable {
    /// A field, after this many NFs that may write it.
    Field(FilterField, u32),
    /// An attribute, by NF and name.
    Attribute(usize, String),
}

/// Allowed values of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    Addresses(FilterAddressSet),
    Numbers(NumberSet),
    /// Bits that must be 1, and bits that must be 0.
    Flags(u8, u8),
    Scalars(ScalarSet),
}

/// A set of attribute values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalarSet {
    pub numbers: NumberSet,
    pub texts: TextSet,
}

/// A set of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextSet {
    Only(Vec<String>),
    Except(Vec<String>),
}

/// A condition without negation.
#[derive(Clone, Debug)]
pub(crate) enum Formula {
    Constant(bool),
    /// The variable has one of these values.
    In(Variable, Values),
    /// The packet does not have the variable.
    Absent(Variable),
    All(Vec<Formula>),
    Any(Vec<Formula>),
}

/// The writes and attributes along a path so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Number of NFs that may have written a field.
    pub writes: BTreeMap<FilterField, u32>,
    /// NFs that the packet has passed, and external nodes that may have set its attributes.
    pub nfs: Vec<usize>,
}

impl History {
    fn field(&self, field: FilterField) -> Variable {
        Variable::Field(field, self.writes.get(&field).copied().unwrap_or(0))
    }

    /// Returns the condition that the filter holds at this point of the path, or does not.
    pub fn formula(&self, filter: &Filter, holds: bool) -> Formula {
        let parts = |parts: &[Filter]| parts.iter().map(|part| self.formula(part, holds)).collect();
        match filter {
            Filter::Always(value) => Formula::Constant(*value == holds),
            Filter::Not(inner) => self.formula(inner, !holds),
            Filter::All(of) if holds => Formula::All(parts(of)),
            Filter::Any(of) if !holds => Formula::All(parts(of)),
            Filter::All(of) | Filter::Any(of) => Formula::Any(parts(of)),
            Filter::Address { side, set } => {
                let values = if holds { set.clone() } else { set.complement() };
                literal(self.field(FilterField::Address(*side)), Values::Addresses(values), holds)
            }
            Filter::Number { field, set } => {
                let values = if holds { set.clone() } else { set.complement(u64::MAX) };
                literal(self.field(FilterField::Number(*field)), Values::Numbers(values), holds)
            }
            Filter::TcpFlags { set, clear } => self.flags(*set, *clear, holds),
            Filter::Attribute { nfs, name, test } => {
                let of = nfs.iter().map(|&nf| {
                    if !self.nfs.contains(&nf) {
                        return Formula::Constant(!holds); // Not set yet.
                    }
                    let values = ScalarSet::of(test.as_ref());
                    let values = if holds { values } else { values.complement() };
                    literal(Variable::Attribute(nf, name.clone()), Values::Scalars(values), holds)
                });
                if holds { Formula::Any(of.collect()) } else { Formula::All(of.collect()) }
            }
        }
    }

    fn flags(&self, set: u8, clear: u8, holds: bool) -> Formula {
        let variable = self.field(FilterField::TcpFlags);
        if holds {
            return Formula::In(variable, Values::Flags(set, clear));
        }
        let bits = (0..8).map(|bit| 1u8 << bit);
        let wrong = bits.flat_map(|bit| [Values::Flags(0, set & bit), Values::Flags(clear & bit, 0)]);
        let wrong = wrong.filter(|values| *values != Values::Flags(0, 0));
        let wrong = wrong.map(|values| Formula::In(variable.clone(), values));
        Formula::Any(std::iter::once(Formula::Absent(variable.clone())).chain(wrong).collect())
    }
}

/// A test holds only for present fields, so its negation holds for absent ones, too.
fn literal(variable: Variable, values: Values, holds: bool) -> Formula {
    if holds {
        return Formula::In(variable, values);
    }
    Formula::Any(vec![Formula::Absent(variable.clone()), Formula::In(variable, values)])
}

impl Values {
    /// Returns the values in both sets, which are of one kind; `None` if there are none.
    pub fn intersection(&self, other: &Values) -> Option<Values> {
        let both = match (self, other) {
            (Values::Addresses(a), Values::Addresses(b)) => Values::Addresses(a.intersection(b)),
            (Values::Numbers(a), Values::Numbers(b)) => Values::Numbers(a.intersection(b)),
            (Values::Flags(a, b), Values::Flags(c, d)) => Values::Flags(a | c, b | d),
            (Values::Scalars(a), Values::Scalars(b)) => Values::Scalars(a.intersection(b)),
            _ => return None,
        };
        (!both.is_empty()).then_some(both)
    }

    fn is_empty(&self) -> bool {
        match self {
            Values::Addresses(set) => set.ranges().is_empty(),
            Values::Numbers(set) => set.ranges().is_empty(),
            Values::Flags(set, clear) => set & clear != 0,
            Values::Scalars(ScalarSet { numbers, texts }) => {
                numbers.ranges().is_empty() && *texts == TextSet::Only(Vec::new())
            }
        }
    }
}

impl ScalarSet {
    /// Returns the values that pass a test; without one, all except 0 and the empty text.
    fn of(test: Option<&(FilterComparison, Scalar)>) -> ScalarSet {
        let numbers = |first, last| NumberSet::new(vec![(first, last)]);
        let none = || NumberSet::new(Vec::new());
        let only_numbers = |numbers| ScalarSet { numbers, texts: TextSet::Only(Vec::new()) };
        match test {
            None => ScalarSet { numbers: numbers(1, u64::MAX), texts: TextSet::Except(vec![String::new()]) },
            Some((FilterComparison::Eq, Scalar::Number(n))) => only_numbers(numbers(*n, *n)),
            Some((FilterComparison::Eq, Scalar::Text(text))) => {
                ScalarSet { numbers: none(), texts: TextSet::Only(vec![text.clone()]) }
            }
            Some((FilterComparison::Ne, value)) => {
                ScalarSet::of(Some(&(FilterComparison::Eq, value.clone()))).complement()
            }
            Some((compare, Scalar::Number(n))) => only_numbers(match compare {
                FilterComparison::Lt => n.checked_sub(1).map_or_else(none, |last| numbers(0, last)),
                FilterComparison::Le => numbers(0, *n),
                FilterComparison::Gt => n.checked_add(1).map_or_else(none, |first| numbers(first, u64::MAX)),
                _ => numbers(*n, u64::MAX),
            }),
            Some((_, Scalar::Text(_))) => only_numbers(none()), // Texts have no order.
        }
    }

    fn complement(&self) -> ScalarSet {
        let texts = match &self.texts {
            TextSet::Only(texts) => TextSet::Except(texts.clone()),
            TextSet::Except(texts) => TextSet::Only(texts.clone()),
        };
        ScalarSet { numbers: self.numbers.complement(u64::MAX), texts }
    }

    fn intersection(&self, other: &ScalarSet) -> ScalarSet {
        let texts = match (&self.texts, &other.texts) {
            (TextSet::Only(only), TextSet::Except(except))
            | (TextSet::Except(except), TextSet::Only(only)) => {
                TextSet::Only(only.iter().filter(|text| !except.contains(text)).cloned().collect())
            }
            (TextSet::Only(a), TextSet::Only(b)) => {
                TextSet::Only(a.iter().filter(|text| b.contains(text)).cloned().collect())
            }
            (TextSet::Except(a), TextSet::Except(b)) => TextSet::Except([a.as_slice(), b].concat()),
        };
        ScalarSet { numbers: self.numbers.intersection(&other.numbers), texts }
    }

    /// Returns a value of the set, which is not empty.
    pub fn pick(&self) -> Scalar {
        if let Some(&(first, _)) = self.numbers.ranges().first() {
            return Scalar::Number(first);
        }
        Scalar::Text(match &self.texts {
            TextSet::Only(texts) => texts.first().cloned().unwrap_or_default(),
            TextSet::Except(texts) => {
                let names = (0..).map(|number| format!("other{number}"));
                names.into_iter().find(|name| !texts.contains(name)).unwrap_or_default()
            }
        })
    }
}
