//! The role `unit`: processes packets of dispatchers.

use std::cell::RefCell;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cluster::addresses::listen_at;
use cluster::identity::CertifiedRole;
use cluster::unit::{EffectsTaker, UnitOptions, UnitOrder, UnitProcess, UnitProcessCounters};
use runtime::Report;
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use sd_notify::NotifyState;

use super::NodeArgs;
use crate::cluster::config::NodeConfig;
use crate::cluster::policies::{PolicyThread, graphs_of};
use crate::cluster::shelf::NodeShelf;
use crate::cluster::{incarnation, members, say_key_log};
use crate::files;
use crate::messages::say;
use crate::notify::{notify, repeat};
use crate::policies::load_for_node;
use crate::signals::Signals;
use crate::up::server::{self, LatestReport};
use observe::sinks::{Outputs, Sinks};

/// Variable with the number of a process with which a unit ends.
pub const PARENT_VARIABLE: &str = "RIVULET_PARENT";
/// Variable of a manager's units: they repeat their reports, as the manager may be restarted.
pub const POOL_VARIABLE: &str = "RIVULET_POOL";
/// Time after which a unit of a manager repeats its state.
const REPEAT: Duration = Duration::from_millis(500);
/// Variable of `sd_notify(3)` with the number of dispatchers that a unit serves.
pub const WORK_VARIABLE: &str = "X_RIVULET_DISPATCHERS";

/// Runs the role.
pub fn run(args: &NodeArgs, config: &NodeConfig) -> anyhow::Result<ExitCode> {
    follow_parent();
    if config.api.is_some() {
        bail!("{}: a unit has no `[api]`; operators ask the dispatcher", args.config.display());
    }
    let listen = config.listen.as_ref().with_context(|| {
        format!("{}: expected `listen`, an address such as \"[::]:7400\"", args.config.display())
    })?;
    let policy = config
        .policy
        .as_deref()
        .with_context(|| format!("{}: expected `policy`, a file", args.config.display()))?;
    runtime::memory::keep_reserve().context("cannot start the memory thread")?;
    let store = config.store.as_ref().map(|store| store.open(&config.own_files())).transpose()?;
    let mut shelf = NodeShelf::open(config, store.as_ref())?;
    let node_policy = shelf.latest(load_for_node(policy)?);
    let assembly = node_policy.assemble(0).map_err(anyhow::Error::msg)?;
    let outputs = Outputs {
        writes: &[],
        alerts: args.alerts.as_deref(),
        events: &args.events,
        flows: args.export.output(format_args!("unit {}", config.name)),
        live: Some(0),
    };
    let sinks = Sinks::create(&outputs, &assembly.ports)?.begin(None)?;
    let sinks = Rc::new(RefCell::new(sinks));
    let names = assembly.names;
    let report_file = args.report.as_deref().map(files::create).transpose()?;
    let metrics = config.metrics().with_context(|| args.config.display().to_string())?;
    let listener = args
        .metrics
        .or(metrics)
        .map(|address| server::listen(address).with_context(|| format!("cannot listen on {address}")));
    let listener = listener.transpose()?;
    let signals = Signals::of_batch().context("cannot install signal handlers")?;
    let identity = config.identity(CertifiedRole::Unit)?;
    let key_log = identity.key_log().map(Path::to_owned);
    let incarnation = incarnation();
    let listening = listen_at(listen).with_context(|| format!("cannot listen at {listen}"))?;
    let mut unit = UnitProcess::start(UnitOptions {
        listening,
        identity,
        policy: node_policy.applied(),
        shelf: shelf.begin(node_policy.number, None),
        incarnation,
        make: graphs_of(node_policy),
        reader: Box::new(PolicyThread::default()),
        effects: effects_to(Rc::clone(&sinks), names.clone()),
    })
    .context("cannot start the unit")?;
    let listening = unit.address();
    let registration = match store {
        Some(store) => {
            let listen = listen.with_port(listening.port());
            let address = members::reached_at(&args.config, config.address.as_ref(), &listen)?;
            Some(members::register(store, &config.name, &address, incarnation))
        }
        None => None,
    };
    say!("rivulet: {} listens at {listening}", config.name);
    say_key_log(key_log.as_deref());
    let order = Arc::new(UnitOrder { stays: true.into(), ..UnitOrder::default() });
    let ordered = Arc::clone(&order);
    std::thread::spawn(move || follow_signals(&signals, &ordered));
    let policy = policy.display().to_string();
    let began = Instant::now();
    let report_of = |unit: &UnitProcess| {
        let mut report = unit.report(&policy, &names);
        report.iter_mut().for_each(|report| report.timing.seconds = began.elapsed().as_secs_f64());
        report
    };
    match listener {
        None => unit.run(&order),
        Some(listener) => {
            let waiting = Report { policy: policy.clone(), ..Report::default() };
            let board = LatestReport::new(waiting);
            server::serve(listener, board.clone()).context("cannot start the metrics threads")?;
            unit.run_shown(&order, |unit| {
                // A unit without a dispatcher has nothing to report.
                report_of(unit).into_iter().for_each(|report| board.put(report));
            })
        }
    };
    drop(registration);
    let report = report_of(&unit);
    let UnitProcessCounters { frames_refused, frames_unknown, packets_refused, .. } = unit.counters();
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

/// Ends a unit with the process that needs it, also if that process is killed.
fn follow_parent() {
    let parent = std::env::var(PARENT_VARIABLE).ok().and_then(|id| id.parse::<u32>().ok());
    if let Some(parent) = parent {
        let ends = set_parent_process_death_signal(Some(Signal::TERM));
        if ends.is_err() || parent_id() != parent {
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
}

/// Makes a unit leave on a signal, and reports its state to the process that supervises it.
fn follow_signals(signals: &Signals, order: &UnitOrder) {
    notify(&[NotifyState::Ready]);
    let is_pooled = std::env::var_os(POOL_VARIABLE).is_some();
    let (mut shown, mut shown_at) = (None, Instant::now());
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
        } else if is_pooled && shown_at.elapsed() >= REPEAT {
            shown_at = Instant::now();
            repeat(&format!("READY=1\n{WORK_VARIABLE}={dispatchers}\n"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    notify(&[NotifyState::Stopping]);
    order.leaves.store(true, Ordering::Relaxed);
}

/// Writes the alerts, events and reports of functions with these names. An output that fails is
/// named once, at the end.
fn effects_to(sinks: Rc<RefCell<Sinks>>, names: Vec<String>) -> EffectsTaker {
    Box::new(move |mut effects, now_ns| {
        // Files that cannot be written are among the complaints at the end.
        let _ = runtime::write_effects(&mut effects, &names, now_ns, &mut *sinks.borrow_mut());
    })
}
