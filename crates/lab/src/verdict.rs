//! What a published result asks for, and whether what was measured keeps to it (R3).

use serde::Serialize;

use crate::statistics::Estimate;
use crate::table::Table;

/// What is asked of the figures of an experiment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Claim {
    /// In words.
    pub text: &'static str,
    /// In code.
    #[serde(skip)]
    pub test: fn(&Figures<'_>) -> Result<Finding, Missing>,
}

/// Whether a claim holds, and by which figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it does.
    pub holds: bool,
    /// The figures.
    pub why: String,
}

/// A figure that a claim is about was not measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{row} has no {metric}")]
pub struct Missing {
    row: String,
    metric: String,
}

/// The figures of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'a>(pub &'a [Table]);

impl<'a> Figures<'a> {
    /// A figure of the first table.
    ///
    /// # Errors
    /// If it is not there, or a run of it failed.
    pub fn get(&self, row: &str, metric: &str) -> Result<&'a Estimate, Missing> {
        self.of(0, row, metric)
    }

    /// A figure of a table, which is counted from 0.
    ///
    /// # Errors
    /// If it is not there, or a run of it failed.
    pub fn of(&self, table: usize, row: &str, metric: &str) -> Result<&'a Estimate, Missing> {
        let found = self.0.get(table).and_then(|table| table.get(row, metric));
        found.ok_or_else(|| Missing { row: row.to_owned(), metric: metric.to_owned() })
    }
}

impl Finding {
    /// It holds, or does not, because of this.
    pub fn new(holds: bool, why: impl Into<String>) -> Finding {
        Finding { holds, why: why.into() }
    }

    /// All of them hold.
    pub fn all(findings: impl IntoIterator<Item = Finding>) -> Finding {
        let (mut holds, mut whys) = (true, Vec::new());
        for finding in findings {
            holds &= finding.holds;
            whys.push(finding.why);
        }
        Finding { holds, why: whys.join("; ") }
    }

    /// At least one of them holds: that one, or else all of them.
    pub fn any(findings: impl IntoIterator<Item = Finding>) -> Finding {
        let findings: Vec<Finding> = findings.into_iter().collect();
        let first = findings.iter().find(|finding| finding.holds).cloned();
        first.unwrap_or_else(|| Finding { holds: false, ..Finding::all(findings) })
    }
}

/// Whether all that is asked for holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Nothing is asked for.
    None,
}

/// The claims with what became of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether all of them hold.
    pub answer: Answer,
    /// Each of them.
    pub claims: Vec<Judged>,
}

/// A claim with what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// What is asked for.
    pub text: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// By which figures.
    pub why: String,
}

impl Verdict {
    /// Holds these claims against these tables.
    pub fn of(claims: &[Claim], tables: &[Table]) -> Verdict {
        let judge = |claim: &Claim| {
            let finding = (claim.test)(&Figures(tables));
            let finding = finding.unwrap_or_else(|missing| Finding::new(false, missing.to_string()));
            Judged { text: claim.text, holds: finding.holds, why: finding.why }
        };
        let claims: Vec<Judged> = claims.iter().map(judge).collect();
        let answer = match (claims.is_empty(), claims.iter().all(|claim| claim.holds)) {
            (true, _) => Answer::None,
            (false, true) => Answer::Yes,
            (false, false) => Answer::No,
        };
        Verdict { answer, claims }
    }
}

impl Answer {
    /// `yes`, `no` or `none`.
    pub fn name(self) -> &'static str {
        match self {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::None => "none",
        }
    }
}
