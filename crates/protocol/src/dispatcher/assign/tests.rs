use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn assigner(choice: UnitChoice, lambda: f32, targets: TargetChoice, targets_count: u8) -> Assigner {
    Assigner::new(&Config { choice, lambda, targets, targets_count, capacity_bps: 100, ..Config::default() })
}

fn loads(loads_bps: &[f32]) -> Loads {
    let mut loads = Loads::new(loads_bps.len() as u16, 100.0);
    (0..).map(UnitId).zip(loads_bps).for_each(|(unit, &load_bps)| loads.set(unit, load_bps));
    loads
}

fn chosen(assigner: &Assigner, loads_bps: &[f32], estimate_bps: f32, having_state: &[u16]) -> (u16, bool) {
    let active = loads_bps.iter().filter(|load| load.is_finite()).count();
    let having_state = having_state.iter().map(|&unit| UnitId(unit));
    let chosen = assigner.choose(&loads(loads_bps), estimate_bps, having_state, active).unwrap();
    (chosen.unit.0, chosen.fits)
}

const OFF: f32 = f32::INFINITY;

#[test]
fn the_most_utilised_with_room_is_chosen() {
    // S35, S36, S38
    let assigner = assigner(UnitChoice::MostUtilised, 0.25, TargetChoice::None, 0);
    assert_eq!(chosen(&assigner, &[10.0, 60.0, 95.0, 60.0, OFF], 10.0, &[]), (1, true));
    assert_eq!(chosen(&assigner, &[10.0, 60.0, 95.0, 60.0], 1.0, &[]), (2, true));
    assert_eq!(chosen(&assigner, &[10.0, 90.0], 10.0, &[]), (0, true), "room is less than the capacity");
    // S37: the state is worth 25.
    assert_eq!(chosen(&assigner, &[40.0, 60.0], 10.0, &[0]), (0, true));
    assert_eq!(chosen(&assigner, &[30.0, 60.0], 10.0, &[0]), (1, true));
    assert_eq!(chosen(&assigner, &[60.0, 35.0], 10.0, &[1]), (0, true), "the lower number wins ties");
    assert_eq!(chosen(&assigner, &[35.0, 60.0], 10.0, &[0]), (0, true), "the lower number wins ties");
    assert_eq!(chosen(&assigner, &[35.0, 95.0], 10.0, &[1, 7]), (0, true), "without room it is no candidate");
    // S44
    assert_eq!(chosen(&assigner, &[99.0, 97.0, OFF, 97.0], 10.0, &[3]), (1, false));
    assert_eq!(assigner.choose(&loads(&[OFF]), 1.0, std::iter::empty(), 0), None);
}

#[test]
fn the_lowest_with_room_is_chosen() {
    // S38
    let assigner_with = |lambda| assigner(UnitChoice::LowestId, lambda, TargetChoice::None, 0);
    let loads = [95.0, 10.0, 60.0, 20.0];
    assert_eq!(chosen(&assigner_with(0.0), &loads, 10.0, &[2, 3]), (1, true));
    assert_eq!(
        chosen(&assigner_with(0.25), &loads, 10.0, &[2, 3]),
        (1, true),
        "one further of four: too far"
    );
    assert_eq!(chosen(&assigner_with(0.3), &loads, 10.0, &[3, 2]), (2, true));
    assert_eq!(chosen(&assigner_with(1.0), &loads, 10.0, &[3]), (3, true));
    assert_eq!(chosen(&assigner_with(1.0), &loads, 50.0, &[2]), (1, true), "without room it is no candidate");
    assert_eq!(chosen(&assigner_with(1.0), &[99.0, 98.0], 10.0, &[0]), (1, false));
}

#[test]
fn the_least_loaded_is_chosen() {
    let assigner = assigner(UnitChoice::LeastLoaded, 0.25, TargetChoice::None, 0);
    assert_eq!(chosen(&assigner, &[60.0, 20.0, 20.0, OFF], 10.0, &[]), (1, true));
    assert_eq!(chosen(&assigner, &[60.0, 20.0, 44.0], 10.0, &[2]), (2, true), "the state is worth 25");
    assert_eq!(chosen(&assigner, &[60.0, 20.0, 46.0], 10.0, &[2]), (1, true));
    assert_eq!(chosen(&assigner, &[45.0, 20.0], 10.0, &[0]), (0, true), "the lower number wins ties");
    assert_eq!(chosen(&assigner, &[95.0, 91.0], 10.0, &[0]), (1, false));
}

proptest! {
    /// Against the pseudocode, unit by unit.
    #[test]
    fn it_is_the_pseudocode(
        loads in prop::collection::vec(prop_oneof![9 => (0u8..110).prop_map(f32::from), 1 => Just(OFF)], 1..70),
        estimate in 0u8..100,
        having_state in prop::collection::vec(0u16..70, 0..6),
    ) {
        prop_assume!(loads.iter().any(|load| load.is_finite()));
        let assigner = assigner(UnitChoice::MostUtilised, 0.25, TargetChoice::None, 0);
        let mut best: Option<(f32, u16)> = None;
        for (unit, &load) in (0..).zip(&loads).filter(|(_, load)| load.is_finite()) {
            if f32::from(estimate) + load < 100.0 {
                let p = if having_state.contains(&unit) { 1.0 } else { 0.0 };
                let score = load + 25.0 * p;
                if best.is_none_or(|(highest, _)| score > highest) {
                    best = Some((score, unit));
                }
            }
        }
        let least = (0u16..).zip(&loads).min_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
        let expected = best.map_or((least, false), |(_, unit)| (unit, true));
        prop_assert_eq!(chosen(&assigner, &loads, estimate.into(), &having_state), expected);
    }
}

