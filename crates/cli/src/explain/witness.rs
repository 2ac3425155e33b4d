//! Watches packets pass a chain, and keeps what happened to each until it is told.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use graph::{Observer, RuleView};
use nf::record::RecordHeader;
use nf::{Alert, Event, FlowReport, Recording, Verdict};
use packet::{DropReason, FlowKey, Meta, Packet};
use runtime::{Frame, Ingress, Output, Runner};

use crate::eve;

/// Fragments that wait for their first one, and whose arrival is remembered: as many as a runner
/// has buffers. Those whose time is over are the first to be forgotten.
const HELD_MAX: usize = 8 * 1024;

/// Refused flows whose number is remembered, so that their next packets have the same; further ones
/// get new numbers.
const REFUSED_MAX: usize = 1 << 20;

/// What a function did.
pub struct Step {
    /// Its place in the chain.
    pub stage: usize,
    /// The packet before.
    pub before: Packet,
    /// The packet after; none if the function is not done.
    pub after: Option<Packet>,
    /// What it decided.
    pub verdict: Verdict,
    /// What it recorded.
    pub recording: Recording,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It waits inside, for its first fragment or the rest of its datagram.
    Held,
    /// It left: as the packet with this number of those that left at this time.
    Sent(usize),
    /// It was dropped.
    Dropped(DropReason),
}

/// A packet's way through the chain.
pub struct Passage {
    /// Its number in order of arrival, from 1; that of the packet that it answers if a function
    /// made it.
    pub number: Option<u64>,
    /// The number in the chain's order.
    pub sequence: u64,
    /// Whether a function made it.
    pub made: bool,
    /// Its flow's number, in order of first packets.
    pub flow: Option<u64>,
    /// As it arrived; none if that is no longer known.
    pub arrived: Option<Packet>,
    /// As its flow was found: what the first function saw.
    pub joined: Option<Meta>,
    /// The functions that it passed, in order.
    pub steps: Vec<Step>,
    /// As it left.
    pub left: Option<Packet>,
    /// What became of it.
    pub outcome: Outcome,
    /// The key that the flow's replies are known by, if it is another than the flow's own; learned
    /// with this packet.
    pub alias: Option<FlowKey>,
    /// The rule that was made of its way, for packets like it.
    pub rule: Option<RuleView>,
}

/// Keeps what happens to the packets of one call.
#[derive(Default)]
pub struct Witness {
    number: u64,
    passages: Vec<Passage>,
    /// Fragments that wait: their numbers and how they arrived.
    held: BTreeMap<u64, (u64, Packet)>,
    sent: usize,
    flows: FlowNumbers,
}

impl Witness {
    /// The next packet to arrive has this number.
    pub fn expect(&mut self, number: u64) {
        self.number = number;
        self.sent = 0;
    }

    /// What happened since [`Witness::expect`], packet by packet.
    pub fn take(&mut self, frame: &Frame<'_>, from: Ingress, runner: &Runner) -> Vec<Passage> {
        let mut passages = std::mem::take(&mut self.passages);
        if passages.is_empty() {
            passages.push(self.refused(frame, from, runner));
        }
        for passage in &mut passages {
            if passage.outcome == Outcome::Held
                && let Some(arrived) = &passage.arrived
            {
                if self.held.len() == HELD_MAX {
                    self.held.pop_first();
                }
                self.held.insert(passage.sequence, (self.number, copy(arrived)));
            }
            if let Some(joined) = &passage.joined {
                let chain = &runner.assembly().chain;
                let header = chain.records().header(joined.transit.flow);
                let lives = header.has(RecordHeader::FLAG_LIVE);
                if lives && !passage.made {
                    passage.rule = chain.rule_of(joined.transit.flow, joined.transit.direction);
                }
                let learned = joined.transit.seq == 1
                    || passage.left.as_ref().is_some_and(|left| left.meta().transit.relearn_alias);
                if lives && learned && header.has(RecordHeader::FLAG_ALIAS) {
                    passage.alias = Some(header.alias);
                }
                self.flows.settle(joined, passage.flow, lives);
            }
        }
        passages
    }

