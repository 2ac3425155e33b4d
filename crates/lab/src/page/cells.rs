//! Lines of tables and their cells.

use crate::statistics::Estimate;
use crate::table::{CostProfile, FigureUnit};

/// The name of a row of published values.
pub const PUBLISHED: &str = "published";

/// Units as cells write them, with their factors.
const UNITS: [(&str, f64, FigureUnit); 16] = [
    ("Gbit/s", 1e9, FigureUnit::BitsPerSecond),
    ("Mbit/s", 1e6, FigureUnit::BitsPerSecond),
    ("kbit/s", 1e3, FigureUnit::BitsPerSecond),
    ("bit/s", 1.0, FigureUnit::BitsPerSecond),
    ("Gbit", 1e9, FigureUnit::Bits),
    ("Mbit", 1e6, FigureUnit::Bits),
    ("kbit", 1e3, FigureUnit::Bits),
    ("bit", 1.0, FigureUnit::Bits),
    ("s", 1e9, FigureUnit::Ns),
    ("ms", 1e6, FigureUnit::Ns),
    ("us", 1e3, FigureUnit::Ns),
    ("ns", 1.0, FigureUnit::Ns),
    ("%", 0.01, FigureUnit::Share),
    ("M", 1e6, FigureUnit::Count),
    ("k", 1e3, FigureUnit::Count),
    ("", 1.0, FigureUnit::Ratio),
];

/// Returns a line of a table.
pub fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.trim().replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Returns the cells of a line of a table; `None` if it is none.
pub fn row(line: &str) -> Option<Vec<String>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    // No cell has a NUL.
    let cells = inner.replace("\\|", "\0");
    Some(cells.split('|').map(|cell| cell.trim().replace('\0', "|")).collect())
}

/// Returns the profile and the title of a caption.
pub fn caption(line: &str) -> Option<(CostProfile, &str)> {
    let profiles = [CostProfile::Paper, CostProfile::Here, CostProfile::Real];
    profiles.into_iter().find_map(|profile| {
        let rest = line.strip_prefix(profile.name())?.strip_prefix(": ")?;
        let end = rest.rfind("; medians").or_else(|| rest.rfind("; one seed")).unwrap_or(rest.len());
        Some((profile, &rest[..end]))
    })
}

/// Returns a value and its unit.
pub fn quantity(text: &str) -> Option<(f64, FigureUnit)> {
    let (value, factor, unit) = parts(text)?;
    Some((value * factor, unit))
}

/// Returns the number, the factor and the unit of a value.
fn parts(text: &str) -> Option<(f64, f64, FigureUnit)> {
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || "+-.e".contains(c);
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let value = text[..end].parse().ok()?;
    let name = text[end..].trim();
    let (_, factor, unit) = UNITS.into_iter().find(|(unit, ..)| *unit == name)?;
    Some((value, factor, unit))
}

/// Returns the figure of a cell: `1.20 [1.10, 1.30] us`, `9.0 ns [0 ns, 1.2 us]` or `1.20 us`. It
/// has no values of seeds, unless it is one value.
pub fn estimate(cell: &str) -> Option<Estimate> {
    let Some((median, rest)) = cell.split_once('[') else {
        let (median, _) = quantity(cell)?;
        return Some(Estimate { median, low: median, high: median, values: vec![median] });
    };
    let (interval, unit) = rest.split_once(']')?;
    let (low, high) = interval.split_once(',')?;
    let value = |text: &str| quantity(&format!("{}{unit}", text.trim())).map(|(value, _)| value);
    Some(Estimate { median: value(median)?, low: value(low)?, high: value(high)?, values: Vec::new() })
}

/// Returns the unit of a cell; `None` if it has no figure.
pub fn unit(cell: &str) -> Option<FigureUnit> {
    let (median, rest) = cell.split_once('[').unwrap_or((cell, ""));
    let suffix = rest.split_once(']').map_or("", |(_, suffix)| suffix);
    quantity(&format!("{}{suffix}", median.trim())).map(|(_, unit)| unit)
}

/// Returns the median of a cell, with its unit.
pub fn median(cell: &str) -> String {
    let Some((median, rest)) = cell.split_once('[') else { return cell.replace('%', " %") };
    let unit = rest.split_once(']').map_or("", |(_, unit)| unit).trim();
    let median = median.trim().replace('%', " %");
    if unit.is_empty() { median } else { format!("{median} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_as_written() {
        let of = |cell| estimate(cell).map(|e| [e.median, e.low, e.high]).unwrap();
        let close = |found: [f64; 3], wanted: [f64; 3]| {
            found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() <= 1e-9 * wanted.abs())
        };
        assert!(close(of("1.23 [0.95, 22.0] ms"), [1.23e6, 0.95e6, 22e6]));
        assert!(close(of("670 ns [440 ns, 27.0 ms]"), [670.0, 440.0, 27e6]));
        assert!(close(of("98.7 [98.1, 100]%"), [0.987, 0.981, 1.0]));
        assert!(close(of("2.3e-4 [5.5e-5, 3.6e-4]%"), [2.3e-6, 5.5e-7, 3.6e-6]));
        assert!(close(of("-3310 [-8177, 1384] ns"), [-3310.0, -8177.0, 1384.0]));
        assert!(close(of("3.62 Mbit/s"), [3.62e6; 3]));
        assert_eq!(estimate("-"), None);
        assert_eq!(estimate("failed"), None);
        assert_eq!(unit("10.0 [10.0, 10.0] k"), Some(FigureUnit::Count));
        assert_eq!(median("98.7 [98.1, 100]%"), "98.7 %");
        assert_eq!(median("670 ns [440 ns, 27.0 ms]"), "670 ns");
        assert_eq!(median("0% [0%, 0.20%]"), "0 %");
    }

    #[test]
    fn lines_are_read_as_written() {
        let cells = ["", "a | b", "c"].map(str::to_owned);
        assert_eq!(row(line(&cells).trim()).unwrap(), cells);
        assert_eq!(row("no table"), None);
        let text = "REAL: of a packet; in turn; medians, [95% interval of a bootstrap]";
        assert_eq!(caption(text), Some((CostProfile::Real, "of a packet; in turn")));
        assert_eq!(caption("Published: nothing."), None);
    }
}
