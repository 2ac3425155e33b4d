//! A trial: a policy over faulty links against a single graph over the same packets.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;

use nf::{Alert, Event, FlowReport};
use packet::{FlowHasher, LinkType, Packet, PacketClass, Parser};
use runtime::elastic::{ElasticError, UnitsConfig};
use runtime::report::Report;
use runtime::{Assembly, Frame, Ingress, Output, Runner};

use super::{FaultPlan, Outcome, runner};

/// A frame of the traffic.
#[derive(Clone, Debug)]
pub struct TrialFrame {
    /// Its arrival, in nanoseconds.
    pub timestamp_ns: u64,
    /// The kind of its first header.
    pub link: LinkType,
    /// Its length on the wire.
    pub wire_len: u32,
    /// Where it arrives.
    pub from: Ingress,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A policy, traffic, and faults.
pub struct Trial<A> {
    /// Makes the policy's assembly, with the same seed each time.
    pub assemble: A,
    /// The policy's name.
    pub name: String,
    /// The traffic, in order of arrival.
    pub frames: Vec<TrialFrame>,
    /// Units, and what is assigned to them.
    pub config: UnitsConfig,
    /// Faults of the links.
    pub plan: FaultPlan,
}

/// A trial's result.
#[derive(Debug)]
pub struct TrialReport {
    /// What the links did.
    pub outcome: Outcome,
    /// What the run on units reported.
    pub report: Report,
    /// Packets that were released.
    pub released: u64,
    /// The first fault that was found.
    pub difference: Option<Difference>,
}

/// A way in which a run over faulty links differs from a single graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The packets that were released in a direction of a flow.
    Flow {
        /// The direction.
        flow: String,
        /// Packets that were released.
        released: usize,
        /// Packets that a single graph releases.
        expected: usize,
        /// The first of them that differs, from 0.
        first: usize,
    },
    /// Packets are pending forever.
    Stuck(u64),
    /// Packets are not accounted for.
    Accounts,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Flow { flow, released, expected, first } => write!(
                f,
                "{flow}: packet {first} differs; {released} packets were released, {expected} were expected"
            ),
            Difference::Stuck(packets) => write!(f, "{packets} packets are pending forever"),
            Difference::Accounts => f.write_str("packets in, out and dropped do not add up"),
        }
    }
}

impl<A: Fn() -> Result<Assembly, String> + Clone + 'static> Trial<A> {
    /// Runs the trial with a seed for the links.
    ///
    /// # Errors
    /// If the units cannot be set up.
    pub fn run(&self, seed: u64) -> Result<TrialReport, ElasticError> {
        let assembly = (self.assemble)().map_err(ElasticError::Graph)?;
        let assemble = self.assemble.clone();
        let make = move || assemble().map(|assembly| assembly.graph);
        let (mut faulty, outcome) = runner(assembly, &self.name, self.config, self.plan, seed, make)?;
        let mut released = Released::default();
        let report = self.play(&mut faulty, self.frames.iter(), &mut released);
        let outcome = outcome.borrow().clone();
        let processed = (0u64..).zip(&self.frames);
        let processed = processed.filter(|(number, _)| !outcome.unprocessed.contains(number));
        let mut single = Runner::new((self.assemble)().map_err(ElasticError::Graph)?, &self.name);
        let mut expected = Released::default();
        self.play(&mut single, processed.map(|(_, frame)| frame), &mut expected);
        let difference = match () {
            () if outcome.stuck > 0 => Some(Difference::Stuck(outcome.stuck)),
            () if !report.adds_up() => Some(Difference::Accounts),
            () => released.difference(&expected),
        };
        Ok(TrialReport { outcome, report, released: released.packets, difference })
    }

    fn play<'a>(
        &self,
        runner: &mut Runner,
        frames: impl Iterator<Item = &'a TrialFrame>,
        released: &mut Released,
    ) -> Report {
        for frame in frames {
            let TrialFrame { timestamp_ns, link, wire_len, from, ref data } = *frame;
            let Ok(()) = runner.receive(Frame { timestamp_ns, link, wire_len, data }, from, released);
        }
        let Ok(report) = runner.finish(released);
        report
    }
}

/// Packets that were released, by direction of flow.
#[derive(Default)]
struct Released {
    flows: BTreeMap<String, Vec<Vec<u8>>>,
    packets: u64,
}

impl Released {
    fn difference(&self, expected: &Released) -> Option<Difference> {
        let nothing = Vec::new();
        let flows = expected.flows.keys().chain(self.flows.keys());
        flows.into_iter().find_map(|flow| {
            let released = self.flows.get(flow).unwrap_or(&nothing);
            let expected = expected.flows.get(flow).unwrap_or(&nothing);
            (released != expected).then(|| Difference::Flow {
                flow: flow.clone(),
                released: released.len(),
                expected: expected.len(),
                first: released.iter().zip(expected).take_while(|(a, b)| a == b).count(),
            })
        })
    }
}

impl Output for Released {
    type Error = Infallible;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), Infallible> {
        let data = packet.data().to_vec();
        let mut copy = Packet::from_bytes(&data);
        copy.meta_mut().link = packet.meta().link;
        let parsed = Parser::new(FlowHasher::new(0)).parse(&mut copy);
        let meta = copy.meta();
        // A later fragment has no ports: it is compared by itself.
        let flow = match meta.class {
            PacketClass::LaterFragment => format!("port {port}, fragment {data:02x?}"),
            _ if parsed.is_err() => format!("port {port}, unreadable"),
            _ => format!("port {port}, {:?}, reversed: {}", meta.key, meta.reversed),
        };
        self.flows.entry(flow).or_default().push(data);
        self.packets += 1;
        Ok(())
    }

    fn alert(&mut self, _function: &str, _alert: &Alert) -> Result<(), Infallible> {
        Ok(())
    }

    fn event(&mut self, _function: &str, _event: Event<'_>) -> Result<(), Infallible> {
        Ok(())
    }

    fn flow(&mut self, _report: &FlowReport, _now_ns: u64) -> Result<(), Infallible> {
        Ok(())
    }
}
