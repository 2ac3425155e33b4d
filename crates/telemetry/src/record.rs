//! Structs of counters that describe their fields.

use std::collections::BTreeMap;

use crate::metric::{Family, Sample};

/// A field of a [`Record`].
#[derive(Debug)]
pub struct RecordField {
    /// Key in the report; `None` if it is not there.
    pub key: Option<&'static str>,
    /// Explanation, in the Markdown of the documentation.
    pub help: &'static str,
    /// Its metric, if any.
    pub family: Option<&'static Family>,
    /// Its value of the metric's own label, if fields share the metric.
    pub part: Option<&'static str>,
}

/// A struct of counters, declared by [`record!`](crate::record!).
pub trait Record: Merge {
    /// Its fields, in order.
    const FIELDS: &'static [RecordField];

    /// Returns the values of the fields, in order; `None` for fields that are no numbers.
    fn values(&self) -> Vec<Option<&dyn Values>>;

    /// Visits the samples of all metrics: the field, the value of the metric's own label, the
    /// sample.
    fn visit(&self, visit: &mut dyn FnMut(&'static RecordField, Option<&str>, Sample)) {
        for (field, values) in Self::FIELDS.iter().zip(self.values()) {
            if let Some(values) = values {
                values.visit(&mut |label, sample| visit(field, field.part.or(label), sample));
            }
        }
    }

    /// Returns the value of the counter with this key, if there is one.
    fn count(&self, key: &str) -> Option<u64> {
        let mut count = None;
        self.visit(&mut |field, _, sample| {
            if let (true, Sample::Count(value)) = (field.key == Some(key), sample) {
                count = Some(value);
            }
        });
        count
    }
}

/// A value of a field: a number, none, or several by label.
pub trait Values {
    /// Visits the values, each with its label.
    fn visit(&self, visit: &mut dyn FnMut(Option<&str>, Sample));
}

/// Counters that are merged by addition.
pub trait Merge {
    /// Adds the counters of another instance.
    fn merge(&mut self, other: &Self);
}

/// The meaning of a number that is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountKind {
    /// It counts since the start.
    Total,
    /// It is a value of now.
    Current,
    /// It is a time; the latest counts.
    Latest,
}

/// Counters that can be taken apart, and be put together elsewhere.
pub trait Counts {
    /// Visits the numbers that are merged, in an order that depends on the type and on keys.
    fn visit_counts(&mut self, kind: CountKind, visit: &mut dyn FnMut(CountKind, &mut u64));
}

macro_rules! whole {
    ($($type:ty),+) => {$(
        impl Values for $type {
            fn visit(&self, visit: &mut dyn FnMut(Option<&str>, Sample)) {
                visit(None, Sample::Count(*self as u64));
            }
        }

        impl Merge for $type {
            fn merge(&mut self, other: &Self) {
                *self += other;
            }
        }

        impl Counts for $type {
            fn visit_counts(&mut self, kind: CountKind, visit: &mut dyn FnMut(CountKind, &mut u64)) {
                let mut number = *self as u64;
                visit(kind, &mut number);
                *self = <$type>::try_from(number).unwrap_or(<$type>::MAX);
            }
        }
    )+};
}

whole!(u32, u64, usize);

impl Values for f64 {
    fn visit(&self, visit: &mut dyn FnMut(Option<&str>, Sample)) {
        visit(None, Sample::Real(*self));
    }
}

impl<T: Values> Values for Option<T> {
    fn visit(&self, visit: &mut dyn FnMut(Option<&str>, Sample)) {
        if let Some(value) = self {
            value.visit(visit);
        }
    }
}

impl<T: Merge> Merge for Option<T> {
    fn merge(&mut self, other: &Self) {
        if let (Some(value), Some(other)) = (self, other) {
            value.merge(other);
        }
    }
}

impl<T: Counts> Counts for Option<T> {
    fn visit_counts(&mut self, kind: CountKind, visit: &mut dyn FnMut(CountKind, &mut u64)) {
        if let Some(value) = self {
            value.visit_counts(kind, visit);
        }
    }
}

impl<K: Ord, T: Counts> Counts for BTreeMap<K, T> {
    fn visit_counts(&mut self, kind: CountKind, visit: &mut dyn FnMut(CountKind, &mut u64)) {
        self.values_mut().for_each(|value| value.visit_counts(kind, visit));
    }
}

