//! Claims of published results, and their verdicts (R3).

use serde::Serialize;

use crate::statistics::Estimate;
use crate::table::FigureTable;

/// A claim about the figures of an experiment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Claim {
    /// In words.
    pub text: &'static str,
    /// In code.
    #[serde(skip)]
    pub test: fn(&MeasuredFigures<'_>) -> Result<ClaimFinding, MissingFigure>,
}

/// The outcome of a claim, with its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFinding {
    /// The claim holds.
    pub holds: bool,
    /// The claim holds by construction: parameters were fitted to it.
    pub is_by_fit: bool,
    /// The figures.
    pub why: String,
}

/// A figure that a claim is about was not measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{row} has no {metric}")]
pub struct MissingFigure {
    row: String,
    metric: String,
}

/// The figures of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredFigures<'a>(pub &'a [FigureTable]);

impl<'a> MeasuredFigures<'a> {
    /// A figure of the first table.
    ///
    /// # Errors
    /// If it is not there, or a run of it failed.
    pub fn get(&self, row: &str, metric: &str) -> Result<&'a Estimate, MissingFigure> {
        self.of(0, row, metric)
    }

    /// A figure of a table, which is counted from 0.
    ///
    /// # Errors
    /// If it is not there, or a run of it failed.
    pub fn of(&self, table: usize, row: &str, metric: &str) -> Result<&'a Estimate, MissingFigure> {
        let found = self.0.get(table).and_then(|table| table.get(row, metric));
        found.ok_or_else(|| MissingFigure { row: row.to_owned(), metric: metric.to_owned() })
    }
}

impl ClaimFinding {
    /// It holds, or does not, because of this.
    pub fn new(holds: bool, why: impl Into<String>) -> ClaimFinding {
        ClaimFinding { holds, is_by_fit: false, why: why.into() }
    }

    /// The same of something that was made such that it holds.
    pub fn by_fit(self, of: &str) -> ClaimFinding {
        ClaimFinding {
            is_by_fit: true,
            why: format!("{}; by the fit of {of}: shows nothing", self.why),
            ..self
        }
    }

    /// All of them hold.
    pub fn all(findings: impl IntoIterator<Item = ClaimFinding>) -> ClaimFinding {
        let (mut holds, mut is_by_fit, mut whys) = (true, false, Vec::new());
        for finding in findings {
            holds &= finding.holds;
            is_by_fit |= finding.is_by_fit;
            whys.push(finding.why);
        }
        ClaimFinding { holds, is_by_fit, why: whys.join("; ") }
    }
}

/// The verdict on several claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimAnswer {
    /// It does.
    Yes,
    /// It does, but some of it because what was run was made such that it does.
    #[serde(rename = "by fit")]
    ByFit,
    /// It does not.
    No,
    /// Nothing is required.
    None,
}

/// The claims with their outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimsVerdict {
    /// The verdict on all of them.
    pub answer: ClaimAnswer,
    /// Each of them.
    pub claims: Vec<JudgedClaim>,
}

/// A claim with what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JudgedClaim {
    /// The claim.
    pub text: &'static str,
    /// It holds.
    pub holds: bool,
    /// It holds by construction.
    pub is_by_fit: bool,
    /// The figures.
    pub why: String,
}

impl ClaimsVerdict {
    /// Judges these claims by these tables.
    pub fn of(claims: &[Claim], tables: &[FigureTable]) -> ClaimsVerdict {
        let judge = |claim: &Claim| {
            let finding = (claim.test)(&MeasuredFigures(tables));
            finding.unwrap_or_else(|missing| ClaimFinding::new(false, missing.to_string()))
        };
        ClaimsVerdict::of_findings(claims, claims.iter().map(judge).collect())
    }

