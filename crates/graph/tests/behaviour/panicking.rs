//! Panics, of functions and of the graph's own code, stay where they are.
#![allow(clippy::panic, reason = "what is tested")]

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::Once;

use graph::Options;
use nf::record::{CacheLines, FlowRecords, RecordLayout};
use nf::stage::{OnPanic, PacketGroup, PacketTotals, ReadGroup, SavedPart, Stage, StageCounters, StageEnv};
use nf::{AffinityGroup, AffinityGroups};
use nf::{
    Context, ControlError, Descriptor, EndReason, EventCondition, NetworkFunction, PacketView, Plan, Setup,
    SharedHandle, SharedState, StateFunction, TagLayout, UpgradeError, Verdict,
};
use packet::{Packet, Side, Transit, split_mix};
use proptest::prelude::*;
use values::ConfigError;

use crate::support::bench::{Arrival, Bench, run};
use crate::support::functions::*;
use crate::support::packets::*;
use crate::support::traffic::traffic;

const T: u64 = 1_000_000_000_000;

/// Panics on command, within a change of its state: bit 6 of the first payload byte.
struct Fragile<const FAST: bool>;

const PANIC: u8 = 0x40;

/// The state of [`Fragile`]: both halves are equal between packets.
#[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable)]
#[repr(C)]
struct Halves([u32; 2]);

const COUNT: StateFunction = StateFunction { id: 1, access: nf::Access::Read, reads: &[] };

impl<const FAST: bool> Fragile<FAST> {
    fn count(packet: &Packet, state: &mut Halves, payload_at: usize) {
        assert_eq!(state.0[0], state.0[1], "a state that was left half done is seen again");
        state.0[0] += 1;
        if packet.data().get(payload_at).is_some_and(|byte| byte & PANIC != 0) {
            panic!("a packet of {} bytes", packet.len());
        }
        state.0[1] += 1;
    }
}

impl<const FAST: bool> NetworkFunction for Fragile<FAST> {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "fragile",
        shared: &[nf::Shared::Set { name: "seen", capacity: 16 }],
        consolidates: true,
        ..BASE
    };
    type State = Halves;
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Fragile)
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut Halves, context: &mut Context<'_>) -> Verdict {
        if packet.is_recording() {
            packet.record_state_function(COUNT);
        }
        if !FAST {
            context.set(0).add(1, 1);
        }
        let at = usize::from(packet.meta().payload);
        Fragile::<FAST>::count(packet, state, at);
        Verdict::Forward
    }

    fn state_function(&self, _: u16, packet: &Packet, state: &mut Halves, _: &mut Context<'_>) {
        Fragile::<FAST>::count(packet, state, usize::from(packet.meta().payload));
    }

    fn flow_end(&self, state: &mut Halves, _: EndReason, _: &mut Context<'_>) {
        assert_eq!(state.0[0], state.0[1], "this panics, too");
    }

    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        panic!("{command}")
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs this on a thread with intended panics, which are not printed.
fn quietly(run: impl FnOnce()) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                hook(info);
            }
        }));
    });
    IS_QUIET.set(true);
    let ran = std::panic::catch_unwind(AssertUnwindSafe(run));
    IS_QUIET.set(false);
    if let Err(failed) = ran {
        let text = failed.downcast_ref::<String>().cloned();
        panic!("{}", text.unwrap_or_default());
    }
}

#[test]
fn a_panic_costs_its_packet_and_its_flow_and_nobody_else() {
    quietly(|| {
        for (consolidate, batch) in [(true, 1), (true, 16), (false, 1), (false, 16)] {
            let stages = vec![stage::<Masquerade>(8), stage::<Fragile<false>>(8), stage::<Tally>(8)];
            let mut bench = Bench::new(stages, Options { consolidate, ..Options::default() });
            let (a, b, peer) = (v4(10, 0, 0, 1, 1000), v4(10, 0, 0, 2, 1000), v4(192, 0, 2, 1, 53));
            let says =
                |from, byte| Arrival { at_ns: T, side: Side::Inside, network: udp(from, peer, &[byte]) };
            let all = [
                says(a, 0),
                says(b, 0),
                says(a, 0),
                says(b, 0),
                says(a, PANIC),
                says(b, 0),
                says(a, 0),
                says(b, 0),
            ];
            all.chunks(batch).for_each(|batch| bench.batch(batch));
            assert_eq!(bench.drops()[0], ("function-panic", 1));
            let counters = bench.graph.stages()[1].counters();
            // At the packet, and at the flow's end.
            assert_eq!((counters.panics, counters.packets, counters.drops), (2, 8, 1));
            let last = bench.graph.stages()[1].last_panic().unwrap();
            assert!(last.contains("this panics, too"), "{last}");
            assert_eq!(bench.graph.counters().restarts, 0);
            assert_eq!(
                bench.graph.stages()[0].shared().pools[0].in_use(),
                bench.graph.counters().flows_live as u32
            );
            // The flow continues as a new one.
            let before = bench.sent.len();
            bench.batch(&[says(a, 0), says(b, 0)]);
            assert_eq!(bench.sent.len(), before + 2);
            assert_eq!(bench.graph.counters().ended(EndReason::Rejected), 1);
        }
    });
}

