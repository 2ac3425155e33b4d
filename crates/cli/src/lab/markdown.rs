//! Outcomes as Markdown: a page for each experiment, and an index.

use ::lab::{ClaimAnswer, ClaimsVerdict, ExperimentOutcome, JudgedClaim};

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

/// Returns the page of an experiment: its question, verdicts, tables, claims and notes. `options`
/// reproduce it.
pub fn page(outcome: &ExperimentOutcome, options: &str) -> String {
    let ExperimentOutcome { id, title, question, published, seeds, tables, notes, .. } = outcome;
    let mut text = format!("# {id}: {title}\n\n{question}\n\nPublished: {published}.\n\n");
    let verdicts = verdicts(outcome);
    let answers = verdicts.iter().map(|(name, of)| format!("**{name}: {}**", of.answer.name()));
    text += &(answers.collect::<Vec<_>>().join(", ") + "\n");
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
    for (name, verdict) in verdicts.iter().filter(|(_, verdict)| !verdict.claims.is_empty()) {
        text += &format!("\n## Claims: {name}\n\n");
        for JudgedClaim { text: asked, holds, why } in &verdict.claims {
            text += &format!("- {}: {asked}. {why}\n", if *holds { "yes" } else { "no" });
        }
    }
    if !notes.is_empty() {
        text += "\n## Notes\n\n";
    }
    notes.iter().for_each(|note| text += &format!("- {note}\n"));
    text + &format!("\n## Reproduction\n\n```sh\nrivulet lab run {id}{options}\n```\n")
}

/// Returns the verdicts by name.
fn verdicts(outcome: &ExperimentOutcome) -> Vec<(&'static str, &ClaimsVerdict)> {
    let all = [("match", &outcome.matched), ("beat", &outcome.beaten), ("real", &outcome.real)];
    all.into_iter().filter(|(name, of)| *name != "real" || of.answer != ClaimAnswer::None).collect()
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<String> = cells.map(|cell| cell.trim().replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}
