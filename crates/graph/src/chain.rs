//! The chain: functions in order, over flows.
//!
//! Packets come in batches. A batch is parsed and looked up in passes, so that memory is asked for
//! before it is needed (`enter`); packets of known flows form groups, slices of the batch, and each
//! function processes a whole group in one call (`cross`), with what the group brought to TCP
//! streams where it wants that (`subscribed`); then what was decided is carried out (`settle`).
//! What may create or end a flow, or depends on another packet's outcome, goes alone, after the
//! group before it; and a group ends before a packet that its packets could matter to otherwise
//! than in order (see `Gathering`).
//!
//! So the result is that of one packet after the other, however they are batched. What functions
//! make in answer to a packet of a known flow goes through the others before the next packet does,
//! as a packet that may be answered is a group of its own (see `Apart`); alerts, events and flow
//! reports of a group are put in the order of packets. Three things are left: when the memory of
//! all streams, or of all growing buffers of a function, is used up, another of them may be the one
//! that gets none; the first packet that is turned back in the midst of a known flow may reach the
//! functions on its way back after packets that came behind it; and a flow at whose packet a
//! function panics ends with its group.
//!
//! Time is the latest time stamp that any packet had: a packet with an earlier one is late, and
//! comes now.

mod admitted;
mod contained;
mod cross;
mod enter;
mod holding;
mod moving;
mod replaying;
mod settle;
mod sides;
mod steps;
mod subscribed;
mod turning;
mod upgrading;

use std::panic::{AssertUnwindSafe, catch_unwind};

use nf::record::{FlowRecords, RecordLayout};
use nf::stage::{PacketTotals, Stage};
use nf::{Effects, EndReason, SharedHandle, Verdict};
use packet::memory::OutOfMemory;
use packet::{Direction, Packet, PacketPool};

use crate::cache::{Course, FlowCache, RuleView};
use crate::classifier::Classifier;
use crate::flows::Flows;
use crate::gathering::{Apart, GROUP_MAX, Gathering, OtherCourses};
use crate::ingresses::Ingresses;
use crate::joining::Joining;
use crate::observer::Observer;
use crate::queue::Queue;
use crate::{Counters, FastPath, Options, Walked};
pub use admitted::Change;
use enter::Gathered;
pub use replaying::{NoHistory, history_len};
use sides::Sides;
use subscribed::Subscribed;
pub use upgrading::SavedLayout;

/// Runs network functions in order over flows, from the inside to the outside and back in reverse
/// order.
pub struct Chain {
    stages: Vec<Box<dyn Stage>>,
    options: Options,
    /// Which flow each packet belongs to.
    classifier: Classifier,
    /// A command may have changed what passes unjudged.
    is_commanded: bool,
    /// By which ports flows came in, if that matters.
    ingresses: Option<Ingresses>,
    /// The flows.
    flows: Flows,
    layout: RecordLayout,
    /// Which chain this is: flows move between chains of the same functions in the same versions.
    fingerprint: u64,
    /// Bytes of a record before the functions' parts.
    lead_len: usize,
    /// Chains with other versions of the functions, whose flows are taken over.
    other_versions: Vec<SavedLayout>,
    effects: Effects,
    counters: Counters,
    cycles: Vec<u64>,
    /// By function: what packets took that went through it themselves, and not by a rule.
    walked: Vec<Walked>,
    joining: Joining,
    /// What is to be done with the packets of a group.
    courses: [Course; GROUP_MAX],
    other_courses: OtherCourses,
    /// What stands for walks through the chain, if that is worth it.
    cache: Option<FlowCache>,
    /// What it needs to run state functions side by side, if it does.
    sides: Option<Box<Sides>>,
    /// The flows' TCP streams, if a function wants them.
    subscribed: Option<Subscribed>,
    /// The latest time that any packet had.
    now_ns: u64,
    /// The same as of the last packet that is settled.
    settled_ns: u64,
    /// How long a group may take.
    group_span_ns: u64,
    /// Whether the batch has packets from both sides; if so, `gathering` says which may be in one
    /// group.
    mixed: bool,
    /// Whether a function may end flows for new ones.
    makes_room: bool,
    gathering: Gathering,
    /// Which packets of known flows functions may answer: they go alone; none until it is looked up
    /// again.
    apart: Option<Apart>,
    /// Room that is reused.
    due: Vec<u32>,
    waited: Vec<Packet>,
    /// Packets that functions made, on their way out.
    answers: Vec<Packet>,
    /// Packets of the group that were turned back, by number and by function, until the others are
    /// through.
    turned: Vec<(usize, usize)>,
    /// Flows that end once their group is through: a function panicked at a packet of theirs.
    failed: Vec<u32>,
    /// The homes of the batch's flows, by the packets' numbers, if the chain was told.
    homes: Vec<(u64, u32)>,
    changes: Vec<Change>,
    /// Where goes what comes of packets that others have; none if there were none so far.
    aside: Option<Box<Effects>>,
    /// Whether the packets under way are such.
    is_replaying: bool,
}

