//! The node of a dispatcher, for `--cluster`.

use std::net::TcpListener;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use cluster::addresses::listen_at;
use cluster::identity::CertifiedRole;
use cluster::remote::{
    BenchThread, HOMES_MAX, IsStopped, NodeCommand, PolicyDesk, RemoteHandle, RemoteOptions, remote_runner,
};
use control::ClusterControl;
use runtime::elastic::{UNITS_MAX, UnitsConfig};
use runtime::{Assembly, Runner};
use store::ClusterStore;

use super::config::NodeConfig;
use super::policies::maker;
use super::shelf::NodeShelf;
use super::{incarnation, members, say_key_log};
use crate::api::ApiFiles;
use crate::policies::{NodePolicy, assembly_of};

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

/// The node of a dispatcher: its configuration, and the files that the process cannot open after it
/// has given up its privileges.
pub struct DispatcherNode {
    file: PathBuf,
    config: NodeConfig,
    store: Option<Arc<dyn ClusterStore>>,
    listening: Option<TcpListener>,
    policy: NodePolicy,
    shelf: NodeShelf,
}

impl DispatcherNode {
    /// Reads the configuration of a dispatcher with this policy, opens what it names, and assembles
    /// the policy; or that of its cluster, which is later than the file.
    pub fn open(
        file: &Path,
        policy: NodePolicy,
        seed: Option<u64>,
    ) -> anyhow::Result<(Assembly, DispatcherNode)> {
        let config = NodeConfig::read(file)?;
        let store = config.store.as_ref().map(|store| store.open(&config.own_files())).transpose()?;
        if config.units.is_empty() && store.is_none() {
            bail!(
                "{}: expected `[units]`, with a line `NAME = \"ADDRESS:PORT\"` for each, or `[store]`",
                file.display()
            );
        }
        let listen = config.listen.as_ref().filter(|_| config.dispatchers.len() > 1);
        let bind = |at| listen_at(at).with_context(|| format!("cannot listen at {at}"));
        let listening = listen.map(bind).transpose()?;
        let mut shelf = NodeShelf::open(&config, store.as_ref())?;
        let policy = shelf.latest(policy);
        let assembly = assembly_of(&policy, seed)?;
        Ok((assembly, DispatcherNode { file: file.to_owned(), config, store, listening, policy, shelf }))
    }

    /// Creates the dispatcher, and the control of its cluster. With `is_stopped`, waits until it
    /// can begin.
    pub fn run(
        self,
        name: &str,
        mut assembly: Assembly,
        config: UnitsConfig,
        is_stopped: Option<IsStopped<'_>>,
    ) -> anyhow::Result<(Runner, ClusterControl)> {
        let DispatcherNode { file, config: node, store, listening, policy, shelf } = self;
        // Other units of the store are started when they have registered and the load requires
        // them.
        let named = u16::try_from(node.units.len().max(1)).unwrap_or(u16::MAX);
        let count = node.units_min.map_or(named, NonZeroU16::get);
        // A node that rejoins is a new unit.
        let config =
            UnitsConfig { units_min: count.min(UNITS_MAX), units_max: UNITS_MAX, resets: true, ..config };
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
        let present = policy.applied();
        let make_policy = maker(policy.policy, &assembly);
        let identity = node.identity(CertifiedRole::Dispatcher)?;
        say_key_log(identity.key_log());
        let (handle, control) = RemoteHandle::new();
        for (name, address) in node.units {
            handle.send(NodeCommand::Add { name, address: address.to_string() });
        }
        if let Some(store) = store {
            members::follow(store, handle.clone())?;
        }
        let shelf = shelf.begin(present.id.number, Some(&node.name));
        let bench = Box::new(BenchThread::new(Arc::clone(&make_policy)));
        let desk = PolicyDesk::new(present, bench, shelf);
        let options = RemoteOptions {
            identity,
            policy: desk,
            incarnation: incarnation(),
            control,
            listening,
            dispatchers: node.dispatchers.into_iter().map(|(name, at)| (name, at.to_string())).collect(),
        };
        let runner = remote_runner(assembly, name, config, options, is_stopped)
            .with_context(|| format!("cannot run on the units of {}", file.display()))?;
        Ok((runner, ClusterControl { nodes: handle, make_policy }))
    }
}
