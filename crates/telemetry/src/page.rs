//! Texts that are made from the catalogue: help texts and tables of the documentation.

use crate::event::LogEvent;
use crate::metric::Family;
use crate::record::RecordField;

/// Returns the help text of a metric: the first sentence, without Markdown and the full stop.
pub fn help(text: &str) -> String {
    let text = text.trim();
    let end = text.find(". ").or_else(|| text.find(": see ")).unwrap_or(text.len());
    let mut plain = String::new();
    let mut rest = text[..end].trim_end_matches('.');
    while let Some(start) = rest.find('[') {
        let link = &rest[start + 1..];
        let (Some(end), true) = (link.find(']'), link.contains("](")) else { break };
        plain += &rest[..start];
        plain += &link[..end];
        rest = link[end..].split_once(')').map_or("", |(_, rest)| rest);
    }
    plain += rest;
    plain.replace('`', "")
}

/// Returns the table of a record's fields in the report.
pub fn report_table<'a>(fields: impl IntoIterator<Item = &'a RecordField>) -> String {
    let mut table = "| field | meaning | metric |\n|---|---|---|\n".to_owned();
    for field in fields {
        let Some(key) = field.key else { continue };
        let metric = field.family.map_or_else(String::new, |family| {
            let part = family.label.zip(field.part);
            let part = part.map_or_else(String::new, |(label, value)| format!("{{{label}=\"{value}\"}}"));
            format!("`{}{part}`", family.sample_name())
        });
        table += &format!("| `{key}` | {} | {metric} |\n", field.help);
    }
    table
}

/// Returns the table of metrics.
pub fn metrics_table<'a>(families: impl IntoIterator<Item = &'a Family>) -> String {
    let mut rows = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for family in families {
        let labels: Vec<_> = family.labels().map(|label| format!("`{label}`")).collect();
        let kind = format!("{:?}", family.kind).to_lowercase();
        let name = family.sample_name();
        rows += &format!("| `{name}` | {kind} | {} | {} |\n", labels.join(", "), family.help);
    }
    rows
}

/// Returns the table of events.
pub fn events_table(events: &[LogEvent]) -> String {
    let mut table = "| event | level | target | fields | meaning |\n|---|---|---|---|---|\n".to_owned();
    for LogEvent { name, target, level, help, fields, .. } in events {
        let fields: Vec<_> = fields.iter().map(|field| format!("`{field}`")).collect();
        let (level, fields) = (level.as_str().to_lowercase(), fields.join(", "));
        table += &format!("| `{name}` | {level} | `{target}` | {fields} | {help} |\n");
    }
    table
}

/// Replaces the tables of a page: what stands between `<!-- table: NAME -->` and `<!-- end -->`.
///
/// # Errors
/// If a table has no end, or `table` knows no table of its name.
pub fn replace_tables(page: &str, table: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut text, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once("<!-- table: ") {
        let (name, after) = after.split_once(" -->").ok_or("a mark has no end")?;
        let (_, after) = after.split_once("<!-- end -->").ok_or(format!("table {name} has no end"))?;
        let table = table(name).ok_or(format!("no table has the name {name}"))?;
        text += &format!("{before}<!-- table: {name} -->\n\n{table}\n<!-- end -->");
        rest = after;
    }
    Ok(text + rest)
}
