//! The role `manager`: keeps units as processes of this host, some of them spare.
//!
//! Units outlive a manager that crashes, and the next one finds them by files in a folder.

mod folder;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use process_pool::{Notice, Pool, PoolAction, PoolConfig, PoolCounts, PooledProcess, ProcessEnd};
use sd_notify::NotifyState;

use self::folder::PoolFolder;
use super::NodeArgs;
use super::unit::{POOL_VARIABLE, WORK_VARIABLE};
use crate::cluster::config::NodeConfig;
use crate::cluster::members::StoreConfig;
use crate::messages::say;
use crate::notify::notify;
use crate::policies::load_for_node;
use crate::signals::Signals;

/// Interval of looks at processes.
const LOOK: Duration = Duration::from_millis(20);
/// Limit on the time for a unit to listen: it reads the policy and its files before.
const START_NS: u64 = 60_000_000_000;
/// Limit on the time for a unit to end: it hands over its flows before.
const STOP_NS: u64 = 20_000_000_000;
/// Delay before a unit that has failed is started again; see [`PoolConfig::restart_ns`].
const RESTART_NS: u64 = 500_000_000;

/// A unit of the pool.
struct PooledUnit {
    name: String,
    process: Option<PooledProcess>,
}

/// A unit of an earlier manager that is not in the list any more: it ends.
struct FormerUnit {
    name: String,
    process: PooledProcess,
    /// It is killed at this time.
    kill_ns: Option<u64>,
}

/// Runs the role.
pub fn run(args: &NodeArgs, config: &NodeConfig) -> anyhow::Result<ExitCode> {
    let file = args.config.display();
    let pool = config.pool.as_ref().with_context(|| {
        format!("{file}: expected `[pool]`, with `units`, a list of names that have certificates")
    })?;
    if pool.units.is_empty() || usize::from(pool.spare.get()) > pool.units.len() {
        bail!("{file}: expected at least `spare` = {} names in `units`", pool.spare);
    }
    if config.store.is_none() {
        bail!("{file}: expected `[store]`, in which units register themselves");
    }
    if args.report.is_some() || args.alerts.is_some() || args.export.ipfix.is_some() || args.metrics.is_some()
    {
        bail!("{file}: a manager processes no packets; the options are for units and dispatchers");
    }
    // Faults of the policy are found here, and not by each unit.
    let policy = config.policy.as_deref().with_context(|| format!("{file}: expected `policy`, a file"))?;
    load_for_node(policy)?;
    let folder = PoolFolder::open(pool.folder.as_deref(), &config.name)
        .with_context(|| format!("{file}: `folder` of `[pool]`"))?;
    let mut units = Vec::new();
    for (number, name) in pool.units.iter().enumerate() {
        let text =
            unit_config(config, name, number).with_context(|| format!("{file}: cannot configure {name}"))?;
        std::fs::write(folder.path().join(format!("{name}.toml")), text).context("cannot write a file")?;
        units.push(PooledUnit { name: name.clone(), process: PooledProcess::adopt(folder.path(), name)? });
    }
    let mut former = Vec::new();
    for name in PooledProcess::names_in(folder.path())? {
        if !pool.units.contains(&name)
            && let Some(process) = PooledProcess::adopt(folder.path(), &name)?
        {
            process.terminate();
            former.push(FormerUnit { name, process, kill_ns: Some(STOP_NS) });
        }
    }
    let signals = Signals::of_batch().context("cannot install signal handlers")?;
    say!("rivulet: {} keeps {} of {} units spare", config.name, pool.spare, units.len());
    let found = units.iter().filter(|unit| unit.process.is_some()).count();
    if found > 0 {
        say!("rivulet: {} has found {found} of its units, which run", config.name);
    }
    for FormerUnit { name, .. } in &former {
        say!("rivulet: {name} is not in `units` any more, and ends");
    }
    let mut pool = Pool::new(PoolConfig {
        size: units.len(),
        spare: pool.spare.get().into(),
        idle_ns: pool.idle.0,
        start_ns: START_NS,
        stop_ns: STOP_NS,
        restart_ns: RESTART_NS,
    });
    for at in (0..units.len()).filter(|&at| units[at].process.is_some()) {
        pool.handle_adoption(0, at);
    }
    notify(&[NotifyState::Ready]);
    supervise(pool, (&mut units, former), folder.path(), &signals);
    Ok(ExitCode::SUCCESS)
}