/// A chain could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// Not enough memory for the flow table.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The attributes of all functions together do not fit a packet's tag word.
    #[error("the attributes of the functions up to `{0}` take more than 64 bits")]
    TooManyTags(&'static str),
    /// A function [changes flows](nf::Descriptor::changes_flows), and is not alone.
    #[error(
        "`{0}` ends tunnels and stands alone between its ports: behind it a packet belongs to another flow than it came with, \
         whose state other functions would not have"
    )]
    NotAlone(&'static str),
}

impl Chain {
    /// A chain of these functions, the first one inside.
    pub fn new(mut stages: Vec<Box<dyn Stage>>, options: Options) -> Result<Chain, ChainError> {
        let changes_flows = stages.iter().map(|stage| stage.descriptor()).find(|d| d.changes_flows);
        if let Some(descriptor) = changes_flows.filter(|_| stages.len() > 1) {
            return Err(ChainError::NotAlone(descriptor.name));
        }
        let (mut layout, mut tag_bit) = (RecordLayout::default(), 0);
        let subscribed = Subscribed::new(&stages, &mut layout, options.streams, options.seed)?;
        let lead_len = layout.len();
        for (number, stage) in stages.iter_mut().enumerate() {
            stage.set_on_panic(options.on_panic);
            let name = stage.descriptor().name;
            tag_bit =
                stage.place(number as u16, &mut layout, tag_bit).ok_or(ChainError::TooManyTags(name))?;
        }
        let mut classifier = Classifier::new(&options);
        classifier.set_passes_unjudged(forwards_unclassified(&stages));
        let flows_max = if stages.is_empty() { 1 } else { options.flows_max };
        let keeps_flows = stages.iter().any(|stage| stage.descriptor().keeps_flows);
        let makes_room = stages.iter().any(|stage| stage.makes_room());
        let order_felt = stages.iter().any(|stage| stage.shared().is_order_sensitive());
        let flows = Flows::new(
            flows_max,
            layout.clone(),
            classifier.parser().hasher,
            (&options.shares, options.seed),
        )?;
        let capacity = flows.records.capacity();
        let cache = if options.consolidate { FlowCache::new(&stages, &layout, capacity)? } else { None };
        Ok(Chain {
            cycles: vec![0; stages.len()],
            walked: vec![Walked::default(); stages.len()],
            joining: Joining {
                timeouts: options.timeouts,
                keeps_flows,
                tags: tag_bit > 0,
                has_aliases: changes_flows.is_none(),
            },
            courses: [Course::WALK; GROUP_MAX],
            other_courses: [Course::WALK; _],
            cache,
            sides: None,
            subscribed,
            // What a packet says about how long its flow is kept is heeded when its group is
            // through: so no group takes longer than the shortest that a flow can be kept.
            group_span_ns: if keeps_flows {
                1_000_000
            } else {
                u64::from(options.timeouts.shortest_ms()) * 1_000_000
            },
            gathering: Gathering::new(order_felt),
            apart: None,
            mixed: false,
            makes_room,
            classifier,
            is_commanded: false,
            ingresses: options.remembers_ports.then(|| Ingresses::new(flows_max)),
            fingerprint: moving::fingerprint(&stages, &layout),
            lead_len,
            other_versions: Vec::new(),
            flows,
            layout,
            options,
            effects: Effects::default(),
            counters: Counters::default(),
            now_ns: 0,
            settled_ns: 0,
            due: Vec::new(),
            waited: Vec::new(),
            answers: Vec::new(),
            turned: Vec::new(),
            failed: Vec::new(),
            homes: Vec::new(),
            changes: Vec::new(),
            aside: None,
            is_replaying: false,
            stages,
        })
    }

    /// Processes packets in order; those that leave are added to `out`, their metadata's `side` now
    /// being the side that they leave by. The receiver has set what [`Parser::parse`] asks for.
    pub fn process(&mut self, batch: &mut Vec<Packet>, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let mut run = Run { out, pool, observer: None, is_alone: false };
        if self.stages.is_empty() {
            return self.pass_through(batch, &mut run);
        }
        self.homes.clear();
        self.look_up(batch);
        self.run(batch, &mut run);
        debug_assert!(self.classifier.refuses_none(), "each was dropped in its turn");
    }

    /// Takes packets that were looked up through.
    fn run(&mut self, batch: &mut Vec<Packet>, run: &mut Run<'_, '_>) {
        let account = self.account(batch.len());
        if self.apart.is_none() {
            self.apart = Some(Apart::of(&self.stages));
        }
        let mut queue = Queue::enter(batch);
        let all = || {
            self.run_queue(&mut queue, run);
            self.advance(self.now_ns, run.pool);
        };
        if catch_unwind(AssertUnwindSafe(all)).is_err() {
            self.start_over(&mut queue, account, run);
        }
        queue.leave(batch, run.out);
    }

