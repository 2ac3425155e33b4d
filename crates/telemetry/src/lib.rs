//! The catalogue of counters, metrics and events.
//!
//! [`record!`] declares a struct of counters. From each field's one declaration come the field, its
//! key in the report, its metric with name, type, help and labels, its merging, and its rows in
//! `docs/report.md` and `docs/metrics.md`. [`event`] declares the events of the log, and [`shown`]
//! makes texts of others safe to show.

pub mod event;
mod metric;
mod page;
mod record;
mod repeats;
mod shown;

pub use metric::{Family, Kind, MetricUnit, Sample};
pub use page::{events_table, help, metrics_table, replace_tables, report_table};
pub use record::{CountKind, Counts, Merge, Record, RecordField, Values};
pub use repeats::{PEERS_MAX, PERIOD, Repeated, Repeats, flush_repeats, refuse_peer};
pub use shown::{CELL_MAX, SHOWN_MAX, Shown, shown, shown_in_cell, shown_lines};

#[cfg(test)]
mod tests;
