//! Functions, rows and claims of the experiments about migration.

use policy::{Colour, Policy};
use runtime::Assembly;

use super::common::{number, show};
use crate::hosts::MoveFaults;
use crate::migration::{MigrationCase, MigrationOutcome, MigrationSystem, MoveCosts, MoveScope};
use crate::runs::Lab;
use crate::table::{FigureUnit, RowKind, TableMetric, TableRow};
use crate::verdict::{ClaimFinding, MeasuredFigures, MissingFigure};

/// The functions of NFActor's experiments: a monitor, a firewall, an HTTP parser.
const POLICY: &str = "
    settings { flows: 300k }
    Port<0> inside; Port<1> outside;
    Monitor m { report: [] };
    Firewall f { rules: \"allow out from any\", default: deny };
    HTTP h;
    pipelet main { inside <-> m <-> f <-> h <-> outside; }";

/// Compiles the chain.
///
/// # Errors
///
/// If the policy is wrong.
pub fn chain() -> Result<Assembly, String> {
    let policy = Policy::read("chain", POLICY, &mut |_| Err(String::new()));
    let policy = policy.map_err(|report| report.render(Colour::Off))?;
    runtime::assemble(&policy, &functions::registry(), 1, None).map_err(|wrong| format!("{wrong:?}"))
}

/// Moves at once in NFActor (A33).
pub const AT_ONCE: u32 = 1_000;

/// The systems, with their names.
pub const OURS: &str = "plus: ownership";
pub const THREE_EXCHANGES: &str = "three exchanges";
pub const LOSS_FREE: &str = "controller, loss-free";
pub const ORDERED: &str = "controller, order-preserving";
pub const SUSPENDED: &str = "controller, suspend and resume";

/// Returns the name of a controller that moves all flows by one filter.
pub fn by_filter(name: &str) -> String {
    format!("{name}, one filter")
}

/// The metrics of moves.
pub const METRICS: [TableMetric; 7] = [
    TableMetric { name: "total", unit: FigureUnit::Ns },
    TableMetric { name: "of a flow", unit: FigureUnit::Ns },
    TableMetric { name: "longest wait", unit: FigureUnit::Ns },
    TableMetric { name: "lost", unit: FigureUnit::Count },
    TableMetric { name: "reordered", unit: FigureUnit::Count },
    TableMetric { name: "wrong states", unit: FigureUnit::Count },
    TableMetric { name: "messages a flow", unit: FigureUnit::Ratio },
];

/// A row: a system and its flows.
#[derive(Clone)]
pub struct MovesRow {
    pub name: String,
    pub kind: RowKind,
    pub case: MigrationCase,
}

/// Returns the name of a row.
pub fn named(system: &str, flows: u32, flow_pps: u32) -> String {
    format!("{system}, {flows} flows, {flow_pps} pps")
}

/// Returns the rows of systems with this many flows.
pub fn rows(
    systems: &[(&str, MigrationSystem)],
    flows: u32,
    flow_pps: u32,
    costs: MoveCosts,
) -> Vec<MovesRow> {
    let state_bytes = chain().map_or(0, |chain| chain.graph.flows().record_len());
    let row = |&(name, system): &(&str, MigrationSystem)| {
        let (kind, concurrency) = match system {
            MigrationSystem::Ownership => (RowKind::Plus, u32::MAX),
            MigrationSystem::NfActor => (RowKind::Faithful, AT_ONCE),
            _ => (RowKind::Baseline, flows),
        };
        let case = MigrationCase { system, flows, flow_pps, concurrency, state_bytes, costs };
        MovesRow { name: named(name, flows, flow_pps), kind, case }
    };
    systems.iter().map(row).collect()
}

/// All systems; controllers move flows one by one, and then by one filter.
pub fn systems() -> Vec<(String, MigrationSystem)> {
    let mut systems = vec![
        (OURS.to_owned(), MigrationSystem::Ownership),
        (THREE_EXCHANGES.to_owned(), MigrationSystem::NfActor),
    ];
    for scope in [MoveScope::Flow, MoveScope::Filter] {
        let name = |name: &str| if scope == MoveScope::Flow { name.to_owned() } else { by_filter(name) };
        systems.push((name(LOSS_FREE), MigrationSystem::LossFree(scope)));
        systems.push((name(ORDERED), MigrationSystem::OrderPreserving(scope)));
        systems.push((name(SUSPENDED), MigrationSystem::SplitMerge(scope)));
    }
    systems
}

/// Runs rows with the lab's seeds.
pub fn run(lab: &Lab<'_>, rows: &[MovesRow]) -> Vec<TableRow> {
    rows.iter().map(|row| run_row(lab, row)).collect()
}

fn run_row(lab: &Lab<'_>, MovesRow { name, kind, case }: &MovesRow) -> TableRow {
    let mut values = vec![Vec::new(); METRICS.len()];
    let mut failures = Vec::new();
    for seed in 1..=u64::from(lab.seeds()) {
        match case.run(seed) {
            Ok(outcome) => {
                let figures = figures(&outcome, case.flows);
                values.iter_mut().zip(figures).for_each(|(values, figure)| values.push(figure));
            }
            Err(why) => failures.push(why),
        }
    }
    if !failures.is_empty() {
        values.iter_mut().for_each(Vec::clear);
    }
    TableRow { failures, ..TableRow::of(name.clone(), *kind, values) }
}

fn figures(outcome: &MigrationOutcome, flows: u32) -> [f64; METRICS.len()] {
    [
        outcome.total_ns as f64,
        outcome.mean_ns,
        outcome.wait_ns as f64,
        outcome.lost as f64,
        outcome.reordered as f64,
        outcome.wrong_states as f64,
        outcome.messages as f64 / f64::from(flows),
    ]
}

/// Nothing is lost or reordered in these rows of a table, and all states are right.
pub fn intact(
    f: &MeasuredFigures<'_>,
    table: usize,
    rows: impl IntoIterator<Item = String>,
) -> Result<ClaimFinding, MissingFigure> {
    let mut bad = Vec::new();
    let mut count = 0;
    for row in rows {
        count += 1;
        for metric in ["lost", "reordered", "wrong states"] {
            let found = f.of(table, &row, metric)?;
            if !found.is_at_most(0.0) {
                bad.push(format!("{row}: {metric} {}", show(found, 1.0, "")));
            }
        }
    }
    let why = if bad.is_empty() { format!("in {count} rows, with every seed") } else { bad.join("; ") };
    Ok(ClaimFinding::new(bad.is_empty(), why))
}

/// A row's total is at most this, in ns.
pub fn total_at_most(
    f: &MeasuredFigures<'_>,
    table: usize,
    row: &str,
    limit_ns: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let found = f.of(table, row, "total")?;
    let why = format!("{row}: {} ms, asked is at most {}", show(found, 1e6, ""), number(limit_ns / 1e6));
    Ok(ClaimFinding::new(found.is_at_most(limit_ns), why))
}

/// A row's total is at most this share of another's, seed by seed.
pub fn share_of(
    f: &MeasuredFigures<'_>,
    table: usize,
    (row, base): (&str, &str),
    limit: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let share = f.of(table, row, "total")?.over(f.of(table, base, "total")?);
    let holds = share.as_ref().is_some_and(|share| share.is_at_most(limit));
    let shown = share.map_or_else(|| "-".to_owned(), |share| show(&share, 1.0, ""));
    let why = format!("{shown} of the time of {base}, asked is at most {}", number(limit));
    Ok(ClaimFinding::new(holds, why))
}

/// The note on faults of moves between hosts.
pub const FAULTS: &str = "Broken: flows whose state did not arrive, by the dispatcher's count or because \
    the firewall drops a reply from outside.";

/// The figures of faults: lost, reordered, duplicated, broken.
pub fn fault_values(faults: MoveFaults) -> [f64; 4] {
    let MoveFaults { lost, reordered, duplicated, broken, .. } = faults;
    [lost, reordered, duplicated, broken].map(|count| count as f64)
}

/// A row has no fault, in any round.
pub fn without_faults(f: &MeasuredFigures<'_>, row: &str) -> Result<ClaimFinding, MissingFigure> {
    let findings = ["lost", "reordered", "duplicated", "broken"].map(|metric| {
        let most = f.get(row, metric)?.values.iter().copied().fold(0.0, f64::max);
        Ok(ClaimFinding::new(most == 0.0, format!("{most} {metric}")))
    });
    Ok(ClaimFinding::all(findings.into_iter().collect::<Result<Vec<_>, _>>()?))
}