    /// Takes the packets of a queue through.
    fn run_queue(&mut self, queue: &mut Queue, run: &mut Run<'_, '_>) {
        while queue.rest_len() > 0 {
            let may_be_apart = self.apart.is_some_and(|apart| apart.is_any);
            let Gathered { load, course, uniform } = match (&self.cache, may_be_apart) {
                (None, false) => self.gather::<false, false>(queue.rest()),
                (None, true) => self.gather::<false, true>(queue.rest()),
                (Some(_), false) => self.gather::<true, false>(queue.rest()),
                (Some(_), true) => self.gather::<true, true>(queue.rest()),
            };
            let count = load.packets as usize;
            if count > 0 {
                let verdicts = &mut [Verdict::Forward; GROUP_MAX][..count];
                let packets = &mut queue.rest()[..count];
                let loads =
                    if self.mixed { PacketTotals::by_side(packets, verdicts) } else { load.of(packets) };
                if uniform {
                    self.cross(packets, verdicts, loads, course.program(), run);
                } else {
                    self.cross_mixed(packets, verdicts, run);
                }
                self.settle_group(queue, verdicts, run);
                if !self.failed.is_empty() {
                    self.end_failed(run.pool);
                }
            } else if course == Course::REVIEW {
                if let Some(cache) = &mut self.cache {
                    cache.review(&self.stages, &self.flows.records, &queue.rest()[0]);
                }
            } else if let Some(packet) = queue.next(run.out) {
                let parsed = self.classifier.take_refusal(&packet);
                self.alone(packet, parsed, run);
            }
        }
    }

    /// Processes one packet, and tells `observer` what every function did to it.
    pub fn observe(
        &mut self,
        mut packet: Packet,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
        observer: &mut dyn Observer,
    ) {
        let parsed = self.classifier.classify_one(&mut packet);
        observer.arrived(&packet);
        let mut run = Run { out, pool, observer: Some(observer), is_alone: false };
        match parsed {
            Ok(()) if self.stages.is_empty() => self.pass(packet, &mut run),
            parsed => self.alone(packet, parsed, &mut run),
        }
        self.advance(self.now_ns, pool);
    }

    /// Lets time pass to `now_ns`: flows and fragments whose time is over go.
    pub fn advance(&mut self, now_ns: u64, pool: &mut PacketPool) {
        self.now_ns = self.now_ns.max(now_ns);
        self.settled_ns = self.now_ns;
        let mut due = std::mem::take(&mut self.due);
        self.flows.expired(self.now_ns, &mut due);
        for &record in &due {
            self.end_in_time(record, pool);
        }
        self.due = due;
        self.classifier.handle_timeout(self.now_ns, pool);
        self.expire_datagrams(pool);
    }

    /// Ends all flows: the run is over. Fragments that still wait stay counted as held.
    ///
    /// False if there are more flows than room for what their ends bring about: then alerts, events
    /// and reports are to be taken (see [`Chain::effects_mut`]), and the rest ends with the next
    /// call.
    pub fn finish(&mut self, pool: &mut PacketPool) -> bool {
        let mut live = std::mem::take(&mut self.due);
        live.clear();
        live.extend(self.flows.live());
        let mut ended = 0;
        for &record in &live {
            if self.effects.is_half_full() {
                break;
            }
            self.end_flow(record, EndReason::Shutdown, pool);
            ended += 1;
        }
        let all = ended == live.len();
        self.due = live;
        all
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        let (own, classified, displaced) = (&self.counters, self.classifier.counted(), self.displaced());
        Counters {
            packets_in: classified.packets_in,
            bytes_in: classified.bytes_in,
            packets_out: own.packets_out + classified.packets_out,
            bytes_out: own.bytes_out + classified.bytes_out,
            drops: std::array::from_fn(|reason| own.drops[reason] + classified.drops[reason]),
            not_ip_passed: classified.not_ip_passed,
            link_control_passed: classified.link_control_passed,
            flows_live: self.live(),
            packets_held: self.packets_held(),
            fragments_moved: self.fragments_moved(),
            fragments_displaced: displaced.table,
            fragments_displaced_by_source: displaced.source,
            flows_by_class: self.flows.classes.live().map(u64::from),
            streams: self.subscribed.as_ref().map(Subscribed::counters).unwrap_or_default(),
            ..own.clone()
        }
    }

    /// How packets went through.
    pub fn fast_path(&self) -> FastPath {
        self.cache.as_ref().map(FlowCache::counters).unwrap_or_default()
    }