#[test]
fn a_function_can_be_passed_by_where_it_fails() {
    quietly(|| {
        for consolidate in [true, false] {
            let options = Options { consolidate, on_panic: OnPanic::Bypass, ..Options::default() };
            let stages = vec![stage::<Tally>(8), stage::<Fragile<false>>(8), stage::<Tally>(8)];
            let mut bench = Bench::new(stages, options);
            for byte in [0, 0, PANIC, 0, PANIC, 0] {
                bench.through(T, Side::Inside, &udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), &[byte]));
            }
            assert_eq!((bench.drops(), bench.graph.counters().flows_started), (vec![], 1));
            assert!(bench.graph.stages()[1].counters().panics >= 2);
            assert_eq!(bench.graph.stages()[2].counters().packets, 6);
        }
    });
}

/// On the fast path, only its state function runs.
#[test]
fn a_state_function_may_panic() {
    quietly(|| {
        let stages = vec![stage::<Fragile<true>>(8), stage::<Fragile<true>>(8)];
        let mut bench = Bench::new(stages, Options::default());
        let (a, b, peer) = (v4(10, 0, 0, 1, 1000), v4(10, 0, 0, 2, 1000), v4(192, 0, 2, 1, 53));
        let says = |from, byte| Arrival { at_ns: T, side: Side::Inside, network: udp(from, peer, &[byte]) };
        for _ in 0..10 {
            bench.batch(&[says(a, 0), says(b, 0)]);
        }
        let followed = bench.graph.report().fast_path().packets;
        assert!(followed > 0);
        bench.batch(&[says(a, 0), says(b, 0), says(a, PANIC), says(b, 0)]);
        assert_eq!(bench.graph.report().fast_path().packets, followed + 4);
        assert_eq!(bench.drops(), [("function-panic", 1)]);
        let seen: Vec<u64> = bench.graph.stages().iter().map(|stage| stage.counters().packets).collect();
        assert_eq!(seen, [24, 23]);
        let flows = bench.graph.counters();
        assert_eq!((flows.flows_live, flows.ended(EndReason::Rejected)), (1, 1));
        for _ in 0..10 {
            bench.batch(&[says(a, 0), says(b, 0)]);
        }
        assert_eq!(bench.graph.counters().flows_live, 2);
    });
}

