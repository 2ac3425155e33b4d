//! State functions of several functions side by side (B18, B20): what comes out is the plain
//! chain's, on one core and on two, and in whichever order the two sides run; and what does not
//! commute stays in order.

use std::cell::Cell;

use graph::{Beside, Piece, RuleStep, SideBySide};
use io::traffic::Payload;
use packet::split_mix;

use crate::consolidated::{Function, check_all, conversations, options, steps_side_by_side};

/// In which order two sides run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// At the same time: the other side on a thread of its own.
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

/// Side by side whenever that is allowed, in this order, cut here or there: by a clock that goes as
/// it likes.
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
const TELLER: Function = ("probe", r#"{"tells": true, "predicts": true}"#, &[]);
const SHARER: Function = ("sharing-probe", r#"{"reads_payload": true, "tells": true}"#, &[]);
const OF_DSCP: Function = ("probe", r#"{"reads_dscp": true}"#, &[]);
const WRITER: Function = ("probe", r#"{"writes_payload": true}"#, &[]);
const REMARK: Function = ("remark", "{}", &[]);
const MONITOR: Function = ("monitor", r#"{"active_timeout": "20ms"}"#, &[]);

/// How many of the packets that follow rules have state functions run side by side.
fn share(chain: &[Function], payload: Payload) -> f64 {
    let traffic = conversations(chain, 3, payload);
    let paths = (0..6).map(|seed| check_all(chain, options(0), &traffic, seed).path);
    let (beside, all) = paths.fold((0, 0), |(beside, all), path| (beside + path.beside, all + path.packets));
    beside as f64 / all as f64
}

#[test]
fn what_commutes_runs_side_by_side() {
    for chain in [
        &[READER, TELLER][..],
        &[TELLER, MONITOR, READER],
        &[READER, SHARER, MONITOR, OF_DSCP],
        &[TELLER, REMARK, READER],
        &[WRITER, TELLER],
    ] {
        let share = share(chain, Payload::Random);
        assert!(share > 0.7, "{share}: {chain:?}");
    }
}

/// A packet's DSCP is written between them, and the later one reads it; or one writes what the
/// other reads: neither runs beside the other.
#[test]
fn what_does_not_commute_stays_in_order() {
    let chain = [OF_DSCP, REMARK, OF_DSCP]; // Of packets from either side.
    assert_eq!(share(&chain, Payload::Random), 0.0);
    for chain in [[READER, WRITER], [WRITER, READER], [WRITER, WRITER]] {
        assert_eq!(share(&chain, Payload::Random), 0.0, "{chain:?}");
    }
}

#[test]
fn rules_say_what_may_run_side_by_side() {
    let steps = steps_side_by_side(&[TELLER, REMARK, READER, OF_DSCP]);
    let functions = |stage| RuleStep::Functions(stage, vec![9]);
    assert_eq!(steps[..3], [RuleStep::Together(2), functions(0), functions(2)], "{steps:?}");
    assert!(
        matches!(steps[3..], [RuleStep::Pass(1), RuleStep::SetDscp(_), RuleStep::Functions(3, _)]),
        "{steps:?}"
    );
    // Whoever sees every packet may drop it: nobody is moved across.
    let steps = steps_side_by_side(&[TELLER, ("hop", "{}", &[]), READER]);
    assert!(!steps.iter().any(|step| matches!(step, RuleStep::Together(_))), "{steps:?}");
}
