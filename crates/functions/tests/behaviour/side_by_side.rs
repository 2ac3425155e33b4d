//! State functions of several functions in parallel (B18, B20). The output equals the slow path's,
//! on one core and on two, for both orders of the two sides; functions that do not commute stay in
//! order.

use std::cell::Cell;

use graph::{Beside, Piece, RuleStep, SideBySide};
use io::traffic::Payload;
use packet::split_mix;

use crate::consolidated::{Function, check_all, conversations, options, steps_side_by_side};

/// Execution order of two sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// In parallel: the other side on a thread of its own.
    AtOnce,
    /// On one core, this side first.
    HereFirst,
    /// On one core, the other side first.
    ThereFirst,
}

impl Order {
    pub const ALL: [Order; 3] = [Order::AtOnce, Order::HereFirst, Order::ThereFirst];
}

impl Beside for Order {
    fn run(&mut self, here: &mut Piece<'_>, there: &mut Piece<'_>) {
        match self {
            Order::AtOnce => std::thread::scope(|scope| {
                scope.spawn(there);
                here();
            }),
            Order::HereFirst => {
                here();
                there();
            }
            Order::ThereFirst => {
                there();
                here();
            }
        }
    }
}

/// Runs in parallel whenever that is permitted, in this order, split at arbitrary points: the clock
/// is arbitrary.
pub fn in_order(order: Order) -> SideBySide {
    SideBySide { runner: Box::new(order), clock_ns: wild_ns, group_ns: 0, packet_ns: 0 }
}

fn wild_ns() -> u64 {
    thread_local! {
        static AT: Cell<(u64, u64)> = const { Cell::new((0, 1)) };
    }
    AT.with(|at| {
        let (now_ns, mut seed) = at.get();
        let next_ns = now_ns + split_mix(&mut seed) % 1_000_000;
        at.set((next_ns, seed));
        next_ns
    })
}

const READER: Function = ("probe", r#"{"reads_payload": true, "predicts": true}"#, &[]);
const ALERTER: Function = ("probe", r#"{"alerts": true, "predicts": true}"#, &[]);
const SHARER: Function = ("sharing-probe", r#"{"reads_payload": true, "alerts": true}"#, &[]);
const OF_DSCP: Function = ("probe", r#"{"reads_dscp": true}"#, &[]);
const WRITER: Function = ("probe", r#"{"writes_payload": true}"#, &[]);
const REMARK: Function = ("remark", "{}", &[]);
const MONITOR: Function = ("monitor", r#"{"active_timeout": "20ms"}"#, &[]);

/// Returns the share of fast-path packets with parallel state functions.
fn share(graph: &[Function], payload: Payload) -> f64 {
    let traffic = conversations(graph, 3, payload);
    let paths = (0..6).map(|seed| check_all(graph, options(0), &traffic, seed).path);
    let (beside, all) = paths.fold((0, 0), |(beside, all), path| (beside + path.beside, all + path.packets));
    beside as f64 / all as f64
}

#[test]
fn commuting_functions_run_side_by_side() {
    for graph in [
        &[READER, ALERTER][..],
        &[ALERTER, MONITOR, READER],
        &[READER, SHARER, MONITOR, OF_DSCP],
        &[ALERTER, REMARK, READER],
        &[WRITER, ALERTER],
    ] {
        let share = share(graph, Payload::Random);
        assert!(share > 0.7, "{share}: {graph:?}");
    }
}

/// One writes the packet's DSCP and another one reads it, so neither may run in parallel with the
/// other.
#[test]
fn functions_that_do_not_commute_stay_in_order() {
    let graph = [OF_DSCP, REMARK, OF_DSCP]; // For packets from either side.
    assert_eq!(share(&graph, Payload::Random), 0.0);
    for graph in [[READER, WRITER], [WRITER, READER], [WRITER, WRITER]] {
        assert_eq!(share(&graph, Payload::Random), 0.0, "{graph:?}");
    }
}

#[test]
fn rules_declare_which_functions_may_run_side_by_side() {
    let steps = steps_side_by_side(&[ALERTER, REMARK, READER, OF_DSCP]);
    let functions = |stage| RuleStep::Functions(stage, vec![9]);
    assert_eq!(steps[..3], [RuleStep::Together(2), functions(0), functions(2)], "{steps:?}");
    assert!(
        matches!(steps[3..], [RuleStep::Pass(1), RuleStep::SetDscp(_), RuleStep::Functions(3, _)]),
        "{steps:?}"
    );
    // A function that sees every packet may drop it: no state function moves across it.
    let steps = steps_side_by_side(&[ALERTER, ("hop", "{}", &[]), READER]);
    assert!(!steps.iter().any(|step| matches!(step, RuleStep::Together(_))), "{steps:?}");
}
