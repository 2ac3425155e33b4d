//! Observing one packet: the observer sees everything, and changes nothing.

use graph::{Observer, Options};
use nf::{HeaderAction, Recording, Verdict};
use packet::{DropReason, End, Packet, Side};
use proptest::prelude::*;

use crate::support::bench::{Bench, run};
use crate::support::functions::*;
use crate::support::packets::*;
use crate::support::traffic::traffic;

const T: u64 = 1_000_000_000_000;

#[derive(Default)]
struct Diary(Vec<String>);

impl Observer for Diary {
    fn arrived(&mut self, packet: &Packet) {
        self.0.push(format!("arrived {}", packet.meta().key));
    }
    fn before(&mut self, stage: usize, _: &Packet) {
        self.0.push(format!("before {stage}"));
    }
    fn after(&mut self, stage: usize, _: &Packet, verdict: Verdict, recording: &Recording) {
        self.0.push(format!("after {stage}: {verdict:?}, {:?}", recording.actions));
    }
    fn sent(&mut self, packet: &Packet) {
        self.0.push(format!("sent to {:?}", packet.meta().transit.side));
    }
    fn dropped(&mut self, _: &Packet, reason: DropReason) {
        self.0.push(format!("dropped: {}", reason.name()));
    }
}

fn watch(bench: &mut Bench, network: &[u8]) -> Vec<String> {
    let (mut diary, mut out) = (Diary::default(), vec![]);
    bench.graph.observe(packet(T, Side::Inside, network), &mut out, &mut bench.pool, &mut diary);
    diary.0
}

#[test]
fn actions_are_recorded_as_they_are_taken() {
    let stages = vec![stage::<Tally>(8), stage::<Masquerade>(8), stage::<Gate>(8)];
    let mut bench = Bench::new(stages, Options::default());
    let (inside, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let dscp = HeaderAction::SetField(nf::Field::Dscp, 4);
    let source = HeaderAction::SetEnd(End::Source, masquerade_end(0));
    let expected = [
        "arrived 10.0.0.1:1000 <-> 192.0.2.1:53 proto 17".to_string(),
        "before 0".into(),
        format!("after 0: Forward, {:?}", [dscp]),
        "before 1".into(),
        format!("after 1: Forward, {:?}", [source]),
        "before 2".into(),
        "after 2: Forward, []".into(),
        "sent to Outside".into(),
    ];
    assert_eq!(watch(&mut bench, &udp(inside, peer, &[0])), expected);
    let diary = watch(&mut bench, &udp(inside, peer, &[command::DROP]));
    let dropped = HeaderAction::Drop(DropReason::Policy);
    let drop = format!("after 2: {:?}, {:?}", Verdict::Drop(DropReason::Policy), [dropped]);
    assert_eq!(diary[diary.len() - 2..], [drop, "dropped: policy".into()]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn watching_changes_nothing(traffic in traffic(60)) {
        let stages = || vec![
            stage::<Tally>(64), stage::<Rejecter>(64), stage::<Masquerade>(64), stage::<Balancer>(64),
            stage::<Hairpin>(64), stage::<Gate>(64), stage::<Witness>(64),
        ];
        let plain = run(stages(), Options::default(), &traffic, 1);
        let mut bench = Bench::new(stages(), Options::default());
        for arrival in &traffic {
            bench.watched(arrival, &mut Diary::default());
        }
        prop_assert_eq!(bench.outcome(), plain);
    }
}