    /// The frame never reached the chain.
    fn refused(&self, frame: &Frame<'_>, from: Ingress, runner: &Runner) -> Passage {
        let reason = match () {
            () if frame.data.len() + packet::HEADROOM > packet::LARGE_ROOM => DropReason::TooBig,
            () if !runner.assembly().both_ways => DropReason::Policy,
            () => DropReason::NoBuffer,
        };
        let mut arrived = Packet::from_bytes(frame.data);
        let meta = arrived.meta_mut();
        (meta.transit.timestamp_ns, meta.wire_len, meta.link) =
            (frame.timestamp_ns, frame.wire_len, frame.link);
        if let Some(port) = from.port(&runner.assembly().ports, &mut arrived) {
            let transit = &mut arrived.meta_mut().transit;
            (transit.ingress, transit.side) = (port.number, port.side);
        }
        Passage {
            outcome: Outcome::Dropped(reason),
            ..Passage::new(Some(self.number), u64::MAX, Some(arrived))
        }
    }

    /// Where the passage of a packet is that is on its way; one that waited, or was made, begins
    /// now.
    fn passage(&mut self, packet: &Packet) -> usize {
        let meta = packet.meta();
        // What a function made has the sequence number of the packet that it answers, and goes the
        // other way.
        let goes_otherwise = |joined: &Meta| {
            (joined.transit.direction, joined.transit.seq) != (meta.transit.direction, meta.transit.seq)
        };
        let mut same = self.passages.iter().filter(|p| p.sequence == meta.transit.sequence && !p.made);
        let answered = same.find(|p| p.joined.as_ref().is_some_and(goes_otherwise));
        let (made, number, flow) = match answered {
            Some(answered) => (true, answered.number, answered.flow),
            None => (false, None, None),
        };
        let known = self
            .passages
            .iter()
            .position(|p| p.sequence == meta.transit.sequence && p.made == made && !p.is_over());
        known.unwrap_or_else(|| {
            let passage = if made {
                Passage { made, flow, ..Passage::new(number, meta.transit.sequence, Some(copy(packet))) }
            } else {
                let (number, arrived) = self.held.remove(&meta.transit.sequence).unzip();
                Passage::new(number, meta.transit.sequence, arrived)
            };
            self.passages.push(passage);
            self.passages.len() - 1
        })
    }
}

impl Passage {
    fn new(number: Option<u64>, sequence: u64, arrived: Option<Packet>) -> Passage {
        Passage {
            number,
            sequence,
            made: false,
            flow: None,
            arrived,
            joined: None,
            steps: Vec::new(),
            left: None,
            outcome: Outcome::Held,
            alias: None,
            rule: None,
        }
    }

    fn is_over(&self) -> bool {
        self.outcome != Outcome::Held
    }
}

impl Observer for Witness {
    fn arrived(&mut self, packet: &Packet) {
        let passage = Passage::new(Some(self.number), packet.meta().transit.sequence, Some(copy(packet)));
        self.passages.push(passage);
    }

    fn before(&mut self, stage: usize, packet: &Packet) {
        let meta = packet.meta();
        let at = self.passage(packet);
        let passage = &mut self.passages[at];
        if matches!(passage.steps.last(), Some(Step { verdict: Verdict::Drop(_), .. })) {
            return; // Functions behind the one that dropped it do not see it.
        }
        if passage.steps.is_empty() && meta.transit.seq > 0 && !passage.made {
            passage.flow = Some(self.flows.of(meta));
            passage.joined = Some(meta.clone());
        }
        passage.steps.push(Step {
            stage,
            before: copy(packet),
            after: None,
            verdict: Verdict::Forward,
            recording: Recording::default(),
        });
    }