/// Runs units until a signal ends all of them.
fn supervise(
    mut pool: Pool,
    (units, mut former): (&mut [PooledUnit], Vec<FormerUnit>),
    folder: &Path,
    signals: &Signals,
) {
    let began = Instant::now();
    let mut shown = PoolCounts::default();
    while !(pool.has_ended() && former.is_empty()) {
        let now_ns = began.elapsed().as_nanos() as u64;
        former.retain_mut(|unit| !unit.has_ended(now_ns));
        if signals.stop().is_some() {
            pool.end();
        }
        for (at, unit) in units.iter_mut().enumerate() {
            unit.look(&mut pool, now_ns, at);
        }
        while let Some(action) = pool.poll(now_ns) {
            match action {
                PoolAction::Start(at) => {
                    if let Err(error) = units[at].start(folder) {
                        say!("rivulet: {error:#}");
                        pool.handle_exit(now_ns, at, false);
                    }
                }
                PoolAction::Terminate(at) => units[at].process.iter().for_each(PooledProcess::terminate),
                PoolAction::Kill(at) => {
                    say!("rivulet: {} does not end, and is killed", units[at].name);
                    units[at].process.iter().for_each(PooledProcess::kill);
                }
            }
        }
        let counts = pool.counts();
        if counts != shown {
            shown = counts;
            let PoolCounts { busy, spare, starting, stopping } = counts;
            let status = format!("{busy} units work, {spare} spare, {starting} start, {stopping} end");
            notify(&[NotifyState::Status(&status)]);
        }
        std::thread::sleep(LOOK);
    }
}

impl PooledUnit {
    fn start(&mut self, folder: &Path) -> anyhow::Result<()> {
        // An earlier manager may have started it just before it crashed.
        self.process = PooledProcess::adopt(folder, &self.name)?;
        if self.process.is_some() {
            return Ok(());
        }
        let program = std::env::current_exe().context("cannot find the program")?;
        let mut command = Command::new(program);
        command.args(["node", "--config"]).arg(folder.join(format!("{}.toml", self.name)));
        command.env(POOL_VARIABLE, "1");
        let process = PooledProcess::start(&mut command, folder, &self.name)
            .with_context(|| format!("cannot start {}", self.name))?;
        self.process = Some(process);
        Ok(())
    }

    /// Reports changes of the process to the pool.
    fn look(&mut self, pool: &mut Pool, now_ns: u64, at: usize) {
        let Some(process) = &mut self.process else { return };
        while let Some(notice) = process.poll_notice() {
            match notice {
                Notice::Ready => pool.handle_ready(now_ns, at),
                Notice::Variable(name, value) if name == WORK_VARIABLE => {
                    pool.handle_work(now_ns, at, value != "0");
                }
                Notice::Variable(..) => {}
            }
        }
        // If the system call fails, it is repeated later.
        if let Ok(Some(end)) = process.poll_exit() {
            self.process = None;
            let (is_in_order, how) = match end {
                ProcessEnd::Status(status) => (status.success(), format!(" ({status})")),
                ProcessEnd::Unknown => (false, String::new()),
            };
            match pool.handle_exit(now_ns, at, is_in_order) {
                Some(again_ns) if !is_in_order => say!(
                    "rivulet: {} has ended{how}; it starts again in {:?}",
                    self.name,
                    Duration::from_nanos(again_ns)
                ),
                None if !is_in_order && end != ProcessEnd::Unknown => {
                    say!("rivulet: {} has ended{how}", self.name)
                }
                _ => {}
            }
        }
    }
}

