//! The page of an experiment in Markdown: verdicts, claims, a picture, tables and notes.
//!
//! A page is also the record of its run: [`ResultPage::read`] reads it back, so that it can be
//! rewritten with today's texts and classes of claims, without the run.

mod cells;
mod overview;

pub use overview::{OverviewError, overview};

use crate::experiments::Experiment;
use crate::outcome::ExperimentOutcome;
use crate::shown;
use crate::table::{CostProfile, FigureTable, FigureUnit, RowKind, TableCell, TableMetric, TableRow};
use crate::verdict::{Claim, ClaimAnswer, ClaimFinding, ClaimsVerdict, JudgedClaim, MeasuredFigures};

/// Tables with this number of rows are folded.
const FOLDED_ROWS: usize = 30;

/// Text before the claims that hosts do not bear out.
const NOT_BORNE_OUT: &str = "Hosts do not bear out all of this ([U4](U4.md)). Missed there: ";

/// Results of an experiment, as its page has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultPage {
    /// The tables.
    pub tables: Vec<PageTable>,
    /// Judged claims: text and finding.
    pub findings: Vec<(String, ClaimFinding)>,
    /// Failed runs.
    pub failures: Vec<String>,
    /// Notes on the tables.
    pub notes: Vec<String>,
    /// The options that reproduce it.
    pub options: String,
}

/// A table of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageTable {
    /// Its caption.
    pub caption: String,
    /// Heads of its columns.
    pub head: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

/// A page that cannot be read or rewritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// A line has no meaning.
    #[error("line {0} is not understood: {1}")]
    Line(usize, String),
    /// A claim was not judged in this run, and cannot be from its tables.
    #[error("run it again: {0}")]
    Unjudged(String),
}

/// Verdicts of an experiment's claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageVerdicts {
    /// Against the papers' figures.
    pub matched: ClaimsVerdict,
    /// On being better.
    pub beaten: ClaimsVerdict,
    /// On all else.
    pub checked: ClaimsVerdict,
}

impl ResultPage {
    /// Returns the page of an outcome; `options` reproduce it.
    pub fn of(outcome: &ExperimentOutcome, options: &str) -> ResultPage {
        let table = |table: &FigureTable| PageTable {
            caption: shown::caption(table),
            head: shown::head(table).into_iter().map(str::to_owned).collect(),
            rows: shown::rows(table),
        };
        let verdicts = [&outcome.matched, &outcome.beaten, &outcome.checked];
        let finding = |JudgedClaim { text, holds, is_by_fit, why }: &JudgedClaim| {
            ((*text).to_owned(), ClaimFinding { holds: *holds, is_by_fit: *is_by_fit, why: why.clone() })
        };
        ResultPage {
            tables: outcome.tables.iter().map(table).collect(),
            findings: verdicts.iter().flat_map(|of| &of.claims).map(finding).collect(),
            failures: outcome.failures().map(|(row, why)| format!("{row}: {why}")).collect(),
            notes: outcome.notes.clone(),
            options: options.to_owned(),
        }
    }

