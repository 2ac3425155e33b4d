//! Threads of units that panic at random outside NFs: each continues with the next packet, and so
//! do the others. All packets are accounted for, and all flows end.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use graph::Graph;
use io::traffic::Payload;
use nf::record::{CacheLines, FlowRecords, RecordLayout};
use nf::stage::{OnPanic, PacketGroup, PacketTotals, ReadGroup, SavedPart, Stage, StageCounters, StageEnv};
use nf::{
    Access, Affinity, AnswerScope, Context, ControlError, Descriptor, EndReason, EventCondition, Maturity,
    NetworkFunction, PacketView, Plan, Scaling, Setup, SharedHandle, SharedState, UpgradeError, Verdict,
};
use nf::{AffinityGroup, AffinityGroups};
use packet::{Packet, Transit};
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;
use runtime::transport::Maker;
use runtime::{Assembly, Runner};
use values::ConfigError;

use support::{SEED, assembly_of, generated, play, profile};

/// A stage that panics although stages must not: at every n-th state that is saved, restored or
/// released, and at every n-th flow that expires.
struct Shaky {
    inside: Box<dyn Stage>,
    every: u64,
    calls: AtomicU64,
    panics: Arc<AtomicU64>,
}

impl Shaky {
    fn shake(&self) {
        let is_unit = std::thread::current().name().is_some_and(|name| name.starts_with("unit-"));
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        if is_unit && packet::split_mix(&mut (calls ^ 77)).is_multiple_of(self.every) {
            self.panics.fetch_add(1, Ordering::Relaxed);
            panic!("call {calls} of a stage");
        }
    }
}

impl Stage for Shaky {
    fn save_buffers(&mut self, record: u32, records: &mut FlowRecords, out: &mut Vec<u8>) {
        self.shake();
        self.inside.save_buffers(record, records, out);
    }

    fn group_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup> {
        self.inside.group_of(packet, groups)
    }
    fn flow_leaves(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        self.inside.flow_leaves(record, now_ns, env);
    }
    fn flow_arrives(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) -> bool {
        self.inside.flow_arrives(record, now_ns, env)
    }
    fn flow_reconfigured(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        self.shake();
        self.inside.flow_reconfigured(record, now_ns, env);
    }
    fn flow_moved(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        self.shake();
        self.inside.flow_moved(record, now_ns, env);
    }

    fn flow_lags(&mut self, record: u32, now_ns: u64, env: &mut StageEnv<'_>) {
        self.shake();
        self.inside.flow_lags(record, now_ns, env);
    }

    fn release_buffers(&mut self, record: u32, records: &mut FlowRecords) {
        self.shake();
        self.inside.release_buffers(record, records);
    }

    fn flow_end(&mut self, record: u32, reason: EndReason, now_ns: u64, env: &mut StageEnv<'_>) {
        if reason == EndReason::Idle {
            self.shake();
        }
        self.inside.flow_end(record, reason, now_ns, env);
    }

    fn descriptor(&self) -> &'static Descriptor {
        self.inside.descriptor()
    }
    fn place(&mut self, stage: u16, layout: &mut RecordLayout, first_tag_bit: u32) -> Option<u32> {
        self.inside.place(stage, layout, first_tag_bit)
    }
    fn lines(&self) -> CacheLines {
        self.inside.lines()
    }
    fn set_on_panic(&mut self, on_panic: OnPanic) {
        self.inside.set_on_panic(on_panic);
    }
    fn last_panic(&self) -> Option<String> {
        self.inside.last_panic()
    }
    fn process(&mut self, group: &mut PacketGroup<'_>) {
        self.inside.process(group);
    }
    fn run_functions(&mut self, group: &mut ReadGroup<'_>, functions: &[u16]) {
        self.inside.run_functions(group, functions);
    }
    fn predict(&self, record: u32, records: &FlowRecords, plan: &mut Plan<'_>) -> bool {
        self.inside.predict(record, records, plan)
    }
    fn predicts_uniformly(&self) -> bool {
        self.inside.predicts_uniformly()
    }
    fn pass(&mut self, load: PacketTotals, drops: u64) {
        self.inside.pass(load, drops);
    }
    fn flow_start(&mut self, packet: Transit, env: &mut StageEnv<'_>) -> bool {
        self.inside.flow_start(packet, env)
    }
    fn restore_buffers<'b>(
        &mut self,
        record: u32,
        records: &mut FlowRecords,
        saved: &'b [u8],
    ) -> Option<&'b [u8]> {
        self.inside.restore_buffers(record, records, saved)
    }
    fn saved_part(&self) -> Option<SavedPart> {
        self.inside.saved_part()
    }
    fn upgrade(&self, from: &SavedPart, old: &[u8], part: &mut [u8]) -> Result<(), UpgradeError> {
        self.inside.upgrade(from, old, part)
    }
    fn event_holds(&self, event: EventCondition, record: u32, records: &FlowRecords) -> bool {
        self.inside.event_holds(event, record, records)
    }
    fn answers(&self) -> AnswerScope {
        self.inside.answers()
    }
    fn forwards_unclassified(&self) -> bool {
        self.inside.forwards_unclassified()
    }
    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        self.inside.control(command)
    }
    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        self.inside.check_command(command)
    }
    fn counters(&self) -> StageCounters {
        self.inside.counters()
    }
    fn shared(&self) -> &SharedState {
        self.inside.shared()
    }
    fn share(&mut self) -> SharedHandle {
        self.inside.share()
    }
    fn join(&mut self, common: SharedHandle) {
        self.inside.join(common);
    }
    fn open(&mut self) {
        self.inside.open();
    }
    fn close(&mut self) {
        self.inside.close();
    }
    fn part(&mut self) {
        self.inside.part();
    }
    fn tags(&self) -> &nf::TagLayout {
        self.inside.tags()
    }
}

