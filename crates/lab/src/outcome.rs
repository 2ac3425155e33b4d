//! Results of experiments, as written to files.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Serialize, Serializer};

use crate::chart::FigureChart;
use crate::draw::svg;
use crate::statistics::Estimate;
use crate::table::{CostProfile, FigureTable, FigureUnit, RowKind, TableCell, TableRow};
use crate::verdict::{ClaimAnswer, ClaimsVerdict, JudgedClaim};

/// The result of an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentOutcome {
    /// The experiment.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// The published figure.
    pub published: &'static str,
    /// Seeds of each row.
    pub seeds: u32,
    /// The measurements.
    pub tables: Vec<FigureTable>,
    /// Verdict against the published figures.
    pub matched: ClaimsVerdict,
    /// Verdict on being better.
    pub beaten: ClaimsVerdict,
    /// Verdict on claims that no figure of the papers is about.
    pub checked: ClaimsVerdict,
    /// Notes on the tables.
    pub notes: Vec<String>,
    /// Its charts.
    pub charts: Vec<FigureChart>,
}

impl ExperimentOutcome {
    /// Runs that did what they must not, or could not be done: the row, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        rows.flat_map(|row| row.failures.iter().map(|why| (row.name.as_str(), why.as_str())))
    }

    /// A line for each figure, with what it is about and the values of all seeds.
    pub fn csv(&self) -> String {
        csv(self.id, &self.tables)
    }

    /// The picture.
    pub fn svg(&self) -> String {
        svg(&self.charts)
    }
}

/// A line for each figure of an experiment's tables.
pub fn csv(id: &str, tables: &[FigureTable]) -> String {
    let mut text = "experiment,profile,table,row,kind,metric,unit,paper,median,low,high,values\n".to_owned();
    for table in tables {
        for row in &table.rows {
            for (metric, cell) in table.metrics.iter().zip(&row.cells) {
                let [paper, median, low, high, values] = numbers(cell);
                let names = [id, table.profile.name(), &table.title, &row.name, row.kind.name()];
                let names = names.map(quoted).join(",");
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{names},{},{},{paper},{median},{low},{high},{values}",
                    quoted(metric.name),
                    metric.unit.name()
                );
            }
        }
    }
    text
}

/// Returns paper, median, interval and values; empty where there are none.
fn numbers(cell: &TableCell) -> [String; 5] {
    let show = |value: f64| value.to_string();
    let measured = |of: fn(&Estimate) -> f64| cell.measured.as_ref().map(of).map(show).unwrap_or_default();
    let values = cell.measured.iter().flat_map(|estimate| &estimate.values);
    let values: Vec<String> = values.map(|&value| show(value)).collect();
    [
        cell.paper.map(show).unwrap_or_default(),
        measured(|estimate| estimate.median),
        measured(|estimate| estimate.low),
        measured(|estimate| estimate.high),
        values.join(" "),
    ]
}

/// A field of a CSV file (RFC 4180 2).
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

impl Serialize for ExperimentOutcome {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let json = Json {
            id: self.id,
            title: self.title,
            question: self.question,
            published: self.published,
            seeds: self.seeds,
            matched: self.matched.answer,
            beaten: self.beaten.answer,
            checked: self.checked.answer,
            match_claims: &self.matched.claims,
            beat_claims: &self.beaten.claims,
            check_claims: &self.checked.claims,
            notes: &self.notes,
            rows: json_rows(&self.tables),
        };
        json.serialize(to)
    }
}

#[derive(Serialize)]
struct Json<'a> {
    id: &'static str,
    title: &'static str,
    question: &'static str,
    published: &'static str,
    seeds: u32,
    #[serde(rename = "match")]
    matched: ClaimAnswer,
    #[serde(rename = "beat")]
    beaten: ClaimAnswer,
    #[serde(rename = "check")]
    checked: ClaimAnswer,
    match_claims: &'a [JudgedClaim],
    beat_claims: &'a [JudgedClaim],
    check_claims: &'a [JudgedClaim],
    notes: &'a [String],
    rows: Vec<JsonRow<'a>>,
}

/// The rows of tables, as JSON has them.
pub fn json_rows(tables: &[FigureTable]) -> Vec<JsonRow<'_>> {
    tables.iter().flat_map(|table| table.rows.iter().map(|row| JsonRow::new(table, row))).collect()
}

/// A row, as JSON has it.
#[derive(Serialize)]
pub struct JsonRow<'a> {
    table: &'a str,
    profile: CostProfile,
    row: &'a str,
    kind: RowKind,
    #[serde(skip_serializing_if = "str::is_empty")]
    scenario: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    failures: &'a [String],
    figures: BTreeMap<&'static str, JsonFigure<'a>>,
}

#[derive(Serialize)]
struct JsonFigure<'a> {
    unit: FigureUnit,
    #[serde(skip_serializing_if = "Option::is_none")]
    paper: Option<f64>,
    #[serde(flatten)]
    measured: Option<&'a Estimate>,
}

impl<'a> JsonRow<'a> {
    fn new(table: &'a FigureTable, row: &'a TableRow) -> JsonRow<'a> {
        let figures = table.metrics.iter().zip(&row.cells).map(|(metric, cell)| {
            let TableCell { measured, paper } = cell;
            (metric.name, JsonFigure { unit: metric.unit, paper: *paper, measured: measured.as_ref() })
        });
        JsonRow {
            table: &table.title,
            profile: table.profile,
            row: &row.name,
            kind: row.kind,
            scenario: &row.scenario,
            failures: &row.failures,
            figures: figures.collect(),
        }
    }
}
