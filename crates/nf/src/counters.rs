//! An NF's counters. Each is declared once, by [`counters!`](crate::counters!).

use std::fmt;

/// Declaration of a counter.
#[derive(Debug, PartialEq, Eq)]
pub struct CounterDeclaration {
    /// Name: of the metric, and the key in reports unless the counter is labelled.
    pub name: &'static str,
    /// Unit, such as `packets`.
    pub unit: &'static str,
    /// Explanation, in the Markdown of the manual. Its first sentence is the metric's help text.
    pub help: &'static str,
}

/// Declaration of counters that exist once per value of a label, such as once per server. The
/// configuration decides about the values; see [`crate::Setup::label_counters`].
#[derive(Debug, PartialEq, Eq)]
pub struct LabelledDeclaration {
    /// Name of the label.
    pub label: &'static str,
    /// The counters of each value.
    pub counters: &'static [CounterDeclaration],
}

impl LabelledDeclaration {
    /// Returns the key in reports of a counter of `value`: `VALUE.COUNTER`, or `LABEL_VALUE` if
    /// the label has one counter.
    pub fn key(&self, value: &str, counter: &CounterDeclaration) -> String {
        match self.counters {
            [_] => format!("{}_{value}", self.label),
            _ => format!("{value}.{}", counter.name),
        }
    }
}

/// The counters of an NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredCounters {
    /// Those without a label.
    pub plain: &'static [CounterDeclaration],
    /// Those with a label, by label.
    pub labelled: &'static [LabelledDeclaration],
}

impl DeclaredCounters {
    /// No counters.
    pub const NONE: DeclaredCounters = DeclaredCounters { plain: &[], labelled: &[] };
}

/// Handle of a declared counter, for [`crate::Context::count`].
#[derive(Clone, Copy, Debug)]
pub struct Counter(usize);

impl Counter {
    #[doc(hidden)]
    pub const fn numbered(number: usize) -> Counter {
        Counter(number)
    }
}

/// Handle of a declared label, for [`crate::Setup::label_counters`].
#[derive(Clone, Copy, Debug)]
pub struct CounterLabel(pub(crate) usize);

impl CounterLabel {
    #[doc(hidden)]
    pub const fn numbered(number: usize) -> CounterLabel {
        CounterLabel(number)
    }
}

/// Handle of a declared counter with a label, for [`crate::Context::count_at`].
#[derive(Clone, Copy, Debug)]
pub struct LabelledCounter {
    label: usize,
    /// Its number among the counters of the label.
    number: usize,
    /// Counters of the label.
    count: usize,
}

impl LabelledCounter {
    #[doc(hidden)]
    pub const fn numbered(CounterLabel(label): CounterLabel, number: usize, count: usize) -> LabelledCounter {
        LabelledCounter { label, number, count }
    }
}

