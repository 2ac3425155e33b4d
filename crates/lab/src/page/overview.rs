//! The overview of all experiments: how many match, beat and pass, and a table.

use std::fmt::Write;

use super::{PageError, PageVerdicts, ResultPage};
use crate::experiments::{Experiment, OverviewRow};
use crate::verdict::ClaimAnswer;

/// Columns of a page.
const COLUMNS_MAX: usize = 100;

/// An overview that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverviewError {
    /// A page cannot be judged.
    #[error("{0}: {1}")]
    Page(&'static str, #[source] PageError),
    /// A figure is not on the page.
    #[error("{0}: no figure {{{1}}}")]
    Figure(&'static str, String),
}

/// Returns the overview as Markdown: sentences with the numbers of verdicts, and a row for each
/// experiment, with links to pages in a folder `evaluation`. `of_hosts` is the page of U4.
///
/// # Errors
/// If a claim was not judged, or a row names a figure that its page does not have.
pub fn overview(
    pages: &[(&Experiment, ResultPage)],
    of_hosts: Option<&ResultPage>,
) -> Result<String, OverviewError> {
    let verdicts = pages.iter().map(|(experiment, page)| {
        page.verdicts(experiment).map_err(|error| OverviewError::Page(experiment.id, error))
    });
    let verdicts = verdicts.collect::<Result<Vec<_>, _>>()?;
    let mut text = sentences(pages, &verdicts);
    text += "\n| | question | published | ours | match | beat | check | main caveat |\n";
    text += "|---|---|---|---|---|---|---|---|\n";
    for ((experiment, page), verdicts) in pages.iter().zip(&verdicts) {
        let Experiment { id, question, summary: OverviewRow { published, found, caveat }, .. } = experiment;
        let filled = |text| filled(text, page).map_err(|name| OverviewError::Figure(id, name));
        let is_borne_out = of_hosts.is_none_or(|hosts| hosts.not_borne_out(id).is_empty());
        let hosts = if is_borne_out { "" } else { "hosts do not bear out all of it (U4)" };
        let (found, caveat) = (filled(found)?, filled(caveat)?);
        let caveats = [hosts, &caveat].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
        let answers = verdicts.all().map(|(_, verdict)| verdict.answer.name());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| [{id}](evaluation/{id}.md) | {question} | {published} | {found} | {} | {} |",
            answers.join(" | "),
            caveats.join("; ")
        );
    }
    Ok(text)
}

/// Returns the sentences with the numbers of verdicts.
fn sentences(pages: &[(&Experiment, ResultPage)], verdicts: &[PageVerdicts]) -> String {
    let ids = |class: usize, answer: ClaimAnswer| -> Vec<&str> {
        let judged =
            pages.iter().zip(verdicts).filter(|(_, verdicts)| verdicts.all()[class].1.answer == answer);
        judged.map(|((experiment, _), _)| experiment.id).collect()
    };
    let [matched, beaten, checked] = [0, 1, 2].map(|class| ids(class, ClaimAnswer::Yes));
    let [not_matched, not_beaten, not_checked] = [0, 1, 2].map(|class| ids(class, ClaimAnswer::No));
    let [fitted, _, fitted_checks] = [0, 1, 2].map(|class| ids(class, ClaimAnswer::ByFit));
    let unpublished = ids(0, ClaimAnswer::None);
    let lines = [
        format!("Of {} experiments:", pages.len()),
        String::new(),
        format!("- **match**: {}", listed(&matched)),
        format!("- match by fit, which shows nothing: {}", listed(&fitted)),
        format!("- no match: {}", listed(&not_matched)),
        format!("- without a figure of the four papers to match: {}", listed(&unpublished)),
        format!("- **beat**: {}; no: {}", listed(&beaten), listed(&not_beaten)),
        format!(
            "- **check** passed: {}; by fit: {}; failed: {}",
            listed(&checked),
            listed(&fitted_checks),
            listed(&not_checked)
        ),
    ];
    lines.map(|line| wrapped(&line)).concat()
}

/// Returns the number of identifiers, and these.
fn listed(ids: &[&str]) -> String {
    if ids.is_empty() { "none".to_owned() } else { format!("{} ({})", ids.len(), ids.join(", ")) }
}

/// Returns a line, broken such that none has more than 100 columns.
fn wrapped(line: &str) -> String {
    let (mut text, mut columns) = (String::new(), 0);
    for word in line.split(' ') {
        if columns > 0 && columns + 1 + word.len() > COLUMNS_MAX {
            text += "\n ";
            columns = 1;
        }
        if columns > 0 {
            text += " ";
            columns += 1;
        }
        text += word;
        columns += word.len();
    }
    text + "\n"
}

/// Returns the text with the medians of the page in place of their names, or the name of a missing
/// one.
fn filled(text: &str, page: &ResultPage) -> Result<String, String> {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').ok_or_else(|| part.to_owned())?;
        let mut fields = name.splitn(3, '|');
        let mut field = || fields.next().unwrap_or_default();
        let table = field().parse().map_err(|_| name.to_owned())?;
        let median = page.median(table, field(), field()).ok_or_else(|| name.to_owned())?;
        filled += &median;
        filled += rest;
    }
    Ok(filled)
}
