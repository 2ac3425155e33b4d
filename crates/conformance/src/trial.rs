//! A random graph, its packets, and the steps between them.

use graph::{Graph, Options, Topology, WhenFull};
use io::traffic::{Attacks, FlowLength, FrameRate, Payload, Protocols, TrafficProfile};
use nf::stage::Stage;
use nf::{Registry, Setup};
use packet::split_mix;
use policy::Policy;
use serde_json::Value;

use crate::{FunctionSpec, GraphForm, LineShape, Tape, TrialStep, Witness};

/// A graph of functions, its packets, and the steps between them. The same seed gives the same
/// trial.
#[derive(Clone)]
pub struct GraphTrial<'a> {
    /// The functions, from the inside to the outside.
    pub functions: Vec<&'a FunctionSpec>,
    /// Packets for this graph: packets from outside answer what leaves it.
    pub tape: Tape,
    /// The steps.
    pub steps: Vec<TrialStep>,
    /// The branches, if it is no line.
    pub fork: Option<Fork>,
    pub(crate) registry: &'a Registry<Value>,
    options: Options,
}

/// A graph of two branches between its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Number of functions of the branch for packets that pass the filter: the first ones.
    pub functions: usize,
    /// The filter, in the policy language.
    pub filter: &'static str,
}

/// Filters of forks. Packets of one flow may differ in the last ones.
const FILTERS: [&str; 6] =
    ["udp", "src port 0-32767", "dst port 80", "src ip 0.0.0.0/1", "tcp flags psh", "dscp 0"];

/// A filter that all packets of a trial pass.
const ALL_TRAFFIC: &str = "!ip 192.0.2.77";

/// Limit on the functions of a graph.
const FUNCTIONS_MAX: usize = 6;
/// Packets of a trial.
const PACKETS: u64 = 400;
/// Room of the flow table. In one trial of four, flows are evicted for others.
const FLOWS: [u32; 4] = [5, 512, 512, 512];
/// Limit on the packets of a batch: more than a group has.
const BATCH_MAX: usize = 70;