impl<K: AsRef<str> + Ord, T: Values> Values for BTreeMap<K, T> {
    fn visit(&self, visit: &mut dyn FnMut(Option<&str>, Sample)) {
        for (name, value) in self {
            value.visit(&mut |_, sample| visit(Some(name.as_ref()), sample));
        }
    }
}

impl<K: Clone + Ord, T: Clone + Merge> Merge for BTreeMap<K, T> {
    fn merge(&mut self, other: &Self) {
        for (name, value) in other {
            match self.get_mut(name) {
                Some(own) => own.merge(value),
                None => drop(self.insert(name.clone(), value.clone())),
            }
        }
    }
}

/// Declares a struct of counters and implements [`Record`] for it.
///
/// After the struct's name come the labels of its metrics in brackets. A field may say:
///
/// | after the type | meaning |
/// |---|---|
/// | `= counter("name")`, `= gauge("name")` | metric, merged by addition |
/// | `= counter("name", label)` | the same, for a map: one series per key |
/// | `= counter("name", label, KNOWN)` | the same; the keys of `KNOWN` are shown from the start |
/// | `= part(FAMILY, "value")` | one series of a metric that fields share |
/// | `= level("name")`, `= level("name", label)` | gauge that is not merged |
/// | `= level_ns("name")`, `= level_ns("name", label)` | the same, in nanoseconds; the metric is in seconds |
/// | `= hidden_level("name")` | the same as `level`, but not in the report |
/// | `= sum()` | no metric, but merged by addition |
/// | `= nested()` | a record, or several by name; merged |
/// | `= key("key")` | no metric; the key of the report differs from the name |
/// | `= hidden()`, `= hidden_sum()` | no metric, and no key of its own in the report; not merged, or merged |
///
/// Fields that are hidden, or have another key, need the attributes of `serde` that make them so.
/// A field's attributes come after its documentation.
#[macro_export]
macro_rules! record {
    (
        #[doc = $about:literal] $(#[doc = $more:literal])* $(#[derive($($derive:path),+ $(,)?)])?
        pub struct $name:ident $labels:tt {
            $(
                $(#[doc = $doc:literal])+ $(#[serde($($serde:tt)*)])*
                pub $field:ident: $type:ty $(= $kind:ident($($spec:tt)*))?,
            )+
        }
    ) => {
        #[doc = $about] $(#[doc = $more])* $(#[derive($($derive),+)])?
        pub struct $name {
            $($(#[doc = $doc])+ $(#[serde($($serde)*)])* pub $field: $type,)+
        }

        impl $crate::Record for $name {
            const FIELDS: &'static [$crate::RecordField] = &[$(
                $crate::field!(
                    $labels, stringify!($field), concat!($($doc),+).trim_ascii()
                    $(, $kind($($spec)*))?
                ),
            )+];

            fn values(&self) -> Vec<Option<&dyn $crate::Values>> {
                vec![$($crate::values!(&self.$field $(, $kind)?)),+]
            }
        }

        impl $crate::Merge for $name {
            #[allow(unused_variables, reason = "if nothing is merged")]
            fn merge(&mut self, other: &Self) {
                $($crate::merge!(&mut self.$field, &other.$field $(, $kind)?);)+
            }
        }

        impl $crate::Counts for $name {
            #[allow(unused_variables, reason = "if there are no numbers")]
            fn visit_counts(
                &mut self,
                kind: $crate::CountKind,
                visit: &mut dyn FnMut($crate::CountKind, &mut u64),
            ) {
                $($crate::count!(&mut self.$field, visit $(, $kind)?);)+
            }
        }
    };
}

/// The [`RecordField`] of a declaration; see [`record!`].
#[doc(hidden)]
#[macro_export]
macro_rules! field {
    ($labels:tt, $key:expr, $help:expr) => {
        $crate::RecordField { key: Some($key), help: $help, family: None, part: None }
    };
    ($labels:tt, $key:expr, $help:expr, sum()) => {
        $crate::field!($labels, $key, $help)
    };
    ($labels:tt, $key:expr, $help:expr, nested()) => {
        $crate::field!($labels, $key, $help)
    };
    ($labels:tt, $key:expr, $help:expr, key($other:literal)) => {
        $crate::field!($labels, $other, $help)
    };
    ($labels:tt, $key:expr, $help:expr, part($family:path, $part:literal)) => {
        $crate::RecordField { key: Some($key), help: $help, family: Some(&$family), part: Some($part) }
    };
    ($labels:tt, $key:expr, $help:expr, hidden()) => {
        $crate::RecordField { key: None, help: $help, family: None, part: None }
    };
    ($labels:tt, $key:expr, $help:expr, hidden_sum()) => {
        $crate::RecordField { key: None, help: $help, family: None, part: None }
    };
    ($labels:tt, $key:expr, $help:expr, hidden_level($name:literal)) => {
        $crate::field!(@ $labels, None, $help, Gauge, Own, $name, None, &[])
    };
    ($labels:tt, $key:expr, $help:expr, counter($name:literal $(, $label:ident $(, $known:path)?)?)) => {
        $crate::field!(
            @ $labels, Some($key), $help, Counter, Own, $name,
            $crate::first!($(Some(stringify!($label)),)? None), $crate::first!($($($known,)?)? &[])
        )
    };
    ($labels:tt, $key:expr, $help:expr, gauge($name:literal $(, $label:ident)?)) => {
        $crate::field!(
            @ $labels, Some($key), $help, Gauge, Own, $name,
            $crate::first!($(Some(stringify!($label)),)? None), &[]
        )
    };
    ($labels:tt, $key:expr, $help:expr, level($name:literal $(, $label:ident)?)) => {
        $crate::field!($labels, $key, $help, gauge($name $(, $label)?))
    };
    ($labels:tt, $key:expr, $help:expr, level_ns($name:literal $(, $label:ident)?)) => {
        $crate::field!(
            @ $labels, Some($key), $help, Gauge, Nanoseconds, $name,
            $crate::first!($(Some(stringify!($label)),)? None), &[]
        )
    };
    (@ $labels:tt, $key:expr, $help:expr, $kind:ident, $unit:ident, $name:literal, $label:expr, $known:expr) => {
        $crate::RecordField {
            key: $key,
            help: $help,
            family: Some(&$crate::Family {
                name: $name,
                kind: $crate::Kind::$kind,
                unit: $crate::MetricUnit::$unit,
                help: $help,
                outer_labels: $crate::labels!($labels),
                label: $label,
                known: $known,
            }),
            part: None,
        }
    };
}

/// The names of labels.
#[doc(hidden)]
#[macro_export]
macro_rules! labels {
    ([$($label:ident),*]) => {
        &[$(stringify!($label)),*]
    };
}

/// The first of several expressions.
#[doc(hidden)]
#[macro_export]
macro_rules! first {
    ($first:expr $(, $rest:expr)*) => {
        $first
    };
}

/// The values of a field, if it has a metric or is merged.
#[doc(hidden)]
#[macro_export]
macro_rules! values {
    ($value:expr) => {
        None
    };
    ($value:expr, key) => {
        None
    };
    ($value:expr, nested) => {
        None
    };
    ($value:expr, hidden) => {
        None
    };
    ($value:expr, hidden_sum) => {
        None
    };
    ($value:expr, $kind:ident) => {
        Some($value as &dyn $crate::Values)
    };
}

/// The visit of a field's numbers.
#[doc(hidden)]
#[macro_export]
macro_rules! count {
    ($value:expr, $visit:expr) => {};
    ($value:expr, $visit:expr, key) => {};
    ($value:expr, $visit:expr, hidden) => {};
    ($value:expr, $visit:expr, hidden_level) => {};
    ($value:expr, $visit:expr, level) => {};
    ($value:expr, $visit:expr, level_ns) => {};
    ($value:expr, $visit:expr, gauge) => {
        $crate::Counts::visit_counts($value, $crate::CountKind::Current, $visit)
    };
    ($value:expr, $visit:expr, $kind:ident) => {
        $crate::Counts::visit_counts($value, $crate::CountKind::Total, $visit)
    };
}

/// The merging of a field.
#[doc(hidden)]
#[macro_export]
macro_rules! merge {
    ($value:expr, $other:expr) => {};
    ($value:expr, $other:expr, key) => {};
    ($value:expr, $other:expr, hidden) => {};
    ($value:expr, $other:expr, hidden_level) => {};
    ($value:expr, $other:expr, level) => {};
    ($value:expr, $other:expr, level_ns) => {};
    ($value:expr, $other:expr, $kind:ident) => {
        $crate::Merge::merge($value, $other)
    };
}
