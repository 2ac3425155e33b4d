//! The settings of tuned baselines, found by the sweeps.

use super::{TUNING_SEEDS, name, sweeps, with};
use crate::experiments::common;
use crate::runs::RunLength;
use crate::setup::ScenarioText;
use crate::table::{RowKind, RowSubject};

/// A baseline's settings that are best by an objective of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// The experiment; `rivulet lab tune ID` found them, with runs of the length that its sweep
    /// says.
    pub id: &'static str,
    /// The baseline.
    pub baseline: &'static str,
    /// The minimised metric.
    pub objective: &'static str,
    /// A point of the baseline's grid.
    pub settings: &'static [(&'static str, &'static str)],
}

/// All of them.
pub const CHOSEN: &[Chosen] = &[
    Chosen {
        id: "X1",
        baseline: "flow",
        objective: "off demand",
        settings: &[
            ("dispatcher.start_at", "0.5"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "40"),
        ],
    },
    Chosen {
        id: "X1",
        baseline: "smart-flow:100ms",
        objective: "off demand",
        settings: &[
            ("dispatcher.start_at", "0.9"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X1",
        baseline: "smart-flow:50ms",
        objective: "off demand",
        settings: &[
            ("dispatcher.start_at", "0.7"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X1",
        baseline: "smart-flow",
        objective: "off demand",
        settings: &[
            ("dispatcher.mode", "\"smart-flow:50ms\""),
            ("dispatcher.start_at", "0.7"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X1",
        baseline: "packet",
        objective: "off demand",
        settings: &[("dispatcher.start_at", "0.9")],
    },
    Chosen {
        id: "X1",
        baseline: "rss",
        objective: "off demand",
        settings: &[("dispatcher.mode", "\"rss:2048:5ms\""), ("dispatcher.start_at", "0.9")],
    },
    Chosen {
        id: "X1",
        baseline: "flowlet",
        objective: "off demand",
        settings: &[
            ("dispatcher.gap", "\"2ms\""),
            ("dispatcher.size_max", "\"64KB\""),
            ("dispatcher.lambda", "0.25"),
            ("dispatcher.targets_count", "9"),
        ],
    },
    Chosen {
        id: "X1",
        baseline: "following flow",
        objective: "off demand",
        settings: &[
            ("dispatcher.follow_at", "1.0"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X1",
        baseline: "following smart-flow",
        objective: "off demand",
        settings: &[
            ("dispatcher.mode", "\"smart-flow:10ms\""),
            ("dispatcher.follow_at", "1.0"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "40"),
        ],
    },
    Chosen {
        id: "X1",
        baseline: "following packet",
        objective: "off demand",
        settings: &[("dispatcher.follow_at", "1.0")],
    },
    Chosen {
        id: "X1",
        baseline: "following rss",
        objective: "off demand",
        settings: &[("dispatcher.mode", "\"rss:2048:5ms\""), ("dispatcher.follow_at", "1.0")],
    },
    Chosen {
        id: "X2",
        baseline: "flow",
        objective: "p75",
        settings: &[
            ("dispatcher.start_at", "0.7"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "flow",
        objective: "p99",
        settings: &[
            ("dispatcher.start_at", "0.7"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "smart-flow:100ms",
        objective: "p75",
        settings: &[
            ("dispatcher.start_at", "0.7"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "smart-flow:100ms",
        objective: "p99",
        settings: &[
            ("dispatcher.start_at", "0.7"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "smart-flow:50ms",
        objective: "p75",
        settings: &[
            ("dispatcher.start_at", "0.9"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "smart-flow:50ms",
        objective: "p99",
        settings: &[
            ("dispatcher.start_at", "0.7"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "smart-flow",
        objective: "p75",
        settings: &[
            ("dispatcher.mode", "\"smart-flow:20ms\""),
            ("dispatcher.start_at", "0.5"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "smart-flow",
        objective: "p99",
        settings: &[
            ("dispatcher.mode", "\"smart-flow:20ms\""),
            ("dispatcher.start_at", "0.5"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen { id: "X2", baseline: "packet", objective: "p75", settings: &[("dispatcher.start_at", "0.9")] },
    Chosen { id: "X2", baseline: "packet", objective: "p99", settings: &[("dispatcher.start_at", "0.9")] },
    Chosen {
        id: "X2",
        baseline: "rss",
        objective: "p75",
        settings: &[("dispatcher.mode", "\"rss:512:100ms\""), ("dispatcher.start_at", "0.9")],
    },
    Chosen {
        id: "X2",
        baseline: "rss",
        objective: "p99",
        settings: &[("dispatcher.mode", "\"rss:128:100ms\""), ("dispatcher.start_at", "0.9")],
    },
    Chosen {
        id: "X2",
        baseline: "flowlet",
        objective: "p75",
        settings: &[
            ("dispatcher.gap", "\"2ms\""),
            ("dispatcher.size_max", "\"15KB\""),
            ("dispatcher.lambda", "1.0"),
            ("dispatcher.targets_count", "9"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "flowlet",
        objective: "p99",
        settings: &[
            ("dispatcher.gap", "\"2ms\""),
            ("dispatcher.size_max", "\"none\""),
            ("dispatcher.lambda", "1.0"),
            ("dispatcher.targets_count", "9"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "following flow",
        objective: "p75",
        settings: &[
            ("dispatcher.follow_at", "1.0"),
            ("dispatcher.choice", "\"least_loaded\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "following flow",
        objective: "p99",
        settings: &[
            ("dispatcher.follow_at", "1.0"),
            ("dispatcher.choice", "\"least_loaded\""),
            ("dispatcher.buckets", "40"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "following smart-flow",
        objective: "p75",
        settings: &[
            ("dispatcher.mode", "\"smart-flow:50ms\""),
            ("dispatcher.follow_at", "1.0"),
            ("dispatcher.choice", "\"least_loaded\""),
            ("dispatcher.buckets", "40"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "following smart-flow",
        objective: "p99",
        settings: &[
            ("dispatcher.mode", "\"smart-flow:10ms\""),
            ("dispatcher.follow_at", "0.75"),
            ("dispatcher.choice", "\"least_loaded\""),
            ("dispatcher.buckets", "40"),
        ],
    },
    Chosen {
        id: "X2",
        baseline: "following packet",
        objective: "p75",
        settings: &[("dispatcher.follow_at", "1.0")],
    },
    Chosen {
        id: "X2",
        baseline: "following packet",
        objective: "p99",
        settings: &[("dispatcher.follow_at", "1.0")],
    },
    Chosen {
        id: "X2",
        baseline: "following rss",
        objective: "p75",
        settings: &[("dispatcher.mode", "\"rss:512:5ms\""), ("dispatcher.follow_at", "1.0")],
    },
    Chosen {
        id: "X2",
        baseline: "following rss",
        objective: "p99",
        settings: &[("dispatcher.mode", "\"rss:128:20ms\""), ("dispatcher.follow_at", "1.0")],
    },
    Chosen {
        id: "X3",
        baseline: "flow",
        objective: "above 100 %",
        settings: &[
            ("dispatcher.start_at", "0.5"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "40"),
        ],
    },
    Chosen {
        id: "X3",
        baseline: "smart-flow:100ms",
        objective: "above 100 %",
        settings: &[
            ("dispatcher.start_at", "0.5"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X3",
        baseline: "smart-flow:50ms",
        objective: "above 100 %",
        settings: &[
            ("dispatcher.start_at", "0.7"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X3",
        baseline: "smart-flow",
        objective: "above 100 %",
        settings: &[
            ("dispatcher.mode", "\"smart-flow:100ms\""),
            ("dispatcher.start_at", "0.5"),
            ("dispatcher.choice", "\"most_utilised\""),
            ("dispatcher.buckets", "200"),
        ],
    },
    Chosen {
        id: "X3",
        baseline: "packet",
        objective: "above 100 %",
        settings: &[("dispatcher.start_at", "0.9")],
    },
    Chosen {
        id: "X3",
        baseline: "rss",
        objective: "above 100 %",
        settings: &[("dispatcher.mode", "\"rss:128:20ms\""), ("dispatcher.start_at", "0.9")],
    },
    Chosen {
        id: "X3",
        baseline: "flowlet",
        objective: "above 100 %",
        settings: &[
            ("dispatcher.gap", "\"2ms\""),
            ("dispatcher.size_max", "\"64KB\""),
            ("dispatcher.lambda", "0.25"),
            ("dispatcher.targets_count", "9"),
        ],
    },
    Chosen {
        id: "X3",
        baseline: "following flow",
        objective: "above 100 %",
        settings: &[
            ("dispatcher.follow_at", "1.0"),
            ("dispatcher.choice", "\"least_loaded\""),
            ("dispatcher.buckets", "40"),
        ],
    },
    Chosen {
        id: "X3",
        baseline: "following smart-flow",
        objective: "above 100 %",
        settings: &[
            ("dispatcher.mode", "\"smart-flow:50ms\""),
            ("dispatcher.follow_at", "1.0"),
            ("dispatcher.choice", "\"least_loaded\""),
            ("dispatcher.buckets", "40"),
        ],
    },
    Chosen {
        id: "X3",
        baseline: "following packet",
        objective: "above 100 %",
        settings: &[("dispatcher.follow_at", "1.0")],
    },
    Chosen {
        id: "X3",
        baseline: "following rss",
        objective: "above 100 %",
        settings: &[("dispatcher.mode", "\"rss:128:5ms\""), ("dispatcher.follow_at", "1.0")],
    },
    Chosen {
        id: "X5",
        baseline: "external store",
        objective: "p99",
        settings: &[
            ("state.reread", "false"),
            ("dispatcher.gap", "\"500us\""),
            ("dispatcher.size_max", "\"15KB\""),
            ("dispatcher.lambda", "0.25"),
        ],
    },
    Chosen {
        id: "X5",
        baseline: "on demand",
        objective: "p99",
        settings: &[
            ("dispatcher.gap", "\"500us\""),
            ("dispatcher.size_max", "\"15KB\""),
            ("dispatcher.lambda", "0.25"),
        ],
    },
    Chosen {
        id: "X6",
        baseline: "timeout only",
        objective: "p99",
        settings: &[("dispatcher.gap", "\"2ms\""), ("dispatcher.lambda", "0.25")],
    },
];

impl Chosen {
    /// The name of its row.
    pub fn row(&self) -> String {
        common::tuned_row(self.baseline, self.objective)
    }

    /// A scenario of the published algorithm as this baseline.
    pub fn setup(&self, base: ScenarioText) -> ScenarioText {
        let baselines =
            sweeps().iter().filter(|sweep| sweep.id == self.id).flat_map(|sweep| sweep.baselines.iter());
        let fixed =
            baselines.filter(|baseline| baseline.name == self.baseline).map(|baseline| baseline.fixed);
        with(fixed.fold(base, with), self.settings)
    }
}

/// Returns the settings chosen for an experiment.
pub fn tuned(id: &str) -> impl Iterator<Item = &'static Chosen> {
    CHOSEN.iter().filter(move |chosen| chosen.id == id)
}

/// Rows of an experiment's baselines with what was chosen for it.
pub fn subjects(id: &str, base: &ScenarioText) -> Vec<RowSubject> {
    let subject =
        |chosen: &Chosen| RowSubject::new(chosen.row(), RowKind::Baseline, chosen.setup(base.clone()));
    tuned(id).map(subject).collect()
}

/// Returns the settings chosen for an experiment, as text.
pub fn notes(id: &str) -> Vec<String> {
    let each = tuned(id).map(|chosen| format!("{}: {}", chosen.row(), name(chosen.settings)));
    let sweep = sweeps().iter().find(|sweep| sweep.id == id);
    let (runs, option) = match sweep.map(|sweep| sweep.length) {
        Some(RunLength::Full) => ("whole", "--full"),
        _ => ("short", "--quick"),
    };
    let head = format!(
        "Tuned: the best of a grid of settings that includes the published ones, by the median of \
         seeds {} to {} of {runs} runs, which no experiment measures, at no more unit-seconds than \
         published flowlets. `rivulet lab tune {id} {option}` finds them.",
        TUNING_SEEDS.start(),
        TUNING_SEEDS.end()
    );
    [head].into_iter().chain(each).collect()
}

/// Returns true if these settings were chosen.
pub fn is_chosen(id: &str, baseline: &str, objective: &str, settings: &[(&str, &str)]) -> bool {
    let is_it = |chosen: &Chosen| chosen.baseline == baseline && chosen.objective == objective;
    tuned(id).any(|chosen| is_it(chosen) && chosen.settings == settings)
}
