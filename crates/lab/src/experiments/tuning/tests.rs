use std::collections::BTreeSet;

use super::chosen::{CHOSEN, Chosen};
use super::*;
use crate::experiments::experiments;
use crate::table::FigureUnit;

fn lab() -> Lab<'static> {
    Lab::new(RunLength::Smoke, 1, |_| {})
}

#[test]
fn each_point_is_a_scenario_of_its_own_and_the_published_one_is_the_experiments() {
    for sweep in sweeps() {
        assert!(experiments().iter().any(|experiment| experiment.id == sweep.id), "{}", sweep.id);
        for baseline in sweep.baselines {
            let base = (sweep.base)(RunLength::Smoke);
            let points = baseline.points();
            let texts: BTreeSet<String> = points
                .iter()
                .map(|point| with(with(base.clone(), baseline.fixed), point).to_string())
                .collect();
            assert_eq!(texts.len(), points.len(), "{} {}", sweep.id, baseline.name);
            for text in texts {
                assert!(sim::Scenario::parse(&text).is_ok(), "{text}");
            }
        }
    }
}

#[test]
fn the_published_point_is_the_published_baseline() {
    let experiment = |id| experiments().iter().find(|experiment| experiment.id == id).unwrap();
    let published = [
        ("X1", "flow", "flow"),
        ("X1", "smart-flow:100ms", "smart-flow:100ms"),
        ("X1", "smart-flow:50ms", "smart-flow:50ms"),
        ("X1", "smart-flow", "smart-flow:100ms"),
        ("X1", "packet", "packet"),
        ("X1", "rss", "rss:128:100ms"),
        ("X1", "flowlet", "flowlet"),
        ("X5", "external store", "NAT, external store"),
        ("X5", "on demand", "NAT, on demand"),
        ("X6", "timeout only", "timeout only, 1/10"),
    ];
    let mut lab = lab();
    for (id, baseline, row) in published {
        let sweep = sweeps().iter().find(|sweep| sweep.id == id).unwrap();
        let baseline = sweep.baselines.iter().find(|candidate| candidate.name == baseline).unwrap();
        let point = with(with((sweep.base)(RunLength::Smoke), baseline.fixed), &baseline.points()[0]);
        let outcome = experiment(id).run(&mut lab);
        let shown = outcome.tables[0].rows.iter().find(|shown| shown.name == row).unwrap();
        let report = |text: &str| {
            let scenario = sim::Scenario::parse(text).unwrap();
            sim::Simulation::new(scenario, 1).unwrap().run().unwrap()
        };
        assert_eq!(report(&point.to_string()), report(&shown.scenario), "{id}: {row}");
    }
}

#[test]
fn what_was_chosen_is_a_point_of_each_grid() {
    for sweep in sweeps() {
        for (baseline, objective) in
            sweep.baselines.iter().flat_map(|b| sweep.objectives.iter().map(move |o| (b, o)))
        {
            let is_it = |chosen: &&Chosen| {
                (chosen.baseline, chosen.objective) == (baseline.name, objective.metric.name)
            };
            let found: Vec<&Chosen> = tuned(sweep.id).filter(is_it).collect();
            let [chosen] = found[..] else { panic!("{}: {}: {found:?}", sweep.id, baseline.name) };
            let is_point = baseline.points().iter().any(|point| point == chosen.settings);
            assert!(is_point, "{chosen:?}");
        }
    }
    let objectives: usize = sweeps().iter().map(|sweep| sweep.baselines.len() * sweep.objectives.len()).sum();
    assert_eq!(CHOSEN.len(), objectives, "something was chosen that is not swept");
}

#[test]
fn a_sweep_is_the_same_each_time_and_on_seeds_of_its_own() {
    let sweep = sweeps().iter().find(|sweep| sweep.id == "X6").unwrap();
    let mut seeds = BTreeSet::new();
    let first = sweep.run(&mut Lab::new(RunLength::Smoke, 1, |step| {
        seeds.insert(step.seed);
    }));
    assert_eq!(seeds.into_iter().collect::<Vec<_>>(), [1_001]);
    let again = sweep.run(&mut lab());
    assert_eq!(first.csv(), again.csv());
    assert_eq!(serde_json::to_string(&first).unwrap(), serde_json::to_string(&again).unwrap());
    assert_eq!(first.failures().count(), 0);
    let [best] = &first.best[..] else { panic!("{:?}", first.best) };
    assert_eq!((best.points, best.objective.unit), (15, FigureUnit::Ns));
    assert!(best.value <= best.published);
}