impl FormerUnit {
    /// Returns true once it has ended. It is killed if that takes too long.
    fn has_ended(&mut self, now_ns: u64) -> bool {
        if self.kill_ns.take_if(|kill_ns| now_ns >= *kill_ns).is_some() {
            say!("rivulet: {} does not end, and is killed", self.name);
            self.process.kill();
        }
        matches!(self.process.poll_exit(), Ok(Some(_)))
    }
}

/// Returns the configuration of a unit: the manager's, with another name and the next port.
fn unit_config(config: &NodeConfig, name: &str, number: usize) -> anyhow::Result<String> {
    let listen = config.listen.as_ref().context("expected `listen`, the address of the first unit")?;
    let port = port_of(listen.port(), number)?;
    let address = match &config.address {
        None => None,
        Some(address) if address.port() == 0 => bail!("expected a port in `address`, that of the first unit"),
        Some(address) => Some(address.with_port(port_of(address.port(), number)?)),
    };
    let path = |path: &Path| -> anyhow::Result<String> {
        let path = std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))?;
        let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
        Ok(quoted(path))
    };
    let policy = config.policy.as_deref().context("expected `policy`")?;
    let mut text = format!(
        "name = {}\nrole = \"unit\"\nlisten = {}\npolicy = {}\ncertificates = {}\n",
        quoted(name),
        quoted(&listen.with_port(port).to_string()),
        path(policy)?,
        path(&config.certificates)?
    );
    if let Some(state) = &config.state {
        text += &format!("state = {}\n", path(state)?);
    }
    if let Some(address) = address {
        text += &format!("address = {}\n", quoted(&address.to_string()));
    }
    if let Some(metrics) = config.metrics()? {
        let metrics = SocketAddr::new(metrics.ip(), port_of(metrics.port(), number)?);
        text += &format!("[options]\nmetrics = {}\n", quoted(&metrics.to_string()));
    }
    match config.store.as_ref() {
        Some(StoreConfig { etcd: Some(endpoints), ca, cert, key, .. }) => {
            let endpoints: Vec<_> = endpoints.iter().map(|endpoint| quoted(endpoint)).collect();
            text += &format!("[store]\netcd = [{}]\n", endpoints.join(", "));
            for (name, file) in [("ca", ca), ("cert", cert), ("key", key)] {
                if let Some(file) = file {
                    text += &format!("{name} = {}\n", path(file)?);
                }
            }
        }
        Some(StoreConfig { file: Some(file), .. }) => text += &format!("[store]\nfile = {}\n", path(file)?),
        _ => bail!("expected `[store]` with `etcd` or `file`"),
    }
    Ok(text)
}

/// Returns the port of a unit; 0 stays 0: the system chooses.
fn port_of(first: u16, number: usize) -> anyhow::Result<u16> {
    let port = usize::from(first) + if first == 0 { 0 } else { number };
    u16::try_from(port).with_context(|| format!("there is no port {port}"))
}

/// Returns text as a TOML string: it is quoted as in JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test fails by panicking.

    use super::*;

    #[test]
    fn units_have_the_next_ports() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("manager.toml");
        let text = "name = \"host\"\nrole = \"manager\"\nlisten = \"0.0.0.0:7400\"\naddress = \"10.0.0.2:17400\"\n\
                    policy = \"site \\\"a\\\".rvl\"\n[pool]\nunits = [\"a\", \"b\"]\n[store]\nfile = \"s.redb\"\n";
        std::fs::write(&file, text).unwrap();
        let config = NodeConfig::read(&file).unwrap();
        let unit = folder.path().join("unit.toml");
        std::fs::write(&unit, unit_config(&config, "b", 1).unwrap()).unwrap();
        let unit = NodeConfig::read(&unit).unwrap();
        assert_eq!((unit.name.as_str(), unit.listen.unwrap().port()), ("b", 7401));
        assert_eq!(unit.address, Some("10.0.0.2:17401".parse().unwrap()));
        assert_eq!(unit.policy, Some(folder.path().join("site \"a\".rvl")));
        assert_eq!(unit.store.unwrap().file, Some(folder.path().join("s.redb")));
        assert!(unit_config(&config, "b", 60_000).is_err());
    }
}
