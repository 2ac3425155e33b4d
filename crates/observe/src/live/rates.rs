//! Rates between two successive reports.

use std::collections::VecDeque;

use serde_json::Value;

/// Rates kept for the sparkline.
const KEPT: usize = 512;

/// The last two reports.
pub struct ReportRates {
    before: Value,
    now: Value,
    /// Packets per second, one value for each report.
    history: VecDeque<u64>,
}

impl ReportRates {
    /// Starts with one report, and rates of zero.
    pub fn new(report: Value) -> ReportRates {
        ReportRates { before: report.clone(), now: report, history: VecDeque::new() }
    }

    /// Takes the next report. A repetition of the latest one is ignored: reports are made once a
    /// second.
    pub fn take(&mut self, report: Value) {
        if report["timing"]["seconds"] == self.now["timing"]["seconds"] {
            return;
        }
        self.before = std::mem::replace(&mut self.now, report);
        if self.seconds() < 0.0 {
            // The answer is of another run.
            self.before = self.now.clone();
        }
        self.history.truncate(KEPT - 1);
        self.history.push_front(self.per_second("/packets_in") as u64);
    }

    /// Returns the latest report.
    pub fn now(&self) -> &Value {
        &self.now
    }

    /// Returns packets per second, the latest first.
    pub fn history(&self) -> impl Iterator<Item = u64> {
        self.history.iter().copied()
    }

    /// Returns the value of a counter, named by a JSON pointer.
    pub fn total(&self, pointer: &str) -> u64 {
        self.now.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns the rate of a counter.
    pub fn per_second(&self, pointer: &str) -> f64 {
        let before = self.before.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let grown = self.total(pointer).saturating_sub(before) as f64;
        if self.seconds() > 0.0 { grown / self.seconds() } else { 0.0 }
    }

    /// Returns the latest report with `rates`, the rates of its counters.
    pub fn to_json(&self) -> Value {
        let mut report = self.now.clone();
        let rates = grown(&self.before, &self.now, self.seconds());
        if let (Some(report), Some(rates)) = (report.as_object_mut(), rates) {
            report.insert("rates".to_owned(), rates);
        }
        report
    }

    fn seconds(&self) -> f64 {
        let at = |report: &Value| report["timing"]["seconds"].as_f64().unwrap_or(0.0);
        at(&self.now) - at(&self.before)
    }
}

/// Returns the rates of the numbers of a report, in the same places. Lists become objects, keyed by
/// the names of their items.
fn grown(before: &Value, now: &Value, seconds: f64) -> Option<Value> {
    match now {
        Value::Number(number) => {
            let grown = number.as_u64()?.saturating_sub(before.as_u64().unwrap_or(0)) as f64;
            Some(Value::from(if seconds > 0.0 { grown / seconds } else { 0.0 }))
        }
        Value::Object(fields) => {
            let grown = fields.iter().filter_map(|(name, now)| {
                let is_counter = !matches!(name.as_str(), "timing" | "seed" | "version");
                let grown = is_counter.then(|| grown(&before[name], now, seconds))??;
                Some((name.clone(), grown))
            });
            let grown: serde_json::Map<_, _> = grown.collect();
            (!grown.is_empty()).then_some(Value::Object(grown))
        }
        Value::Array(items) => {
            let named = items.iter().enumerate().filter_map(|(at, now)| {
                // Names of rules need not be unique, numbers are.
                let number = now["number"].as_u64().map(|number| number.to_string());
                let name = number.or_else(|| now["name"].as_str().map(str::to_owned))?;
                Some((name, grown(&before[at], now, seconds)?))
            });
            let named: serde_json::Map<_, _> = named.collect();
            (!named.is_empty()).then_some(Value::Object(named))
        }
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_follow_the_time_between_reports() {
        let report =
            |seconds: f64, packets: u64| json!({"timing": {"seconds": seconds}, "packets_in": packets});
        let mut rates = ReportRates::new(report(10.0, 100));
        assert_eq!(rates.per_second("/packets_in"), 0.0);
        rates.take(report(12.0, 300));
        assert_eq!(rates.per_second("/packets_in"), 100.0);
        rates.take(report(12.0, 300));
        assert_eq!(rates.per_second("/packets_in"), 100.0, "a repeated report");
        rates.take(report(1.0, 50));
        assert_eq!(rates.per_second("/packets_in"), 0.0, "another run");
        assert_eq!(rates.history().collect::<Vec<_>>(), [0, 100]);
        assert_eq!(rates.per_second("/not/there"), 0.0);
        let report = |seconds: f64, packets: u64| {
            let rules = json!([{"number": 1, "name": "a", "packets": packets}, {"number": 2, "name": "a", "packets": 0}]);
            let functions = json!([{"name": "guard", "type": "firewall", "drops": packets, "rules": rules}]);
            json!({"timing": {"seconds": seconds}, "packets_in": packets, "functions": functions})
        };
        let mut rates = ReportRates::new(report(1.0, 100));
        rates.take(report(3.0, 300));
        let shown = rates.to_json();
        assert_eq!(shown["rates"]["packets_in"], 100.0);
        assert_eq!(shown["rates"]["functions"]["guard"]["drops"], 100.0);
        let rules = &shown["rates"]["functions"]["guard"]["rules"];
        assert_eq!([&rules["1"]["packets"], &rules["2"]["packets"]], [100.0, 0.0]);
        assert_eq!(shown["packets_in"], 300);
    }
}