#[test]
fn the_best_is_cheap_enough_and_drops_no_more() {
    let metric = |name, unit| TableMetric { name, unit };
    let row = |name: &str, [p99, cost, dropped]: [f64; 3]| {
        let twice = |value| vec![value; 2];
        TableRow::of(name, RowKind::Baseline, vec![twice(p99), twice(cost), twice(dropped)])
    };
    let best = |rows: Vec<TableRow>| {
        let table = FigureTable {
            title: String::new(),
            profile: CostProfile::Paper,
            metrics: vec![
                metric("p99", FigureUnit::Ns),
                metric("unit-seconds", FigureUnit::Count),
                metric("dropped", FigureUnit::Count),
            ],
            rows,
        };
        let (reference, rows) = table.rows.split_first()?;
        Some(rows[best_of(&table, reference, rows, "p99")?].name.clone())
    };
    let reference = || row("reference", [1.0, 5.0, 0.0]);
    let published = || row("published", [9.0, 4.0, 1.0]);
    let of = |others: &[TableRow]| best([&[reference(), published()], others].concat()).unwrap();
    assert_eq!(of(&[]), "published");
    assert_eq!(of(&[row("dear", [2.0, 5.1, 0.0]), row("lossy", [2.0, 4.0, 2.0])]), "published");
    assert_eq!(of(&[row("good", [3.0, 5.0, 1.0]), row("better", [2.0, 5.0, 1.0])]), "better");
    assert_eq!(of(&[row("good", [3.0, 5.0, 0.0]), row("cheaper", [3.0, 4.5, 0.0])]), "cheaper");
    assert_eq!(of(&[row("as good", [9.0, 4.0, 0.0])]), "published", "the first of equal ones");
    let dear = row("published", [9.0, 8.0, 0.0]);
    assert_eq!(best(vec![reference(), dear, row("as dear", [2.0, 8.0, 0.0])]).unwrap(), "as dear");
}

#[test]
fn whole_runs_are_for_the_published_point_and_those_that_are_good_for_what_they_cost() {
    let metric = |name, unit| TableMetric { name, unit };
    let row = |name: String, [p99, cost]: [f64; 2]| {
        TableRow::of(name, RowKind::Baseline, vec![vec![p99; 2], vec![cost; 2]])
    };
    let of = |points: &[[f64; 2]]| {
        let rows = [[0.0, 0.0]].iter().chain(points).zip(0..);
        let table = FigureTable {
            title: String::new(),
            profile: CostProfile::Paper,
            metrics: vec![metric("p99", FigureUnit::Ns), metric("unit-seconds", FigureUnit::Count)],
            rows: rows.map(|(&point, number): (_, u32)| row(number.to_string(), point)).collect(),
        };
        finalists(&table, vec!["p99"]).into_iter().collect::<Vec<_>>()
    };
    // As many as there is room for are all run.
    assert_eq!(of(&[[5.0, 5.0], [1.0, 9.0], [9.0, 1.0]]), [0, 1, 2]);
    // The published point is the worst. Then a full front follows, each point better or cheaper
    // than the others, and a point that is more expensive than the best and no better.
    let count = FINALISTS as u32;
    let front = (0..count).map(|at| [f64::from(at), f64::from(count - at)]);
    let points: Vec<_> = [[99.0, 99.0]].into_iter().chain(front).chain([[0.0, 50.0]]).collect();
    assert_eq!(of(&points), (0..=FINALISTS).collect::<Vec<_>>());
    // A point worse in both than a point of the front comes after the whole front.
    let points: Vec<_> =
        [[9.0, 9.0]].into_iter().chain([[2.0, 2.0]; FINALISTS]).chain([[1.0, 1.0]]).collect();
    assert!(of(&points).contains(&(FINALISTS + 1)) && of(&points).len() == FINALISTS + 1);
}