/// Counts its flows' packets.
struct Counting;

#[derive(serde::Deserialize)]
struct NoConfig {}

nf::counters! {
    /// Packets.
    packets: packets,
}

impl NetworkFunction for Counting {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "counting",
        aliases: &["Counting"],
        summary: "Counts packets.",
        maturity: Maturity::Experimental,
        state_version: 1,
        payload: Access::Read,
        affinity: Affinity::Flow,
        scaling: Scaling::Servers,
        counters: Counters::DECLARED,
        cycles_per_packet: 10,
        ..Descriptor::DEFAULT
    };
    type Config = NoConfig;
    type State = u64;

    fn new(_: NoConfig, _: &mut Setup) -> Result<Counting, ConfigError> {
        Ok(Counting)
    }

    fn process(&self, _: &mut PacketView<'_>, state: &mut u64, context: &mut Context<'_>) -> Verdict {
        *state += 1;
        context.count(COUNTERS.packets, 1);
        Verdict::Forward
    }
}

const POLICY: &str = "Port<0> inside; Port<1> outside; Monitor m {}; pipelet { inside <-> m <-> outside; }
settings { seed: 1, timeouts: { udp: 50ms, udp_unreplied: 50ms } };";

/// The policy, with a stage that panics at every n-th call.
fn shaken(every: u64, panics: &Arc<AtomicU64>) -> Assembly {
    let mut assembly = assembly_of("shaken.rvl", POLICY);
    let options = *assembly.graph.options();
    let counting =
        nf::stage::load::<Counting>(NoConfig {}, Setup::new(options.seed, options.flows_max)).unwrap();
    let shaky = Shaky { inside: counting, every, calls: AtomicU64::new(0), panics: Arc::clone(panics) };
    assembly.graph = Box::new(Graph::new(vec![Box::new(shaky)], options).unwrap());
    assembly
}

#[test]
fn threads_that_panic_go_on() {
    runtime::panics::keep();
    let frames = generated(&profile(Payload::Random, 6_000, 20_000.0, SEED));
    for (mode, every) in [(Granularity::Packet, 40), (Granularity::Packet, 3), (Granularity::Flowlet, 40)] {
        let panics = Arc::new(AtomicU64::new(0));
        let config = UnitsConfig {
            mode,
            units_min: 3,
            units_max: 4,
            capacity_bps: 20_000_000,
            ..UnitsConfig::as_published()
        };
        let make: Maker = {
            let panics = Arc::clone(&panics);
            Arc::new(move || Ok(shaken(every, &panics).graph))
        };
        let runner = Runner::on_threads(shaken(every, &panics), "shaken", config, make).unwrap();
        let (sink, report) = play(runner, &frames);
        let panics = panics.load(Ordering::Relaxed);
        println!("{mode:?}: {panics} panics, {} restarts, {:?}", report.restarts, report.drops);
        assert!(report.adds_up(), "{report:#?}");
        assert!(report.restarts > 0 && report.restarts <= panics);
        assert_eq!(sink.sent.len() as u64, report.packets_out);
        assert_eq!(report.functions[0].counters["packets"].count, report.functions[0].packets);
        assert!(report.packets_out > 1_000, "{} left", report.packets_out);
    }
}