fn targets_of(assigner: &mut Assigner, owner: u16, loads_bps: &[u32]) -> Vec<u16> {
    let units_max = loads_bps.len() as u16;
    let config = Config { units_max, buckets: 1, bucket_ns: 8_000_000_000, ..Config::default() };
    let mut meter = Meter::new(&config).unwrap();
    let active: Vec<UnitId> = (0..loads_bps.len() as u16).map(UnitId).collect();
    active.iter().for_each(|&unit| meter.activate(unit, 0));
    meter.roll(0);
    active.iter().zip(loads_bps).for_each(|(&unit, &load)| meter.add(unit, load.into(), 0));
    meter.reckon();
    assigner.set_active(&active);
    let list = assigner.targets(UnitId(owner), 10.0, &active, &mut meter);
    list.units().map(|unit| unit.0).collect()
}

#[test]
fn targets_are_chosen_as_they_are_to_be() {
    // S54, S55, S57
    let loads = [50, 95, 20, 70, 20, 30];
    let of =
        |choice, owner| targets_of(&mut assigner(UnitChoice::MostUtilised, 0.25, choice, 3), owner, &loads);
    assert_eq!(of(TargetChoice::First, 1), [0, 2, 3]);
    assert_eq!(of(TargetChoice::LeastLoaded, 2), [4, 5, 0]);
    assert_eq!(of(TargetChoice::None, 0), [0u16; 0]);
    assert_eq!(of(TargetChoice::Predicted, 0), [3]);
    assert_eq!(of(TargetChoice::Predicted, 3), [0], "the owner itself is none");
    let mut few = assigner(UnitChoice::MostUtilised, 0.25, TargetChoice::Weighted, 3);
    assert_eq!(targets_of(&mut few, 1, &[0, 0, 0]), [0, 2], "fewer are active");
    assert_eq!(targets_of(&mut few, 0, &[0]), [0u16; 0]);
    let mut none = assigner(UnitChoice::MostUtilised, 0.25, TargetChoice::Weighted, 0);
    assert_eq!(targets_of(&mut none, 1, &[0, 0, 0]), [0u16; 0]);
}

#[test]
fn low_numbers_are_drawn_more_often() {
    // S56
    let mut assigner = assigner(UnitChoice::MostUtilised, 0.25, TargetChoice::Weighted, 1);
    let mut drawn = BTreeMap::new();
    for _ in 0..11_000 {
        let targets = targets_of(&mut assigner, 2, &[0; 4]);
        assert_eq!(targets.len(), 1);
        *drawn.entry(targets[0]).or_insert(0u32) += 1;
    }
    // Weights 1, 1/2, (none), 1/4: of 1.75.
    for (unit, expected) in [(0, 6286), (1, 3143), (3, 1571)] {
        assert!(drawn[&unit].abs_diff(expected) < 250, "{drawn:?}");
    }
    assert!(!drawn.contains_key(&2));
}

/// Draws of three of five others against the definition: one after the other by weight, without
/// repetition.
#[test]
fn targets_are_drawn_by_their_weights() {
    // S56
    let owner = 1u16;
    let others = [0u16, 2, 3, 4, 5];
    let weight = |unit: u16| 1.0 / (f64::from(unit) + 1.0);
    let total: f64 = others.iter().map(|&unit| weight(unit)).sum();
    let mut expected = BTreeMap::new();
    for a in others {
        for b in others.into_iter().filter(|&b| b != a) {
            for c in others.into_iter().filter(|&c| c != a && c != b) {
                let first = weight(a) / total;
                let second = weight(b) / (total - weight(a));
                let third = weight(c) / (total - weight(a) - weight(b));
                expected.insert(vec![a, b, c], first * second * third);
            }
        }
    }
    let active: Vec<UnitId> = (0..6).map(UnitId).collect();
    let mut assigner = assigner(UnitChoice::MostUtilised, 0.25, TargetChoice::Weighted, 3);
    assigner.set_active(&active);
    let mut meter = Meter::new(&Config { units_max: 6, ..Config::default() }).unwrap();
    const DRAWS: u32 = 100_000;
    let mut drawn = BTreeMap::new();
    for _ in 0..DRAWS {
        let list = assigner.targets(UnitId(owner), 0.0, &active, &mut meter);
        *drawn.entry(list.units().map(|unit| unit.0).collect::<Vec<_>>()).or_insert(0.0) += 1.0;
    }
    assert_eq!(expected.len(), 60);
    assert!(drawn.keys().all(|list| expected.contains_key(list)));
    let chi_square: f64 = expected
        .iter()
        .map(|(list, share)| {
            let due = share * f64::from(DRAWS);
            (drawn.get(list).copied().unwrap_or(0.0) - due).powi(2) / due
        })
        .sum();
    assert!(chi_square < 98.3, "one in a thousand is above this with 59 degrees of freedom: {chi_square}");
}