    /// Reads a page of this experiment.
    ///
    /// # Errors
    /// If a line is not one of a page.
    pub fn read(id: &str, text: &str) -> Result<ResultPage, PageError> {
        let mut page = ResultPage::default();
        let mut section = "";
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(title) = line.strip_prefix("## ") {
                section = title;
            } else if let Some(cells) = cells::row(line) {
                page.add_row(cells).ok_or_else(|| PageError::Line(number, line.to_owned()))?;
            } else if let Some(item) = line.strip_prefix("- ") {
                if section == "Notes" {
                    page.notes.push(item.to_owned());
                } else {
                    let finding = finding(item).ok_or_else(|| PageError::Line(number, line.to_owned()))?;
                    page.findings.push(finding);
                }
            } else if let Some(failure) = line.strip_prefix("Failed: ") {
                page.failures.push(failure.to_owned());
            } else if let Some(options) = line.strip_prefix("rivulet lab run ") {
                options.strip_prefix(id).unwrap_or(options).clone_into(&mut page.options);
            } else if cells::caption(line).is_some() {
                page.tables.push(PageTable { caption: line.to_owned(), ..PageTable::default() });
            }
        }
        Ok(page)
    }

    /// Adds a row to the last table; `None` if there is no table.
    fn add_row(&mut self, cells: Vec<String>) -> Option<()> {
        let table = self.tables.last_mut()?;
        if table.head.is_empty() {
            table.head = cells;
        } else if cells.iter().any(|cell| cell.chars().any(|c| c != '-')) {
            table.rows.push(cells);
        }
        Some(())
    }

    /// Returns the tables with their figures, without values of seeds.
    pub fn figures(&self) -> Vec<FigureTable> {
        self.tables.iter().map(PageTable::figures).collect()
    }

    /// Returns the verdicts of an experiment's claims. A claim that the page does not have is
    /// judged by its tables.
    ///
    /// # Errors
    /// If a claim is about figures that the page does not have.
    pub fn verdicts(&self, experiment: &Experiment) -> Result<PageVerdicts, PageError> {
        let tables = self.figures();
        let judge = |claim: &Claim| match self.findings.iter().find(|(text, _)| text == claim.text) {
            Some((_, finding)) => Ok(finding.clone()),
            None => (claim.test)(&MeasuredFigures(&tables))
                .map_err(|missing| PageError::Unjudged(format!("{}: {missing}", claim.text))),
        };
        let verdict = |claims: &[Claim]| {
            let claims = if tables.is_empty() { &[] } else { claims };
            let findings = claims.iter().map(judge).collect::<Result<Vec<_>, _>>()?;
            Ok(ClaimsVerdict::of_findings(claims, findings))
        };
        let is_real = tables.iter().any(|table| table.profile == CostProfile::Real);
        let checks = [experiment.checks, if is_real { experiment.real } else { &[] }].concat();
        Ok(PageVerdicts {
            matched: verdict(experiment.matches)?,
            beaten: verdict(experiment.beats)?,
            checked: verdict(&checks)?,
        })
    }

    /// Returns the page as Markdown. `of_hosts` is the page of U4: its claims that do not hold and
    /// are about this experiment are named.
    ///
    /// # Errors
    /// As [`ResultPage::verdicts`].
    pub fn write(&self, experiment: &Experiment, of_hosts: Option<&ResultPage>) -> Result<String, PageError> {
        let Experiment { id, title, question, published, .. } = experiment;
        let verdicts = self.verdicts(experiment)?;
        let mut text = format!("# {id}: {title}\n\n{question}\n\nPublished: {published}.\n\n");
        let answers = verdicts.all().map(|(name, of)| format!("**{name}: {}**", of.answer.name()));
        text += &(answers.join(", ") + "\n");
        let missed = of_hosts.map(|hosts| hosts.not_borne_out(id)).unwrap_or_default();
        if !missed.is_empty() {
            text += &format!("\n{NOT_BORNE_OUT}{}.\n", missed.join("; "));
        }
        if !experiment.charts(&self.figures()).is_empty() {
            text += &format!("\n![{title}: figures]({id}.svg)\n");
        }
        if let Some(why) = experiment.without_picture() {
            text += &format!("\nNo picture: {why}.\n");
        }
        for (name, verdict) in verdicts.all().iter().filter(|(_, verdict)| !verdict.claims.is_empty()) {
            text += &format!("\n## Claims: {name}\n\n");
            for JudgedClaim { text: claimed, holds, is_by_fit, why } in &verdict.claims {
                let answer = match (*holds, *is_by_fit) {
                    (true, true) => ClaimAnswer::ByFit,
                    (true, false) => ClaimAnswer::Yes,
                    (false, _) => ClaimAnswer::No,
                };
                let answer = answer.name();
                text += &format!("- {answer}: {claimed}. {why}\n");
            }
        }
        if !self.tables.is_empty() || !self.failures.is_empty() {
            text += "\n## Figures\n";
        }
        for PageTable { caption, head, rows } in &self.tables {
            text += &format!("\n{caption}\n\n");
            let is_long = rows.len() >= FOLDED_ROWS;
            if is_long {
                text += &format!("<details><summary>{} rows</summary>\n\n", rows.len());
            }
            text += &cells::line(head);
            text += &cells::line(&vec!["---".to_owned(); head.len()]);
            rows.iter().for_each(|row| text += &cells::line(row));
            if is_long {
                text += "\n</details>\n";
            }
        }
        self.failures.iter().for_each(|failure| text += &format!("\nFailed: {failure}\n"));
        if !self.notes.is_empty() {
            text += "\n## Notes\n\n";
        }
        self.notes.iter().for_each(|note| text += &format!("- {note}\n"));
        let options = &self.options;
        Ok(text + &format!("\n## Reproduction\n\n```sh\nrivulet lab run {id}{options}\n```\n"))
    }

    /// Returns the claims of this page that do not hold and name an experiment, with their figures.
    fn not_borne_out(&self, id: &str) -> Vec<String> {
        let names = |text: &str| {
            let ids = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
            ids.is_some_and(|(ids, _)| ids.split(", ").any(|named| named == id))
        };
        let missed = self.findings.iter().filter(|(text, finding)| !finding.holds && names(text));
        missed.map(|(text, finding)| format!("{text} ({})", finding.why)).collect()
    }

    /// Returns the median of a table, as the page shows it.
    fn median(&self, table: usize, row: &str, metric: &str) -> Option<String> {
        let table = self.tables.get(table)?;
        let column = table.head.iter().position(|head| head == metric)?;
        let row = table.rows.iter().find(|cells| cells.first().is_some_and(|name| name == row))?;
        Some(cells::median(row.get(column)?))
    }
}