    /// Returns the verdict on claims with these findings, one for each.
    pub fn of_findings(claims: &[Claim], findings: Vec<ClaimFinding>) -> ClaimsVerdict {
        let all = ClaimFinding::all(findings.iter().cloned());
        let answer = match (claims.is_empty(), all.holds, all.is_by_fit) {
            (true, ..) => ClaimAnswer::None,
            (false, false, _) => ClaimAnswer::No,
            (false, true, true) => ClaimAnswer::ByFit,
            (false, true, false) => ClaimAnswer::Yes,
        };
        let judged = claims.iter().zip(findings);
        let judged = judged.map(|(claim, ClaimFinding { holds, is_by_fit, why })| JudgedClaim {
            text: claim.text,
            holds,
            is_by_fit,
            why,
        });
        ClaimsVerdict { answer, claims: judged.collect() }
    }
}

impl ClaimAnswer {
    /// `yes`, `by fit`, `no` or `none`.
    pub fn name(self) -> &'static str {
        match self {
            ClaimAnswer::Yes => "yes",
            ClaimAnswer::ByFit => "by fit",
            ClaimAnswer::No => "no",
            ClaimAnswer::None => "none",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{CostProfile, FigureUnit, RowKind, TableMetric, TableRow};

    fn table() -> FigureTable {
        let metric = TableMetric { name: "p99", unit: FigureUnit::Ns };
        let row = |name: &str, values: [f64; 3]| TableRow::of(name, RowKind::Baseline, vec![values.to_vec()]);
        FigureTable {
            title: String::new(),
            profile: CostProfile::Paper,
            metrics: vec![metric],
            rows: vec![
                row("fast", [1.0, 2.0, 3.0]),
                row("slow", [4.0, 5.0, 6.0]),
                row("both", [2.0, 4.0, 5.0]),
            ],
        }
    }

    fn below(f: &MeasuredFigures<'_>, low: &str, high: &str) -> Result<ClaimFinding, MissingFigure> {
        Ok(ClaimFinding::new(f.get(low, "p99")?.is_below(f.get(high, "p99")?), low))
    }

    #[test]
    fn a_verdict_holds_if_all_claims_do() {
        let good = Claim { text: "fast is fast", test: |f| below(f, "fast", "slow") };
        let vague = Claim { text: "who knows", test: |f| below(f, "fast", "both") };
        let missing = Claim { text: "nobody", test: |f| below(f, "fast", "nobody") };
        let of = |claims: &[Claim]| ClaimsVerdict::of(claims, &[table()]);
        assert_eq!(of(&[]).answer, ClaimAnswer::None);
        assert_eq!(of(&[good]).answer, ClaimAnswer::Yes);
        assert_eq!(of(&[good, vague]).answer, ClaimAnswer::No);
        let verdict = of(&[missing]);
        assert_eq!(verdict.answer, ClaimAnswer::No);
        assert_eq!(verdict.claims[0].why, "nobody has no p99");
    }

    #[test]
    fn findings_come_together() {
        let [yes, no] = [ClaimFinding::new(true, "a"), ClaimFinding::new(false, "b")];
        assert_eq!(ClaimFinding::all([yes.clone(), no.clone()]), ClaimFinding::new(false, "a; b"));
    }

    #[test]
    fn what_was_made_to_hold_shows_nothing() {
        let real = Claim { text: "fast is fast", test: |f| below(f, "fast", "slow") };
        let fitted = Claim { text: "as fitted", test: |f| Ok(below(f, "fast", "slow")?.by_fit("a trace")) };
        let vague = Claim { text: "who knows", test: |f| below(f, "fast", "both") };
        let of = |claims: &[Claim]| ClaimsVerdict::of(claims, &[table()]);
        assert_eq!(of(&[real, fitted]).answer, ClaimAnswer::ByFit);
        assert_eq!(of(&[fitted, vague]).answer, ClaimAnswer::No);
        assert_eq!(of(&[fitted]).claims[0].why, "fast; by the fit of a trace: shows nothing");
        assert_eq!(ClaimAnswer::ByFit.name(), serde_json::to_value(ClaimAnswer::ByFit).unwrap());
    }

    #[test]
    fn ratios_are_against_one_row() {
        let table = table().with_ratio("x fast", "p99", "fast").paper("slow", "x fast", 9.0);
        assert_eq!(table.get("slow", "x fast").map(|ratio| ratio.median), Some(2.5));
        assert_eq!(table.rows[1].cells[1].paper, Some(9.0));
    }
}
