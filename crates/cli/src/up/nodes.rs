//! External nodes of `rivulet up`: supervisors of legacy programs, and the ports of all nodes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use io::port::PortSpec;
use runtime::Assembly;
use runtime::external::{ExternalSetup, LegacyPlan, NodeState};
use telemetry::{event, shown};

use super::PortInterface;
use crate::messages;
use crate::supervisor::SupervisorNews;

/// The supervisors of legacy nodes. They end their programs when this is dropped.
#[derive(Default)]
pub struct Nodes {
    supervisors: Vec<Supervisor>,
}

/// A supervisor, a process of its own.
struct Supervisor {
    state: Arc<NodeState>,
    /// Closed when the program must end.
    input: ChildStdin,
    news: BufReader<ChildStdout>,
}

/// Ends supervisors, and waits for them.
pub struct NodesEnding {
    inputs: Vec<ChildStdin>,
    readers: Vec<JoinHandle<()>>,
}

impl Nodes {
    /// Starts the supervisors of a policy's legacy nodes. Their interfaces are there afterwards,
    /// with the MTUs of the policy's ports on these interfaces.
    ///
    /// Must come before privileges are given up.
    pub fn start(assembly: &Assembly, given: &[PortInterface]) -> anyhow::Result<Nodes> {
        let mut nodes = Nodes::default();
        let number = |given: &PortInterface| Some(assembly.ports.named(&given.port)?.number);
        let mtu_of = |port| given.iter().find(|given| number(given) == Some(port))?.spec.mtu();
        for (node, state) in assembly.externals.iter().zip(assembly.node_states()) {
            if let ExternalSetup::Legacy(plan) = &node.setup {
                let plan = LegacyPlan { mtus: node.mtus(&assembly.ports, mtu_of), ..(**plan).clone() };
                let supervisor = Supervisor::start(&plan, state);
                nodes
                    .supervisors
                    .push(supervisor.with_context(|| format!("cannot start the node {}", node.name))?);
            }
        }
        Ok(nodes)
    }

    /// Watches the programs from now on. Must come after privileges were given up, so that the
    /// threads have none.
    pub fn watch(self) -> anyhow::Result<NodesEnding> {
        let mut ending = NodesEnding { inputs: Vec::new(), readers: Vec::new() };
        for Supervisor { state, input, news } in self.supervisors {
            ending.inputs.push(input);
            let reader = std::thread::Builder::new().name("node".to_owned());
            let reader = reader.spawn(move || read_news(&state, news));
            ending.readers.push(reader.context("cannot start the thread of a node")?);
        }
        Ok(ending)
    }
}

impl NodesEnding {
    /// Ends all programs, and waits until their resources are removed.
    pub fn finish(self) {
        drop(self.inputs);
        for reader in self.readers {
            let _ = reader.join();
        }
    }
}

impl Supervisor {
    fn start(plan: &LegacyPlan, state: &Arc<NodeState>) -> anyhow::Result<Supervisor> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program)
            .arg("supervise")
            // Ctrl-C is for this process, which then ends the supervisor.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start its supervisor")?;
        let input = child.stdin.take().context("the supervisor has no input")?;
        let output = child.stdout.take().context("the supervisor has no output")?;
        let mut supervisor = Supervisor { state: Arc::clone(state), input, news: BufReader::new(output) };
        let plan = serde_json::to_string(plan)?;
        writeln!(supervisor.input, "{plan}").context("cannot write to its supervisor")?;
        match next(&mut supervisor.news) {
            Some(SupervisorNews::Ready) => Ok(supervisor),
            Some(SupervisorNews::Failed(reason)) => bail!("{reason}"),
            _ => bail!("its supervisor ended"),
        }
    }
}

/// Returns the ports of external nodes, with their interfaces.
pub fn ports(assembly: &Assembly) -> anyhow::Result<Vec<PortInterface>> {
    let mut ports = Vec::new();
    for node in &assembly.externals {
        let specs: [PortSpec; 2] = match &node.setup {
            ExternalSetup::Legacy(plan) => {
                let [inside, outside] = &plan.host_interfaces;
                [inside.parse()?, outside.parse()?]
            }
            ExternalSetup::Native(specs) => (**specs).clone(),
        };
        for (number, spec) in node.ports.into_iter().zip(specs) {
            // A port that no edge reaches or leaves still needs its interface.
            if let Some(port) = assembly.ports.number(number) {
                ports.push(PortInterface { port: port.name.clone(), spec });
            }
        }
    }
    let streams = assembly.stream_nodes.iter();
    ports.extend(streams.map(|node| PortInterface { port: node.port_name.clone(), spec: node.spec.clone() }));
    Ok(ports)
}

/// Reports the messages of a supervisor until it has ended.
fn read_news(state: &NodeState, mut news: BufReader<ChildStdout>) {
    let name = state.name();
    let mut is_limited = false;
    while let Some(news) = next(&mut news) {
        match news {
            SupervisorNews::Ready => {}
            SupervisorNews::Started(id) => {
                state.note_start();
                let line = || format!("rivulet: {name}: started, process {id}");
                messages::report(|| event::node_started(&name, u64::from(id)), line);
            }
            SupervisorNews::Ended(reason) | SupervisorNews::Failed(reason) => {
                state.note_end(&reason);
                let line = || format!("rivulet: {name}: ended: {}; it is started again", shown(&reason));
                messages::report(|| event::node_ended(&name, &reason), line);
            }
            SupervisorNews::Line(text) => {
                let line = || format!("{name}: {}", shown(&text));
                messages::report(|| event::node_output(&name, &text), line);
            }
            SupervisorNews::Limited { dropped, cut } => {
                state.note_limited_output(dropped, cut);
                if !std::mem::replace(&mut is_limited, true) {
                    let line = || {
                        format!(
                            "rivulet: {name}: it writes more, or longer lines, than go to the log; the rest is \
                             counted (`lines_dropped`, `lines_cut`), let it write a log of its own"
                        )
                    };
                    messages::report(|| event::node_output_limited(&name), line);
                }
            }
        }
    }
    state.note_end("its supervisor ended");
}

/// Reads a report; `None` at the end, or if it is none.
fn next(news: &mut BufReader<ChildStdout>) -> Option<SupervisorNews> {
    let mut line = String::new();
    news.read_line(&mut line).ok().filter(|len| *len > 0)?;
    serde_json::from_str(&line).ok()
}