    fn after(&mut self, stage: usize, packet: &Packet, verdict: Verdict, recording: &Recording) {
        let at = self.passage(packet);
        let steps = &mut self.passages[at].steps;
        if let Some(step) = steps.iter_mut().find(|step| step.stage == stage && step.after.is_none()) {
            step.after = Some(copy(packet));
            step.verdict = verdict;
            step.recording = recording.clone();
        }
    }

    fn sent(&mut self, packet: &Packet) {
        let place = self.sent;
        self.sent += 1;
        let at = self.passage(packet);
        let passage = &mut self.passages[at];
        passage.left = Some(copy(packet));
        passage.outcome = Outcome::Sent(place);
    }

    fn dropped(&mut self, packet: &Packet, reason: DropReason) {
        let at = self.passage(packet);
        self.passages[at].outcome = Outcome::Dropped(reason);
    }
}

/// The packet as it is now.
fn copy(packet: &Packet) -> Packet {
    let mut copy = Packet::from_bytes(packet.data());
    *copy.meta_mut() = packet.meta().clone();
    copy
}

/// Numbers flows in order of their first packets.
#[derive(Default)]
struct FlowNumbers {
    last: u64,
    /// By record.
    live: HashMap<u32, u64>,
    /// Flows all of whose packets were dropped so far: to the chain, each of these packets begins a
    /// flow.
    refused: HashMap<FlowKey, u64>,
}

impl FlowNumbers {
    fn of(&mut self, meta: &Meta) -> u64 {
        if meta.transit.seq > 1
            && let Some(&number) = self.live.get(&meta.transit.flow)
        {
            return number;
        }
        let number = match self.refused.get(&meta.key) {
            Some(&number) => number,
            None => {
                self.last += 1;
                self.last
            }
        };
        self.live.insert(meta.transit.flow, number);
        number
    }

    /// A packet of a flow is through; the flow lives, or was refused with it.
    fn settle(&mut self, joined: &Meta, flow: Option<u64>, lives: bool) {
        if lives {
            self.refused.remove(&joined.key);
        } else if let Some(flow) = flow
            && self.refused.len() < REFUSED_MAX
        {
            self.refused.insert(joined.key, flow);
        }
    }
}

/// An event that a function told.
#[derive(Clone, serde::Serialize)]
pub struct Told {
    /// The function.
    pub function: String,
    /// What it is about.
    pub kind: &'static str,
    /// Its fields, as JSON.
    pub fields: serde_json::Value,
}

impl Told {
    fn new(function: &str, event: Event<'_>) -> Result<Told> {
        let fields: Vec<_> = event.fields().collect();
        let fields = serde_json::to_value(eve::Fields(&fields))?;
        Ok(Told { function: function.to_owned(), kind: event.kind, fields })
    }
}

/// What came out beside the witness's view: alerts, reports, and which ports packets left by.
#[derive(Default)]
pub struct Collected {
    /// The port of each packet that left, in order.
    pub ports: Vec<u16>,
    /// Alerts, each with its function.
    pub alerts: Vec<(String, Alert)>,
    /// Events told, each with its packet's number.
    pub told: Vec<(Option<u64>, Told)>,
    /// Flows that a monitor reported.
    pub reports: usize,
}

impl Collected {
    /// Makes room for the next packet.
    pub fn clear(&mut self) {
        self.ports.clear();
        self.alerts.clear();
        self.told.clear();
        self.reports = 0;
    }
}

impl Output for Collected {
    type Error = anyhow::Error;

    fn packet(&mut self, port: u16, _packet: &Packet) -> Result<()> {
        self.ports.push(port);
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<()> {
        self.alerts.push((function.to_owned(), alert.clone()));
        Ok(())
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<()> {
        self.told.push((event.sequence, Told::new(function, event)?));
        Ok(())
    }

    fn flow(&mut self, _report: &FlowReport, _now_ns: u64) -> Result<()> {
        self.reports += 1;
        Ok(())
    }
}
