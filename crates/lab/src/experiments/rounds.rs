//! Measurements on the machine: contenders take turns, round by round.

use crate::paths::{Path, Player, Tape, differing};
use crate::runs::RunLength;
use crate::table::{CostProfile, FigureTable, RowKind, TableMetric, TableRow};

/// Packets that are handed over at once, as with SpeedyBox.
pub const BATCH: usize = 32;

/// Times that each thing is measured, in turn with the others (R6): many short ones, so that most
/// are not disturbed by whatever else the machine does.
pub fn rounds(length: RunLength) -> usize {
    match length {
        RunLength::Smoke => 2,
        RunLength::Quick => 41,
        RunLength::Full => 201,
    }
}

/// Values measured so far.
#[derive(Default)]
pub struct Rounds {
    rows: Vec<Measured>,
}

/// A contender's values, and what went wrong with it.
struct Measured {
    name: String,
    kind: RowKind,
    values: Vec<Vec<f64>>,
    failures: Vec<String>,
}

impl Rounds {
    /// Adds a round's values of a row, in the order of the metrics; NaN is no value.
    pub fn add(&mut self, name: &str, kind: RowKind, values: &[f64]) {
        let row = self.row(name, kind);
        row.values.resize(values.len().max(row.values.len()), Vec::new());
        row.values.iter_mut().zip(values).for_each(|(all, &value)| {
            if !value.is_nan() {
                all.push(value);
            }
        });
    }

    /// Something of a row is not as it has to be.
    pub fn fail(&mut self, name: &str, kind: RowKind, why: impl Into<String>) {
        self.row(name, kind).failures.push(why.into());
    }

    fn row(&mut self, name: &str, kind: RowKind) -> &mut Measured {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            let row = Measured { name: name.to_owned(), kind, values: Vec::new(), failures: Vec::new() };
            self.rows.push(row);
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    /// All of it. Rows with failures have no figures.
    pub fn table(self, title: impl Into<String>, metrics: &[TableMetric]) -> FigureTable {
        let row = |Measured { name, kind, mut values, failures }: Measured| {
            values.resize(metrics.len(), Vec::new());
            if !failures.is_empty() {
                values.iter_mut().for_each(Vec::clear);
            }
            TableRow { failures, ..TableRow::of(name, kind, values) }
        };
        FigureTable {
            title: title.into(),
            profile: CostProfile::Real,
            metrics: metrics.to_vec(),
            rows: self.rows.into_iter().map(row).collect(),
        }
    }
}

/// One of the ways that are compared.
pub struct Contender {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: RowKind,
    /// The way.
    pub path: Box<dyn Path>,
}

impl Contender {
    /// A way of this name.
    pub fn new(name: &'static str, kind: RowKind, path: impl Path + 'static) -> Contender {
        Contender { name, kind, path: Box::new(path) }
    }
}

/// Plays a tape through all contenders, and counts the packets of each that differ from the first
/// contender's (R8). Flows end before and after.
pub fn differences(player: &mut Player, contenders: &mut [Contender], tape: &Tape) -> Vec<u64> {
    let mut sent = contenders.iter_mut().map(|contender| {
        player.end_flows(&mut *contender.path);
        let sent = player.sent(&mut *contender.path, tape, 0..tape.len());
        player.end_flows(&mut *contender.path);
        sent
    });
    let first = sent.next().unwrap_or_default();
    [0].into_iter().chain(sent.map(|sent| differing(&sent, &first))).collect()
}
