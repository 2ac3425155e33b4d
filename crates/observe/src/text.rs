//! Tables and numbers as text for people.

use telemetry::shown;

/// A text table with numbers aligned right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these column heads.
    pub fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row. Escapes control characters.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| shown(cell).to_string()).collect());
    }

    /// Renders the table; each line ends with a newline.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric = |column: usize| {
            self.rows[1..].iter().filter_map(|row| row.get(column)).all(|cell| {
                cell.chars().all(|c| c.is_ascii_digit() || ",.-% ".contains(c)) && !cell.is_empty()
            })
        };
        let right: Vec<bool> = (0..columns).map(|column| self.rows.len() > 1 && numeric(column)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[column] - cell.chars().count());
                match right[column] {
                    true => line.extend([&padding, cell.as_str(), "  "]),
                    false => line.extend([cell.as_str(), &padding, "  "]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Formats a rate in bits per second with a suitable unit.
pub fn rate(bps: f64) -> String {
    let (factor, unit) = match bps {
        1e9.. => (1e-9, "Gbit/s"),
        1e6.. => (1e-6, "Mbit/s"),
        _ => (1e-3, "kbit/s"),
    };
    format!("{:.2} {unit}", bps * factor)
}

/// Formats a number with thousands separators: `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time with a suitable unit: `850 ns`, `1.2 us`, `30 ms`, `2.5 s`.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", "count"]);
        table.row(vec!["nat".into(), thousands(1_234_567)]);
        table.row(vec!["firewall".into(), "9".into()]);
        assert_eq!(table.render(), "name          count\nnat       1,234,567\nfirewall          9\n");
    }

    #[test]
    fn numbers_have_separators_and_units() {
        assert_eq!([thousands(0), thousands(999), thousands(1000)], ["0", "999", "1,000"]);
        assert_eq!(duration(850), "850 ns");
        assert_eq!(duration(1_250), "1.2 us");
        assert_eq!(duration(2_500_000_000), "2.5 s");
    }
}