impl<'a> GraphTrial<'a> {
    /// Draws a graph of some of these functions, at least one of the first `under_test` among them.
    /// Returns `None` if the functions drawn cannot form a graph.
    ///
    /// # Errors
    /// If such traffic cannot be made up.
    pub fn draw(
        registry: &'a Registry<Value>,
        subjects: &'a [FunctionSpec],
        under_test: usize,
        seed: &mut u64,
    ) -> Result<Option<GraphTrial<'a>>, String> {
        let mut draw = |below: usize| split_mix(seed) as usize % below.max(1);
        let mut functions: Vec<&FunctionSpec> =
            (0..draw(FUNCTIONS_MAX)).filter_map(|_| subjects.get(draw(subjects.len()))).collect();
        let first = subjects.get(draw(under_test.min(subjects.len()))).ok_or("there are no functions")?;
        functions.insert(draw(functions.len() + 1), first);
        let alone = |subject: &&&FunctionSpec| {
            registry.find(&subject.name).is_some_and(|entry| entry.descriptor.changes_flows)
        };
        if let Some(only) = functions.iter().find(alone).copied() {
            functions = vec![only];
        }
        let options = Options {
            flows_max: FLOWS[draw(FLOWS.len())],
            when_full: if draw(4) == 0 { WhenFull::RefuseNew } else { WhenFull::EvictOldest },
            inner: draw(4) == 0,
            seed: 7,
            ..Options::default()
        };
        let fork = (functions.len() > 1 && draw(4) == 0)
            .then(|| Fork { functions: 1 + draw(functions.len() - 1), filter: FILTERS[draw(FILTERS.len())] });
        let (tape, steps) = (Tape::default(), Vec::new());
        let mut trial = GraphTrial { functions, tape, steps, fork, registry, options };
        let Ok(mut plain) = trial.graph(GraphForm::default()) else { return Ok(None) };
        let talk = Tape::talk(draw(usize::MAX) as u64);
        let profile = TrafficProfile {
            packets: Some(PACKETS),
            flows: 12,
            flow_length: FlowLength::Geometric(8.0),
            protocols: Protocols { tcp: 0.6, udp: 0.3, icmp: 0.05, fragments: 0.05 },
            ipv6_share: 0.1,
            reset_share: 0.3,
            rate: FrameRate::PacketsPerSecond(400.0),
            payload: if draw(3) == 0 { Payload::Http } else { talk.payload },
            attacks: Attacks { malformed: 0.02, ..Attacks::default() },
            ..talk
        };
        let generated = Tape::generated(&profile)?;
        trial.tape = match draw(2) {
            0 => generated.translated(&mut plain),
            _ => generated.translated_with_hairpins(&mut plain, draw(usize::MAX) as u64),
        };
        trial.tape.damage(draw(usize::MAX) as u64);
        let mut at = 0;
        while at < trial.tape.len() {
            let len = 1 + draw(BATCH_MAX);
            trial.steps.push(TrialStep::Batch(len));
            at += len;
            let function = draw(trial.functions.len());
            let commands = &trial.functions[function].commands;
            match draw(16) {
                0 => trial.steps.push(TrialStep::Move),
                1..=4 if !commands.is_empty() => {
                    trial.steps.push(TrialStep::Command(function, commands[draw(commands.len())].clone()));
                }
                _ => {}
            }
        }
        Ok(Some(trial))
    }

    /// Creates a trial of this function only, without traffic.
    pub(crate) fn alone(registry: &'a Registry<Value>, subject: &'a FunctionSpec) -> GraphTrial<'a> {
        let (functions, options) = (vec![subject], Options::default());
        GraphTrial { functions, tape: Tape::default(), steps: Vec::new(), fork: None, registry, options }
    }

    /// Returns the number of commands.
    pub fn commands(&self) -> u64 {
        self.steps.iter().filter(|step| matches!(step, TrialStep::Command(..))).count() as u64
    }

    /// Returns the number of moves of all flows.
    pub fn moves(&self) -> u64 {
        self.steps.iter().filter(|step| matches!(step, TrialStep::Move)).count() as u64
    }

    /// Creates the graph, without flows.
    ///
    /// # Errors
    /// If its functions cannot form one.
    pub fn graph(&self, form: GraphForm) -> Result<Graph, String> {
        let make = |subject: &&FunctionSpec| -> Result<Box<dyn Stage>, String> {
            let entry = self.registry.find(&subject.name).ok_or_else(|| unknown(self.registry, subject))?;
            let mut setup = Setup::new(self.options.seed, self.options.flows_max);
            setup.inner = true; // As tunnels want it, also where they do not get it.
            entry.make(&subject.config, setup).map_err(|wrong| format!("{subject}: {wrong}"))
        };
        let copies = if form.shape == LineShape::Branch { 2 } else { 1 };
        let all = std::iter::repeat_n(&self.functions, copies).flatten();
        let stages = all.map(make).collect::<Result<_, _>>()?;
        let options = Options { consolidate: form.consolidates, ..self.options };
        let graph = match form.shape != LineShape::Line || self.fork.is_some() {
            true => Graph::branching(stages, self.topology(form.shape)?, options),
            false => Graph::new(stages, options),
        };
        graph.map_err(|wrong| wrong.to_string())
    }

    /// Returns the topology with branches, or of a line that may be routed. Functions of the second
    /// branch follow those of the first.
    fn topology(&self, shape: LineShape) -> Result<Topology, String> {
        let functions = self.functions.len();
        let (fork, count) = match shape {
            LineShape::Branch => (Some(Fork { functions, filter: ALL_TRAFFIC }), 2 * functions),
            LineShape::Line | LineShape::Routed => (self.fork, functions),
        };
        let names: Vec<String> = (0..count).map(|function| format!("f{function}")).collect();
        let nfs: String = names.iter().map(|name| format!("Nf {name};\n")).collect();
        let line = |names: &[String]| names.iter().map(|name| format!("{name} <-> ")).collect::<String>();
        let lines = match fork {
            None => format!("in <-> {}out;", line(&names)),
            Some(Fork { functions, filter }) => {
                let (first, second) = names.split_at(functions.min(names.len()));
                format!("in [{filter}] <-> {}out; in <-> {}out;", line(first), line(second))
            }
        };
        let text = format!("Port<0> in;\nPort<1> out;\n{nfs}pipelet {{ {lines} }}\n");
        let policy = Policy::read("line", &text, &mut |_: &str| Err(String::new()));
        let policy = policy.map_err(|wrong| format!("{wrong:?}"))?;
        Topology::new(&policy).map_err(|wrong| wrong.to_string())
    }

    /// Runs the trial, and returns everything that can be observed of it.
    ///
    /// # Errors
    /// As for [`GraphTrial::graph`].
    pub fn run(&self, form: GraphForm) -> Result<Witness, String> {
        let mut graph = self.graph(form)?;
        let mut replace = || self.graph(form).ok();
        Ok(Witness::of_first(self.functions.len(), &mut graph, &self.tape, &self.steps, &mut replace))
    }

    /// Returns the trial without one function, and without the commands to it.
    pub(crate) fn without(&self, function: usize) -> GraphTrial<'a> {
        let mut trial = self.clone();
        trial.functions.remove(function);
        if let Some(fork) = &mut trial.fork {
            fork.functions -= usize::from(function < fork.functions);
        }
        trial.steps.retain(|step| !matches!(step, TrialStep::Command(of, _) if *of == function));
        for step in &mut trial.steps {
            if let TrialStep::Command(of, _) = step {
                *of -= usize::from(*of > function);
            }
        }
        trial
    }
}

fn unknown(registry: &Registry<Value>, subject: &FunctionSpec) -> String {
    let known: Vec<&str> = registry.entries().iter().map(|entry| entry.descriptor.name).collect();
    format!("there is no network function `{}`; there are: {}", subject.name, known.join(", "))
}