impl PageVerdicts {
    /// Returns the verdicts by their names.
    pub fn all(&self) -> [(&'static str, &ClaimsVerdict); 3] {
        [("match", &self.matched), ("beat", &self.beaten), ("check", &self.checked)]
    }
}

impl PageTable {
    /// Returns the figures of the table. Rows have no scenarios, and figures no values of seeds.
    pub fn figures(&self) -> FigureTable {
        let (profile, title) = cells::caption(&self.caption).unwrap_or((CostProfile::Real, &self.caption));
        let title = title.to_owned();
        let units = self.units();
        // A few hundred names for the life of a program that rewrites pages.
        let name = |head: &String| &*Box::leak(head.clone().into_boxed_str());
        let metrics = self.head.iter().skip(1).zip(&units);
        let mut rows: Vec<TableRow> = Vec::new();
        for cells in &self.rows {
            let (row, values) = (cells.first().map(String::as_str).unwrap_or_default(), cells.iter().skip(1));
            match rows.last_mut().filter(|_| row == cells::PUBLISHED) {
                Some(of) => of.cells.iter_mut().zip(values).for_each(|(cell, value)| {
                    cell.paper = cells::quantity(value).map(|(value, _)| value);
                }),
                None => {
                    let kind = if row.contains("plus:") { RowKind::Plus } else { RowKind::Baseline };
                    let measured = |cell: &String| TableCell { measured: cells::estimate(cell), paper: None };
                    rows.push(TableRow {
                        cells: values.map(measured).collect(),
                        ..TableRow::of(row, kind, Vec::new())
                    });
                }
            }
        }
        let metrics = metrics.map(|(head, &unit)| TableMetric { name: name(head), unit }).collect();
        FigureTable { title, profile, metrics, rows }
    }

    /// Returns the unit of each column but the first: that of the first of its cells with one.
    fn units(&self) -> Vec<FigureUnit> {
        let unit = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let mut units = cells.filter_map(|cell| cells::unit(cell));
            units.find(|unit| *unit != FigureUnit::Ratio).unwrap_or(FigureUnit::Ratio)
        };
        (1..self.head.len()).map(unit).collect()
    }
}

/// Reads the item of a claim: the answer, the claim, and the reason.
fn finding(item: &str) -> Option<(String, ClaimFinding)> {
    let (answer, rest) = item.split_once(": ")?;
    let (text, why) = rest.split_once(". ").unwrap_or((rest.trim_end_matches('.'), ""));
    let (holds, is_by_fit) = match answer {
        "yes" => (true, false),
        "by fit" => (true, true),
        "no" => (false, false),
        _ => return None,
    };
    Some((text.to_owned(), ClaimFinding { holds, is_by_fit, why: why.to_owned() }))
}
