//! Outcomes as Markdown: a page for each experiment, and an index.

use ::lab::{Answer, ClaimsVerdict, ExperimentOutcome, Judged};

use super::show;

/// Returns the index: a table of verdicts that links each experiment's page.
pub fn index(outcomes: &[ExperimentOutcome]) -> String {
    let mut text = "| | experiment | match | beat |\n|---|---|---|---|\n".to_owned();
    for ExperimentOutcome { id, title, matched, beaten, .. } in outcomes {
        let (matched, beaten) = (matched.answer.name(), beaten.answer.name());
        text += &format!("| [{id}]({id}.md) | {title} | {matched} | {beaten} |\n");
    }
    text
}

/// Returns the page of an experiment; `options` reproduce it.
pub fn page(outcome: &ExperimentOutcome, options: &str) -> String {
    let ExperimentOutcome { id, title, published, seeds, tables, matched, beaten, real, notes, .. } = outcome;
    let mut text =
        format!("# {id}: {title}\n\nPublished: {published}. Made by `rivulet lab run {id}{options}`.\n");
    for table in tables {
        let head = show::head(table);
        text += &format!("\n{}\n\n", show::caption(table, *seeds));
        text += &line(head.iter().copied());
        text += &line(head.iter().map(|_| "---"));
        show::rows(table).iter().for_each(|row| text += &line(row.iter().map(String::as_str)));
    }
    for (row, why) in outcome.failures() {
        text += &format!("\nFailed: {row}: {why}\n");
    }
    text += &verdict("match", matched);
    text += &verdict("beat", beaten);
    if real.answer != Answer::None {
        text += &verdict("real", real);
    }
    if !notes.is_empty() {
        text += "\nNotes:\n\n";
    }
    notes.iter().for_each(|note| text += &format!("- {note}\n"));
    text
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<String> = cells.map(|cell| cell.trim().replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

fn verdict(name: &str, verdict: &ClaimsVerdict) -> String {
    let mut text = format!("\n**{name}: {}**\n", verdict.answer.name());
    if !verdict.claims.is_empty() {
        text += "\n";
    }
    for Judged { text: asked, holds, why } in &verdict.claims {
        text += &format!("- {}: {asked}. {why}\n", if *holds { "yes" } else { "no" });
    }
    text
}
