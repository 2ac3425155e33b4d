//! The index of outcomes as Markdown.

use ::lab::ExperimentOutcome;

/// Returns the index: a table of verdicts that links each experiment's page.
pub fn index(outcomes: &[ExperimentOutcome]) -> String {
    let mut text = "| | experiment | match | beat | check |\n|---|---|---|---|---|\n".to_owned();
    for ExperimentOutcome { id, title, matched, beaten, checked, .. } in outcomes {
        let [matched, beaten, checked] = [matched, beaten, checked].map(|verdict| verdict.answer.name());
        text += &format!("| [{id}]({id}.md) | {title} | {matched} | {beaten} | {checked} |\n");
    }
    text
}