#[test]
fn a_command_that_panics_is_refused() {
    quietly(|| {
        let mut bench = Bench::new(vec![stage::<Fragile<false>>(8)], Options::default());
        let refused = bench.graph.stage_mut(0).unwrap().control("now");
        assert_eq!(refused, Err(ControlError("`fragile` failed on `now`: it panicked".into())));
        assert_eq!(bench.graph.stages()[0].last_panic(), Some("now".into()));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Random packets make it panic at random: the same input leads to the same, and the bench
    /// finds every packet and every buffer.
    #[test]
    fn packets_are_accounted_for_where_functions_panic(traffic in traffic(200), batch in 1usize..40) {
        quietly(|| {
            let stages =
                || vec![stage::<Tally>(8), stage::<Fragile<false>>(8), stage::<Gate>(8), stage::<Tally>(8)];
            let [one, other] = [(), ()].map(|()| run(stages(), Options::default(), &traffic, batch));
            assert_eq!(one, other);
            assert_eq!(one.counters.restarts, 0);
        });
    }
}

/// A stage that fails outside of its function, as the graph's own code might: every n
/// packets.
struct Broken {
    stage: Box<dyn Stage>,
    seed: u64,
}

impl Stage for Broken {
    fn process(&mut self, group: &mut PacketGroup<'_>) {
        if split_mix(&mut self.seed).is_multiple_of(16) {
            panic!("the graph's own");
        }
        self.stage.process(group);
    }

    fn descriptor(&self) -> &'static Descriptor {
        self.stage.descriptor()
    }
    fn place(&mut self, stage: u16, layout: &mut RecordLayout, first_tag_bit: u32) -> Option<u32> {
        self.stage.place(stage, layout, first_tag_bit)
    }
    fn lines(&self) -> CacheLines {
        self.stage.lines()
    }
    fn set_on_panic(&mut self, on_panic: OnPanic) {
        self.stage.set_on_panic(on_panic);
    }
    fn last_panic(&self) -> Option<String> {
        self.stage.last_panic()
    }
    fn run_functions(&mut self, group: &mut ReadGroup<'_>, functions: &[u16]) {
        self.stage.run_functions(group, functions);
    }
    fn predict(&self, record: u32, records: &FlowRecords, plan: &mut Plan<'_>) -> bool {
        self.stage.predict(record, records, plan)
    }
    fn predicts_uniformly(&self) -> bool {
        self.stage.predicts_uniformly()
    }
    fn pass(&mut self, load: PacketTotals, drops: u64) {
        self.stage.pass(load, drops);
    }
    fn flow_start(&mut self, packet: Transit, env: &mut StageEnv<'_>) -> bool {
        self.stage.flow_start(packet, env)
    }
    fn flow_end(&mut self, record: u32, reason: EndReason, now_ns: u64, env: &mut StageEnv<'_>) {
        self.stage.flow_end(record, reason, now_ns, env);
    }
    fn group_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup> {
        self.stage.group_of(packet, groups)
    }
    fn flow_leaves(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        self.stage.flow_leaves(record, now_ns, env);
    }
    fn flow_arrives(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) -> bool {
        self.stage.flow_arrives(record, now_ns, env)
    }
    fn flow_reconfigured(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        self.stage.flow_reconfigured(record, now_ns, env);
    }
    fn flow_moved(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        self.stage.flow_moved(record, now_ns, env);
    }
    fn flow_lags(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        self.stage.flow_lags(record, now_ns, env);
    }
    fn save_buffers(&mut self, record: u32, records: &mut FlowRecords, out: &mut Vec<u8>) {
        self.stage.save_buffers(record, records, out);
    }
    fn restore_buffers<'b>(
        &mut self,
        record: u32,
        records: &mut FlowRecords,
        saved: &'b [u8],
    ) -> Option<&'b [u8]> {
        self.stage.restore_buffers(record, records, saved)
    }
    fn release_buffers(&mut self, record: u32, records: &mut FlowRecords) {
        self.stage.release_buffers(record, records);
    }
    fn saved_part(&self) -> Option<SavedPart> {
        self.stage.saved_part()
    }
    fn upgrade(&self, from: &SavedPart, old: &[u8], part: &mut [u8]) -> Result<(), UpgradeError> {
        self.stage.upgrade(from, old, part)
    }
    fn event_holds(&self, event: EventCondition, record: u32, records: &FlowRecords) -> bool {
        self.stage.event_holds(event, record, records)
    }
    fn answers(&self) -> nf::AnswerScope {
        self.stage.answers()
    }
    fn forwards_unclassified(&self) -> bool {
        true
    }

    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        self.stage.control(command)
    }
    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        self.stage.check_command(command)
    }
    fn counters(&self) -> StageCounters {
        self.stage.counters()
    }
    fn shared(&self) -> &SharedState {
        self.stage.shared()
    }
    fn share(&mut self) -> SharedHandle {
        self.stage.share()
    }
    fn join(&mut self, common: SharedHandle) {
        self.stage.join(common);
    }
    fn open(&mut self) {
        self.stage.open();
    }
    fn close(&mut self) {
        self.stage.close();
    }
    fn part(&mut self) {
        self.stage.part();
    }
    fn tags(&self) -> &TagLayout {
        self.stage.tags()
    }
}

/// The bench checks after each batch that every packet is counted, every buffer is returned, and
/// the graph continues.
#[test]
fn the_graph_starts_over_where_its_own_code_fails() {
    quietly(|| {
        let mut restarts = 0;
        for (seed, consolidate) in (0..20).flat_map(|seed| [(seed, true), (seed, false)]) {
            let broken = Box::new(Broken { stage: stage::<Tally>(8), seed });
            let stages: Vec<Box<dyn Stage>> =
                vec![stage::<Masquerade>(8), stage::<Rejecter>(8), broken, stage::<Hairpin>(8)];
            let mut bench = Bench::starting_over(stages, Options { consolidate, ..Options::default() });
            let mut random = seed;
            for batch in 0..60u64 {
                let arrivals: Vec<Arrival> = (0..1 + split_mix(&mut random) % 20)
                    .map(|_| {
                        let own = split_mix(&mut random);
                        let peer = if own & 16 == 0 { v4(192, 0, 2, 1, 53) } else { v4(10, 0, 0, 9, 53) };
                        let network =
                            udp(v4(10, 0, 0, 1, 1000 + (own % 6) as u16), peer, &[(own >> 8) as u8 & 2]);
                        Arrival { at_ns: T + batch, side: Side::Inside, network }
                    })
                    .collect();
                bench.batch(&arrivals);
                let live = bench.graph.counters().flows_live as u32;
                assert!(bench.graph.stages()[0].shared().pools[0].in_use() <= live);
            }
            restarts += bench.graph.counters().restarts;
            assert!(bench.sent.len() > 50, "{}", bench.sent.len());
        }
        assert!(restarts > 100, "{restarts}");
    });
}
