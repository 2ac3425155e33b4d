//! Nodes of a cluster: `rivulet node`, `rivulet cluster`, and `--cluster` of other commands.

mod config;
mod dispatcher;
mod manager;
mod members;
mod policies;

use std::cell::RefCell;
use std::net::TcpListener;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use cluster::identity::Authority;
use cluster::remote::{HOMES_MAX, NodeCommand, RemoteHandle, RemoteOptions, remote_runner};
use cluster::unit::{EffectsTaker, UnitOptions, UnitOrder, UnitProcess, UnitProcessCounters};
use control::ClusterControl;
use runtime::elastic::{UNITS_MAX, UnitsConfig};
use runtime::{Assembly, Runner};
use sd_notify::NotifyState;
use store::ClusterStore;

use self::config::{NodeConfig, NodeRole};
use self::policies::{PolicyThread, maker};
use crate::api::ApiFiles;
use crate::eve::EventKinds;
use crate::export::Destination;
use crate::messages::say;
use crate::policies::{NodePolicy, load_for_node};
use crate::signals::Signals;
use crate::sinks::{Outputs, Sinks};
use crate::{files, output};

/// Run a node of a cluster
///
/// A unit waits for a dispatcher, processes its packets, and hands flows over to other units. A
/// dispatcher is `rivulet up --cluster`, with ports and options in its file. A manager keeps units
/// as processes of its host, and one more than are at work. All nodes show certificates of the
/// cluster's authority to each other: see `rivulet cluster`.
#[derive(Debug, clap::Args)]
#[command(after_help = NODE_EXAMPLES)]
pub struct NodeArgs {
    /// Configuration of the node, in TOML
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Write the report to this file at the end, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write alerts and events to a file as EVE JSON lines
    #[arg(long, value_name = "FILE")]
    pub alerts: Option<PathBuf>,
    /// Events to write to the alert file: of functions (http, dns, tls, redundancy, nat), and flow
    /// records of a Monitor (flow)
    #[arg(long, value_name = "KINDS", default_value_t, requires = "alerts")]
    pub events: EventKinds,
    /// Send flow records as IPFIX to a file or a collector, `udp:HOST:PORT`
    #[arg(long, value_name = "DEST")]
    pub ipfix: Option<Destination>,
}

const NODE_EXAMPLES: &str = "\
Examples:
  rivulet cluster init certificates dispatcher unit-1 unit-2
  rivulet node --config unit-1.toml
  rivulet run site.rvl --read capture.pcap --cluster dispatcher.toml

unit-1.toml:
  name = \"unit-1\"
  role = \"unit\"
  listen = \"0.0.0.0:7400\"
  policy = \"site.rvl\"
  certificates = \"certificates\"

dispatcher.toml:
  name = \"dispatcher\"
  certificates = \"certificates\"
  [units]
  unit-1 = \"10.0.0.2:7400\"
  unit-2 = \"10.0.0.3:7400\"

Units in both files that are found by a store, in place of [units]:
  [store]
  etcd = [\"http://10.0.0.1:2379\"]";

/// Variable of `sd_notify(3)` in which a unit says for how many dispatchers it works.
const WORK_VARIABLE: &str = "X_RIVULET_DISPATCHERS";

const CLUSTER_EXAMPLES: &str = "\
Examples:
  rivulet cluster init certificates dispatcher unit-1 unit-2
  rivulet cluster init certificates dispatcher=10.0.0.1,rivulet.example
  rivulet cluster init certificates unit-3";

/// Issue the certificates of a cluster's nodes
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = CLUSTER_EXAMPLES)]
pub struct ClusterArgs {
    #[command(subcommand)]
    task: ClusterTask,
}

#[derive(Debug, clap::Subcommand)]
enum ClusterTask {
    /// Create an authority in a folder, if there is none, and issue certificates to nodes
    ///
    /// A node needs ca.pem and its own NAME.pem and NAME.key. Keep ca.key apart: who has it can let
    /// nodes in.
    Init {
        /// The folder
        folder: PathBuf,
        /// Names of nodes. NAME=HOST,... also gives hosts, names or IP addresses, by which clients
        /// reach a dispatcher's control API
        #[arg(required = true, value_name = "NODE[=HOST,...]")]
        nodes: Vec<String>,
    },
}

