//! The configuration of a node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cluster::identity::{CertifiedRole, Identity, IdentityFiles, KEY_LOG_VARIABLE, KeyLog, check_name};
use serde::{Deserialize, Deserializer};
use values::{HostPort, Nanos};

use super::members::StoreConfig;
use crate::api::{ApiAddress, ApiFiles};
use crate::metrics_address::DEFAULT_ADDRESS;
use crate::texts;

/// The configuration of a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Name of the node, as in its certificate.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// Its role; none: the file of `--cluster`.
    pub role: Option<NodeRole>,
    /// Address at which a unit listens, or one of several dispatchers; of a manager, that of its
    /// first unit.
    pub listen: Option<HostPort>,
    /// Address at which other nodes reach it, for the store; its listening address by default.
    pub address: Option<HostPort>,
    /// The policy.
    pub policy: Option<PathBuf>,
    /// Folder for the policy of the node's cluster, if there is no store.
    pub state: Option<PathBuf>,
    /// The interfaces of a dispatcher, by port.
    #[serde(default)]
    pub ports: BTreeMap<String, String>,
    /// Other options of a dispatcher: those of `rivulet up`, by their names. A unit and a manager
    /// have `metrics`.
    #[serde(default)]
    pub options: toml::Table,
    /// The units of a manager.
    pub pool: Option<UnitPool>,
    /// Folder of `ca.pem`, `NAME.pem` and `NAME.key`; that of this file by default.
    #[serde(default)]
    pub certificates: PathBuf,
    /// The control API of a dispatcher over TCP.
    pub api: Option<ApiConfig>,
    /// The units of a dispatcher: name and address.
    #[serde(default, deserialize_with = "by_name")]
    pub units: BTreeMap<String, HostPort>,
    /// Minimum active units of a dispatcher, whatever the load; by default all of `units`, or one
    /// if there are none.
    pub units_min: Option<NonZeroU16>,
    /// All dispatchers of the cluster, if there are several: name and address.
    #[serde(default, deserialize_with = "by_name")]
    pub dispatchers: BTreeMap<String, HostPort>,
    /// The store where units register themselves and dispatchers find them.
    pub store: Option<StoreConfig>,
}

/// The units of a manager.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitPool {
    /// Their names, as in their certificates: no more units run.
    #[serde(deserialize_with = "names")]
    pub units: Vec<String>,
    /// Spare units: they run in addition to the units in use.
    #[serde(default = "one")]
    pub spare: NonZeroU16,
    /// Folder of files that lead the next process of the manager to the units.
    pub folder: Option<PathBuf>,
    /// More spare units end after this time without work.
    #[serde(default = "idle")]
    pub idle: Nanos,
}

fn one() -> NonZeroU16 {
    NonZeroU16::MIN
}

fn idle() -> Nanos {
    Nanos(60_000_000_000)
}

/// The control API of a dispatcher over TCP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiConfig {
    /// Its address.
    pub listen: HostPort,
    /// The file of a token that opens it, in addition to certificates of the cluster's authority.
    pub token: Option<PathBuf>,
}

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// Processes packets.
    Unit,
    /// Receives packets, and assigns them to units.
    Dispatcher,
    /// Keeps units as processes of its host.
    Manager,
}

/// The name of a node, which a certificate can have.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
struct NodeName(String);

impl TryFrom<String> for NodeName {
    type Error = String;

    fn try_from(name: String) -> Result<NodeName, String> {
        check_name(&name)?;
        Ok(NodeName(name))
    }
}

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    NodeName::deserialize(from).map(|name| name.0)
}

fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<NodeName>::deserialize(from)?;
    Ok(names.into_iter().map(|name| name.0).collect())
}

fn by_name<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, HostPort>, D::Error> {
    let nodes = BTreeMap::<NodeName, HostPort>::deserialize(from)?;
    Ok(nodes.into_iter().map(|(name, at)| (name.0, at)).collect())
}

impl NodeConfig {
    /// Reads a configuration. Paths in it count from its folder.
    ///
    /// # Errors
    /// If it cannot be read, with line and column.
    pub fn read(path: &Path) -> anyhow::Result<NodeConfig> {
        let text = texts::read(path)?;
        let parsed = toml::from_str(&text);
        let mut config: NodeConfig = parsed.with_context(|| format!("{} is not valid", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        config.certificates = folder.join(&config.certificates);
        config.policy = config.policy.map(|policy| folder.join(policy));
        if let Some(pool) = &mut config.pool {
            pool.folder = pool.folder.take().map(|of_pool| folder.join(of_pool));
        }
        config.state = config.state.map(|state| folder.join(state));
        if let Some(store) = &mut config.store {
            let paths = [&mut store.file, &mut store.ca, &mut store.cert, &mut store.key];
            paths.into_iter().flatten().for_each(|path| *path = folder.join(&*path));
        }
        if let Some(api) = &mut config.api {
            api.token = api.token.take().map(|token| folder.join(token));
        }
        Ok(config)
    }

    /// Returns the address of the metrics server of a unit, or of a manager's first unit.
    ///
    /// # Errors
    /// If there are other options, or it is no address.
    pub fn metrics(&self) -> anyhow::Result<Option<SocketAddr>> {
        if let Some(other) = self.options.keys().find(|name| *name != "metrics") {
            bail!("`[options]` {other}: expected `metrics`, the only option of this role");
        }
        let address = match self.options.get("metrics") {
            None | Some(toml::Value::Boolean(false)) => return Ok(None),
            Some(toml::Value::Boolean(true)) => DEFAULT_ADDRESS,
            Some(toml::Value::String(address)) => address,
            Some(_) => {
                bail!("`[options]` metrics: expected an address such as \"{DEFAULT_ADDRESS}\", or true")
            }
        };
        let parsed = address.parse();
        parsed.map(Some).with_context(|| format!("`[options]` metrics: `{address}` is not an address"))
    }

    /// Returns the node's files.
    pub fn own_files(&self) -> IdentityFiles {
        IdentityFiles::in_folder(&self.certificates, &self.name)
    }

    /// Returns the files of the control API over TCP: the node's certificate and the cluster's
    /// authority.
    pub fn api_files(&self) -> ApiFiles {
        let IdentityFiles { certificate, key, authority, revoked, roles } = self.own_files();
        ApiFiles {
            own: Some((certificate, key)),
            authority: Some(authority),
            revoked: Some(revoked),
            roles: Some(roles),
            token: self.api.as_ref().and_then(|api| api.token.clone()),
            listen: self.api.as_ref().map(|api| ApiAddress::Tcp(api.listen.clone())),
        }
    }

    /// Reads the certificates, and opens the file for secrets of links if the environment names
    /// one.
    ///
    /// # Errors
    /// If one is missing, not valid, or for another role, or the file cannot be opened.
    pub fn identity(&self, role: CertifiedRole) -> anyhow::Result<Identity> {
        let identity = Identity::read(&self.name, &self.own_files())?;
        identity.check_role(role).with_context(|| {
            format!("expected a certificate of `rivulet cluster init FOLDER {role}:{}`", self.name)
        })?;
        let Some(path) = std::env::var_os(KEY_LOG_VARIABLE).filter(|path| !path.is_empty()) else {
            return Ok(identity);
        };
        let path = Path::new(&path);
        let log = KeyLog::open(path)
            .with_context(|| format!("{KEY_LOG_VARIABLE}: cannot append to {}", path.display()))?;
        Ok(identity.with_key_log(log))
    }
}