/// Declares an NF's counters, each with its meaning, name and unit:
///
/// ```
/// nf::counters! {
///     /// Connections refused because the table was full.
///     refused_full: connections,
///     by server {
///         /// Packets to the server.
///         packets: packets,
///         /// IP bytes to the server.
///         bytes: bytes,
///     }
/// }
///
/// static DESCRIPTOR: nf::Descriptor =
///     nf::Descriptor { name: "example", counters: Counters::DECLARED, ..nf::Descriptor::DEFAULT };
///
/// fn refuse(context: &mut nf::Context<'_>) {
///     context.count(COUNTERS.refused_full, 1);
/// }
///
/// fn pass(context: &mut nf::Context<'_>, server: usize, len: usize) {
///     context.count_at(COUNTERS.packets, server, 1);
///     context.count_at(COUNTERS.bytes, server, len as u64);
/// }
///
/// fn new(setup: &mut nf::Setup) {
///     setup.label_counters(COUNTERS.server, ["web1".to_owned(), "web2".to_owned()]);
/// }
/// ```
///
/// `COUNTERS` has a handle of each counter and label, `Counters::DECLARED` belongs into the
/// descriptor. From the declaration come the key of the report, the metric with its help text, and
/// the table of the manual. The compiler warns of a counter that nothing counts.
#[macro_export]
macro_rules! counters {
    (
        $($(#[doc = $help:literal])+ $name:ident: $unit:ident,)*
        $(by $label:ident {
            $($(#[doc = $own_help:literal])+ $own_name:ident: $own_unit:ident,)+
        })*
    ) => {
        /// Handles of the counters.
        struct Counters {
            $($(#[doc = $help])+ $name: $crate::Counter,)*
            $(
                $label: $crate::CounterLabel,
                $($(#[doc = $own_help])+ $own_name: $crate::LabelledCounter,)+
            )*
        }

        /// The counters.
        #[allow(unused_assignments, unused_mut, unused_variables, reason = "without labels")]
        const COUNTERS: Counters = {
            let (mut plain, mut labels, mut own, mut count) = (0, 0, 0, 0);
            Counters {
                $($name: {
                    plain += 1;
                    $crate::Counter::numbered(plain - 1)
                },)*
                $(
                    $label: {
                        (labels, own, count) = (labels + 1, 0, [$(stringify!($own_name)),+].len());
                        $crate::CounterLabel::numbered(labels - 1)
                    },
                    $($own_name: {
                        own += 1;
                        let label = $crate::CounterLabel::numbered(labels - 1);
                        $crate::LabelledCounter::numbered(label, own - 1, count)
                    },)+
                )*
            }
        };

        impl Counters {
            const DECLARED: $crate::DeclaredCounters = $crate::DeclaredCounters {
                plain: &[$($crate::CounterDeclaration {
                    name: stringify!($name),
                    unit: stringify!($unit),
                    help: concat!($($help),+).trim_ascii(),
                }),*],
                labelled: &[$($crate::LabelledDeclaration {
                    label: stringify!($label),
                    counters: &[$($crate::CounterDeclaration {
                        name: stringify!($own_name),
                        unit: stringify!($own_unit),
                        help: concat!($($own_help),+).trim_ascii(),
                    }),+],
                }),*],
            };
        }
    };
}

/// The counters of an NF's instance.
#[derive(Clone, PartialEq, Eq)]
pub struct CounterValues {
    declared: DeclaredCounters,
    plain: Vec<u64>,
    labelled: Vec<LabelledValues>,
}

/// The counters of a label.
#[derive(Clone, PartialEq, Eq)]
struct LabelledValues {
    /// The label's values.
    values: Vec<String>,
    /// All counters of the first value, all of the second, and so on.
    counts: Vec<u64>,
}

/// The value of a counter.
#[derive(Clone, Copy, Debug)]
pub struct CounterValue<'a> {
    /// Its declaration.
    pub declared: &'static CounterDeclaration,
    /// Its label, if any, and the label's value.
    pub label: Option<(&'static LabelledDeclaration, &'a str)>,
    /// Its value.
    pub count: u64,
}

impl CounterValue<'_> {
    /// Returns the key in reports.
    pub fn key(&self) -> String {
        match self.label {
            None => self.declared.name.to_owned(),
            Some((label, value)) => label.key(value, self.declared),
        }
    }
}

impl Default for CounterValues {
    fn default() -> CounterValues {
        CounterValues { declared: DeclaredCounters::NONE, plain: Vec::new(), labelled: Vec::new() }
    }
}

impl CounterValues {
    /// Returns zeros for declared counters and the values of their labels.
    pub(crate) fn new(declared: DeclaredCounters, labels: Vec<Vec<String>>) -> CounterValues {
        let labelled = declared.labelled.iter().zip(labels).map(|(label, values)| LabelledValues {
            counts: vec![0; label.counters.len() * values.len()],
            values,
        });
        CounterValues { declared, plain: vec![0; declared.plain.len()], labelled: labelled.collect() }
    }

    /// Adds to a counter.
    #[inline(always)]
    pub(crate) fn add(&mut self, Counter(number): Counter, by: u64) {
        if let Some(count) = self.plain.get_mut(number) {
            *count = count.wrapping_add(by);
        }
    }

    /// Adds to the counter of a label's value, by the value's number.
    #[inline(always)]
    pub(crate) fn add_at(&mut self, counter: LabelledCounter, value: usize, by: u64) {
        if let Some(label) = self.labelled.get_mut(counter.label)
            && let Some(count) = label.counts.get_mut(value * counter.count + counter.number)
        {
            *count = count.wrapping_add(by);
        }
    }

    /// Returns the counters in order of declaration.
    pub fn iter(&self) -> impl Iterator<Item = CounterValue<'_>> {
        let plain = self.declared.plain.iter().zip(&self.plain);
        let plain = plain.map(|(declared, &count)| CounterValue { declared, label: None, count });
        let labelled = self.declared.labelled.iter().zip(&self.labelled).flat_map(|(label, own)| {
            let of_values = own.values.iter().zip(own.counts.chunks(label.counters.len().max(1)));
            of_values.flat_map(move |(value, counts)| {
                label.counters.iter().zip(counts).map(move |(declared, &count)| CounterValue {
                    declared,
                    label: Some((label, value)),
                    count,
                })
            })
        });
        plain.chain(labelled)
    }

    /// Returns the counter with this key in reports.
    pub fn get(&self, key: &str) -> Option<u64> {
        self.iter().find(|counter| counter.key() == key).map(|counter| counter.count)
    }
}

impl fmt::Debug for CounterValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|counter| (counter.key(), counter.count))).finish()
    }
}