    /// Whether packets of known flows may follow rules.
    pub fn consolidates(&self) -> bool {
        self.cache.is_some()
    }

    /// The rule for packets of one direction of a flow, by the number of its record, that are like
    /// the last one that was recorded; none if there is no such rule.
    pub fn rule_of(&self, record: u32, direction: Direction) -> Option<RuleView> {
        self.cache.as_ref()?.rule_of(record, direction)
    }

    /// What was known of the flow's packets holds no more.
    fn forget_rules(&mut self, record: u32) {
        if let Some(cache) = &mut self.cache {
            cache.forget(record);
        }
    }

    /// Flows that it has.
    fn live(&self) -> u64 {
        u64::from(self.flows.records.live() - self.flows.passes.count())
    }

    /// Whether all records are in use.
    fn is_full(&self) -> bool {
        self.flows.records.live() >= self.flows.records.capacity()
    }

    /// How it is to behave.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What each function's flows share, for chains of the same functions on other threads to
    /// [`join`](Chain::join).
    pub fn share(&mut self) -> Vec<SharedHandle> {
        self.stages.iter_mut().map(|stage| stage.share()).collect()
    }

    /// This chain, which has no flows yet, has what its functions share in common with those that
    /// shared this.
    pub fn join(&mut self, commons: Vec<SharedHandle>) {
        self.stages.iter_mut().zip(commons).for_each(|(stage, common)| stage.join(common));
    }

    /// Whoever gives it packets knows whom later fragments follow ([`Chain::learn_first`]): none
    /// wait here.
    pub fn let_no_fragments_wait(&mut self) {
        self.classifier.hold_no_fragments();
    }

    /// Has what functions share with those of other chains here, to be looked at. Those wait for it
    /// until [`Chain::give_shared_back`].
    pub fn fetch_shared(&mut self) {
        self.stages.iter_mut().for_each(|stage| stage.open());
    }

    /// Lets others have it again.
    pub fn give_shared_back(&mut self) {
        self.stages.iter_mut().for_each(|stage| stage.close());
    }

    /// The chains that joined this one are gone: what was shared is its own again.
    pub fn part(&mut self) {
        self.stages.iter_mut().for_each(|stage| stage.part());
    }

    /// The functions, from the inside to the outside.
    pub fn stages(&self) -> &[Box<dyn Stage>] {
        &self.stages
    }

    /// Packets come from captures: an IPv4 total length of 0 is that of a segment that the
    /// capturing host's card was to cut.
    pub fn expect_offloaded(&mut self) {
        self.options.offloaded = true;
        self.classifier.expect_offloaded();
    }

    /// A function, to be commanded.
    pub fn stage_mut(&mut self, stage: usize) -> Option<&mut (dyn Stage + 'static)> {
        self.is_commanded = true;
        self.cache.iter_mut().for_each(FlowCache::raise_version);
        self.apart = None;
        self.stages.get_mut(stage).map(|stage| &mut **stage)
    }

    /// Processor cycles spent in each function, if [`Options::cycles`] counts them.
    pub fn cycles(&self) -> &[u64] {
        &self.cycles
    }

    /// The part of these that packets took which went through the functions themselves. The rest is
    /// that of state functions, which rules of the fast path name.
    pub fn walked(&self) -> &[Walked] {
        &self.walked
    }

    /// What functions put out beside packets, to be looked at.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Alerts, events and flow reports, to be taken.
    pub fn effects_mut(&mut self) -> &mut Effects {
        &mut self.effects
    }

    /// Bytes that a flow takes: its record.
    pub fn record_len(&self) -> usize {
        self.flows.records.record_len()
    }

    /// Whether a function wants TCP streams put together.
    pub fn has_streams(&self) -> bool {
        self.subscribed.is_some()
    }

    /// Adds what a flow's TCP streams have come to, with all bytes that wait, to `out`, to go on
    /// from there elsewhere; nothing if no function wants streams. See
    /// [`crate::streams::Reassembler::restore`].
    pub fn save_streams(&self, record: u32, out: &mut Vec<u8>) {
        if let Some(subscribed) = &self.subscribed {
            subscribed.save(record, &self.flows.records, out);
        }
    }

    /// The records of flows, to be looked at.
    pub fn records(&self) -> &FlowRecords {
        &self.flows.records
    }
}

/// Whether packets that functions cannot judge may pass all of these.
fn forwards_unclassified(stages: &[Box<dyn Stage>]) -> bool {
    stages.iter().all(|stage| stage.forwards_unclassified())
}

/// What goes along with packets on their way through.
struct Run<'a, 'o> {
    out: &'a mut Vec<Packet>,
    pool: &'a mut PacketPool,
    observer: Option<&'a mut (dyn Observer + 'o)>,
    /// Whether the packet that is under way is the only one.
    is_alone: bool,
}
