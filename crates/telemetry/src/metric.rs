//! Metrics: their names, types and labels, and the values of one moment.

/// A family of metrics: the series with one name.
#[derive(Debug)]
pub struct Family {
    /// Name, without the program's prefix, and without the suffix of counters.
    pub name: &'static str,
    /// Type in OpenMetrics.
    pub kind: Kind,
    /// Unit of the values that are recorded.
    pub unit: MetricUnit,
    /// Explanation, in the Markdown of the documentation. Its first sentence is the help text.
    pub help: &'static str,
    /// Names of the labels outside its own.
    pub outer_labels: &'static [&'static str],
    /// Name of its own label.
    pub label: Option<&'static str>,
    /// Values of its own label that are shown from the start: `rate` needs the zero before the
    /// first increment.
    pub known: &'static [&'static str],
}

impl Family {
    /// Returns the names of all labels.
    pub fn labels(&self) -> impl Iterator<Item = &'static str> {
        self.outer_labels.iter().copied().chain(self.label)
    }

    /// Returns the name of the samples: with the program's prefix, and the suffix of counters.
    pub fn sample_name(&self) -> String {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("rivulet_{}{suffix}", self.name)
    }
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// A current value.
    Gauge,
}

/// The unit of recorded values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// The metric's own.
    Own,
    /// Nanoseconds, of a metric in seconds.
    Nanoseconds,
}

/// A value of one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// A whole number.
    Count(u64),
    /// Any number.
    Real(f64),
}

impl Sample {
    /// Returns the value in the metric's own unit.
    pub fn in_unit(self, unit: MetricUnit) -> Sample {
        match (unit, self) {
            (MetricUnit::Own, value) => value,
            (MetricUnit::Nanoseconds, Sample::Count(ns)) => Sample::Real(ns as f64 / 1e9),
            (MetricUnit::Nanoseconds, Sample::Real(ns)) => Sample::Real(ns / 1e9),
        }
    }

    /// Returns the value as a floating-point number.
    pub fn as_f64(self) -> f64 {
        match self {
            Sample::Count(count) => count as f64,
            Sample::Real(real) => real,
        }
    }
}