/// Runs `rivulet cluster`.
pub fn issue(args: &ClusterArgs) -> anyhow::Result<ExitCode> {
    let ClusterTask::Init { folder, nodes } = &args.task;
    let authority = Authority::open(folder)?;
    for node in nodes {
        let (node, hosts) = node.split_once('=').unwrap_or((node, ""));
        let hosts: Vec<&str> = hosts.split(',').filter(|host| !host.is_empty()).collect();
        authority.issue_for_to(folder, node, &hosts)?;
        output::print(&format!(
            "{}: certificate and key of {node}\n",
            folder.join(format!("{node}.pem")).display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `rivulet node`.
pub fn run_node(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let config = NodeConfig::read(&args.config)?;
    match config.role {
        Some(NodeRole::Unit) => run_unit(args, &config),
        Some(NodeRole::Dispatcher) => dispatcher::run(args, &config),
        Some(NodeRole::Manager) => manager::run(args, &config),
        None => bail!("{}: expected `role`: unit, dispatcher or manager", args.config.display()),
    }
}

/// Runs a unit.
fn run_unit(args: &NodeArgs, config: &NodeConfig) -> anyhow::Result<ExitCode> {
    manager::follow_manager();
    if config.api.is_some() {
        bail!("{}: a unit has no `[api]`; operators ask the dispatcher", args.config.display());
    }
    let listen = config.listen.with_context(|| {
        format!("{}: expected `listen`, an address such as \"0.0.0.0:7400\"", args.config.display())
    })?;
    let policy = config
        .policy
        .as_deref()
        .with_context(|| format!("{}: expected `policy`, a file", args.config.display()))?;
    let node_policy = load_for_node(policy)?;
    let assembly = node_policy.assemble(0).map_err(anyhow::Error::msg)?;
    let outputs = Outputs {
        writes: &[],
        alerts: args.alerts.as_deref(),
        events: &args.events,
        flows: args.ipfix.as_ref(),
        live: Some(0),
    };
    let sinks = Sinks::create(&outputs, &assembly.ports)?.begin(None)?;
    let sinks = Rc::new(RefCell::new(sinks));
    let names = assembly.names;
    let report_file = args.report.as_deref().map(files::create).transpose()?;
    let signals = Signals::of_batch().context("cannot install signal handlers")?;
    let identity = config.identity()?;
    let key_log = identity.key_log().map(Path::to_owned);
    let store = config.store.as_ref().map(|store| store.open(&config.own_files())).transpose()?;
    let incarnation = incarnation();
    let mut unit = UnitProcess::start(UnitOptions {
        listen,
        identity,
        policy: node_policy.digest,
        incarnation,
        make: policies::graphs_of(node_policy),
        reader: Box::new(PolicyThread::default()),
        effects: effects_to(Rc::clone(&sinks), names.clone()),
    })
    .with_context(|| format!("cannot listen at {listen}"))?;
    let listening = unit.address();
    let registration = match store {
        Some(store) => {
            let address = members::reached_at(&args.config, config.address.as_deref(), listening)?;
            Some(members::register(store, &config.name, address, incarnation))
        }
        None => None,
    };
    say!("rivulet: {} listens at {listening}", config.name);
    say_key_log(key_log.as_deref());
    let order = Arc::new(UnitOrder::default());
    let ordered = Arc::clone(&order);
    std::thread::spawn(move || follow_signals(&signals, &ordered));
    unit.run(&order);
    drop(registration);
    let report = unit.report(&policy.display().to_string(), &names);
    let UnitProcessCounters { frames_refused, frames_unknown, packets_refused } = unit.counters();
    if frames_refused + frames_unknown + packets_refused > 0 {
        say!(
            "rivulet: {frames_refused} frames of other nodes could not be read, {frames_unknown} were of kinds that \
             are not known, and {packets_refused} packets found no buffer or could not be parsed"
        );
    }
    drop(unit);
    let mut complaints = Vec::new();
    if let Some(sinks) = Rc::into_inner(sinks) {
        let last_ns = report.as_ref().and_then(|report| report.last_packet_ns).unwrap_or_default();
        complaints = sinks.into_inner().finish(last_ns)?.complaints;
    }
    if let (Some((name, file)), Some(report)) = (report_file, report) {
        files::write_json(file, &report).with_context(|| format!("cannot write {name}"))?;
    }
    complaints.iter().for_each(|complaint| say!("rivulet: {complaint}"));
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Has a unit leave when a signal says so, and reports its state to the process that supervises it.
fn follow_signals(signals: &Signals, order: &UnitOrder) {
    // Nobody need listen.
    let notify = |state: &[NotifyState<'_>]| drop(sd_notify::notify(state));
    notify(&[NotifyState::Ready]);
    let mut shown = None;
    while signals.stop().is_none() {
        let dispatchers = order.dispatchers.load(Ordering::Relaxed);
        if shown.replace(dispatchers) != Some(dispatchers) {
            let status = match dispatchers {
                0 => "waits for a dispatcher".to_owned(),
                1 => "works for a dispatcher".to_owned(),
                count => format!("works for {count} dispatchers"),
            };
            let work = format!("{}={dispatchers}", WORK_VARIABLE);
            notify(&[NotifyState::Status(&status), NotifyState::Custom(&work)]);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    notify(&[NotifyState::Stopping]);
    order.leaves.store(true, Ordering::Relaxed);
}

/// Writes what functions of these names raise. An output that fails is named once, at the end.
fn effects_to(sinks: Rc<RefCell<Sinks>>, names: Vec<String>) -> EffectsTaker {
    Box::new(move |mut effects, now_ns| {
        // Files that cannot be written are among the complaints at the end.
        let _ = runtime::write_effects(&mut effects, &names, now_ns, &mut *sinks.borrow_mut());
    })
}

/// Says that the secrets of links are written to a file, if they are.
fn say_key_log(path: Option<&Path>) {
    if let Some(path) = path {
        say!("rivulet: writes the secrets of links to {}: who reads it can decrypt them", path.display());
    }
}

/// Returns a number that is higher after each restart.
fn incarnation() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the name of a dispatcher, as its file says, and the files of its control API.
pub fn api_of(file: &Path) -> anyhow::Result<(String, ApiFiles)> {
    let config = NodeConfig::read(file)?;
    let files = config.api_files();
    Ok((config.name, files))
}

/// Returns true if a node is one of several dispatchers, as its file says.
fn check_dispatchers(node: &NodeConfig, file: &Path, is_live: bool) -> anyhow::Result<bool> {
    let (file, name) = (file.display(), &node.name);
    if node.dispatchers.is_empty() {
        return Ok(false);
    }
    if !node.dispatchers.contains_key(name) {
        bail!("{file}: expected `{name}` among `[dispatchers]`: all of them have the same list");
    }
    if node.dispatchers.len() > HOMES_MAX {
        bail!("{file}: {} dispatchers are named; at most {HOMES_MAX} are allowed", node.dispatchers.len());
    }
    if node.listen.is_none() && node.dispatchers.len() > 1 {
        bail!("{file}: expected `listen`, the address at which other dispatchers connect");
    }
    if !is_live {
        bail!(
            "{file}: several dispatchers share the packets of interfaces, with `rivulet up`; captures have one"
        );
    }
    Ok(node.dispatchers.len() > 1)
}

/// The node of a dispatcher: its configuration, and what the process may not open any more once it
/// has given its rights up.
pub struct DispatcherNode {
    file: PathBuf,
    config: NodeConfig,
    store: Option<Arc<dyn ClusterStore>>,
    listening: Option<TcpListener>,
    policy: NodePolicy,
}

impl DispatcherNode {
    /// Reads the configuration of a dispatcher for this policy, and opens what it names.
    pub fn open(file: &Path, policy: NodePolicy) -> anyhow::Result<DispatcherNode> {
        let config = NodeConfig::read(file)?;
        let store = config.store.as_ref().map(|store| store.open(&config.own_files())).transpose()?;
        if config.units.is_empty() && store.is_none() {
            bail!(
                "{}: expected `[units]`, with a line `NAME = \"ADDRESS:PORT\"` for each, or `[store]`",
                file.display()
            );
        }
        let listen = config.listen.filter(|_| config.dispatchers.len() > 1);
        let bind = |at| TcpListener::bind(at).with_context(|| format!("cannot listen at {at}"));
        let listening = listen.map(bind).transpose()?;
        Ok(DispatcherNode { file: file.to_owned(), config, store, listening, policy })
    }

    /// Creates the dispatcher, and the way to its cluster.
    pub fn run(
        self,
        name: &str,
        mut assembly: Assembly,
        config: UnitsConfig,
    ) -> anyhow::Result<(Runner, ClusterControl)> {
        let DispatcherNode { file, config: node, store, listening, policy } = self;
        // Others of the store are employed as they come, and as the load needs them.
        let named = u16::try_from(node.units.len().max(1)).unwrap_or(u16::MAX);
        let count = node.units_min.map_or(named, NonZeroU16::get);
        // A node that comes back is another unit.
        let config = UnitsConfig { units_min: count.min(UNITS_MAX), units_max: UNITS_MAX, ..config };
        let is_one_of_several = check_dispatchers(&node, &file, config.is_live)?;
        if is_one_of_several {
            let authority = node.certificates.join("ca.pem");
            let authority =
                std::fs::read(&authority).with_context(|| format!("cannot read {}", authority.display()))?;
            assembly.seed = cluster::shared_seed(&authority);
        }
        let is_divided = assembly.graph.options().affinity_groups.is_some();
        let divides = assembly.graph.stages().iter().any(|stage| stage.shared().affinity_key.is_some());
        if !is_divided && divides || is_one_of_several {
            // Pools are divided as those of the units, and hashes are those of other dispatchers.
            let is_offloaded = assembly.graph.options().offloaded;
            assembly.graph = policy.assemble(assembly.seed).map_err(anyhow::Error::msg)?.graph;
            if is_offloaded {
                assembly.graph.expect_offloaded();
            }
        }
        let digest = policy.digest;
        let make_policy = maker(policy.policy, &assembly);
        let identity = node.identity()?;
        say_key_log(identity.key_log());
        let (handle, control) = RemoteHandle::new();
        for (name, address) in node.units {
            handle.send(NodeCommand::Add { name, address });
        }
        if let Some(store) = store {
            members::follow(store, handle.clone())?;
        }
        let options = RemoteOptions {
            identity,
            policy: digest,
            incarnation: incarnation(),
            control,
            listening,
            dispatchers: node.dispatchers.into_iter().collect(),
        };
        let runner = remote_runner(assembly, name, config, options)
            .with_context(|| format!("cannot run on the units of {}", file.display()))?;
        Ok((runner, ClusterControl { nodes: handle, make_policy }))
    }
}
