//! Outcome of an experiment as text.

use ::lab::shown::{caption, head, one, rows};
use ::lab::{BestSettings, ClaimsVerdict, ExperimentOutcome, FigureTable, JudgedClaim, TuningOutcome};

use crate::output;

/// Renders the outcome of an experiment.
pub fn outcome(outcome: &ExperimentOutcome) -> String {
    let ExperimentOutcome { id, title, question, published, tables, matched, beaten, checked, notes, .. } =
        outcome;
    let mut text = format!("{id}  {title}\n{question}\npublished: {published}\n");
    for shown in tables {
        text += &format!("\n{}\n", caption(shown));
        text += &table(shown);
    }
    text += "\n";
    for (row, why) in outcome.failures() {
        text += &format!("FAILED: {row}: {why}\n");
    }
    text += &verdict("match", matched);
    text += &verdict("beat", beaten);
    text += &verdict("check", checked);
    for note in notes {
        text += &format!("note: {note}\n");
    }
    text + "\n"
}

/// Renders the result of a sweep.
pub fn tuning(tuning: &TuningOutcome) -> String {
    let TuningOutcome { id, seeds, tables, best } = tuning;
    let mut text = format!("{id}  settings of baselines, seeds {} to {}\n", seeds.start(), seeds.end());
    for shown in tables {
        text += &format!("\n{}\n", caption(shown));
        text += &table(shown);
    }
    text += "\n";
    for (row, why) in tuning.failures() {
        text += &format!("FAILED: {row}: {why}\n");
    }
    for BestSettings { baseline, objective, points, point, value, published, is_in_use, .. } in best {
        let (value, published) = (one(objective, *value), one(objective, *published));
        let in_use = if *is_in_use { "in use" } else { "not what experiments use" };
        text += &format!(
            "{baseline}, least {}: {point}: {value}, as published {published}; best of {points}, {in_use}\n",
            objective.name
        );
    }
    text + "\n"
}

fn table(shown: &FigureTable) -> String {
    let mut table = output::Table::new(&head(shown));
    rows(shown).into_iter().for_each(|row| table.row(row));
    table.render()
}

fn verdict(name: &str, verdict: &ClaimsVerdict) -> String {
    let mut text = format!("{name}: {}\n", verdict.answer.name());
    for JudgedClaim { text: claimed, holds, why, .. } in &verdict.claims {
        text += &format!("  {} {claimed}: {why}\n", if *holds { "yes" } else { "no " });
    }
    text
}
