//! Members of a cluster by its store: a unit registers itself, a dispatcher finds the units.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use cluster::identity::IdentityFiles;
use cluster::remote::{NodeCommand, RemoteHandle};
use serde::Deserialize;
use store::membership::{MemberChange, Registration, UnitMember, watch};
use store::{ClusterStore, EtcdFiles, EtcdStore, FileStore, StoreError};
use values::HostPort;

/// The store of a cluster: one of the two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// Endpoints of etcd, such as `https://10.0.0.1:2379`.
    pub etcd: Option<Vec<String>>,
    /// Authority of etcd's certificates; the cluster's by default.
    pub ca: Option<PathBuf>,
    /// Certificate to show to etcd; the node's by default.
    pub cert: Option<PathBuf>,
    /// Key of that certificate.
    pub key: Option<PathBuf>,
    /// A file, for nodes of one machine.
    pub file: Option<PathBuf>,
}

impl StoreConfig {
    /// Opens the store for a node with these files. Etcd need not be there yet.
    pub fn open(&self, node: &IdentityFiles) -> anyhow::Result<Arc<dyn ClusterStore>> {
        match (&self.etcd, &self.file) {
            (Some(endpoints), None) => {
                let own = match (&self.cert, &self.key) {
                    (None, None) => (&node.certificate, &node.key),
                    (Some(certificate), Some(key)) => (certificate, key),
                    _ => bail!("[store]: expected `cert` and `key` together"),
                };
                let authority = self.ca.as_ref().unwrap_or(&node.authority);
                let files = EtcdFiles { authority, certificate: own.0, key: own.1 };
                Ok(Arc::new(EtcdStore::new(endpoints, Some(files))?))
            }
            (None, Some(file)) => Ok(Arc::new(FileStore::open(file)?)),
            _ => bail!("[store]: expected either `etcd`, a list of endpoints, or `file`"),
        }
    }
}

/// Returns the address at which others reach a node that listens at `listening`.
pub fn reached_at(file: &Path, address: Option<&HostPort>, listening: &HostPort) -> anyhow::Result<HostPort> {
    match address {
        Some(address) => Ok(address.clone()),
        None if listening.is_unspecified() || listening.is_link_local() => bail!(
            "{}: expected `address`, at which other nodes reach this one: it listens at {listening}",
            file.display()
        ),
        None => Ok(listening.clone()),
    }
}

/// Registers a unit until the registration is dropped.
pub fn register(
    store: Arc<dyn ClusterStore>,
    name: &str,
    address: &HostPort,
    incarnation: u64,
) -> Registration {
    Registration::begin(store, name, &UnitMember { address: address.to_string(), incarnation })
}

/// Has the dispatcher follow the members of the store. It keeps the known members while the store
/// cannot be reached.
pub fn follow(store: Arc<dyn ClusterStore>, dispatcher: RemoteHandle) -> anyhow::Result<()> {
    let refused = dispatcher.entries_refused();
    let seen = dispatcher.clone();
    let notify = move |change| {
        let command = match change {
            MemberChange::Joined { name, member } => NodeCommand::Add { name, address: member.address },
            MemberChange::Left { name } => NodeCommand::Remove { name },
        };
        dispatcher.send_late(command)
    };
    let shows = move |state: Result<usize, &StoreError>| match state {
        Ok(entries) => seen.show_store(entries as u64, None),
        Err(error) => seen.show_store(0, Some(error.to_string())),
    };
    watch(store, refused, notify, shows).context("cannot start a thread")
}
