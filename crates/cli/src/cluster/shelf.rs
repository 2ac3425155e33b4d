//! The place of a node's policy: the store of its cluster, or files of its own.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use anyhow::Context;
use cluster::policies::{AppliedPolicy, KeptPolicy, NumberedDigest, PolicyShelf, PolicyTexts};
use control::PolicyRequest;
use serde::{Deserialize, Serialize};
use store::policy::{StoredPolicy, keep, load, present_number};
use store::{ClusterStore, StoreError};
use telemetry::event;

use super::config::NodeConfig;
use crate::messages::say;
use crate::policies::{NodePolicy, read_for_node};

/// Folder of states of nodes, unless systemd gives one.
const STATE_FOLDER: &str = "/var/lib/rivulet";
/// Variable of systemd with the folder of a service's state.
const STATE_VARIABLE: &str = "STATE_DIRECTORY";
/// Interval between looks for a later policy in the store.
const LOOK: Duration = Duration::from_secs(2);
/// Limit on the length of a state's file.
const STATE_LEN_MAX: u64 = 64 << 20;

/// A stored policy.
#[derive(Serialize, Deserialize)]
struct WrittenPolicy {
    /// Of the authority's certificate: a node of another cluster may have had this name.
    cluster: String,
    number: u64,
    #[serde(flatten)]
    policy: PolicyRequest,
}

/// The place of a node's policy, already open: a process cannot open files after it has given up
/// its privileges.
pub enum NodeShelf {
    /// The store of the cluster.
    Store(Arc<dyn ClusterStore>),
    /// Two files that are written in turn: a crash leaves one whole.
    Files(Box<StateFiles>),
    /// The policy ends with the process.
    None,
}

/// The files of a node's state.
pub struct StateFiles {
    files: [File; 2],
    /// Index of the file to write next.
    next: usize,
    cluster: String,
}

impl NodeShelf {
    /// Opens the place that the configuration of a node names, or the default one. Only warns of
    /// faults of the default one: a node can run without it.
    pub fn open(config: &NodeConfig, store: Option<&Arc<dyn ClusterStore>>) -> anyhow::Result<NodeShelf> {
        if let Some(store) = store {
            return Ok(NodeShelf::Store(Arc::clone(store)));
        }
        let authority = config.certificates.join("ca.pem");
        let Ok(authority) = std::fs::read(&authority) else { return Ok(NodeShelf::None) };
        let cluster = format!("{:016x}", cluster::fingerprint(&authority));
        let folder = config.state.clone().unwrap_or_else(|| usual_folder(&config.name));
        match StateFiles::open(&folder, cluster) {
            Ok(files) => {
                event::policy_shelf(&folder.display());
                Ok(NodeShelf::Files(Box::new(files)))
            }
            Err(error) if config.state.is_some() => {
                Err(error).with_context(|| format!("cannot keep policies in {}", folder.display()))
            }
            Err(error) => {
                event::policy_not_kept(&folder.display(), &format!("{error}; `state` names another folder"));
                Ok(NodeShelf::None)
            }
        }
    }

    /// Returns the policy to begin with: the cluster's if that was applied after the node's file,
    /// and can be read.
    pub fn latest(&mut self, own: NodePolicy) -> NodePolicy {
        let (kept, place) = match self {
            NodeShelf::Store(store) => (from_store(&**store), "the store"),
            NodeShelf::Files(files) => (files.read(), "this node's state"),
            NodeShelf::None => return own,
        };
        let latest = kept.and_then(|kept| {
            let Some(WrittenPolicy { number, policy, .. }) = kept else { return Ok(None) };
            Ok(Some(NodePolicy { number, ..read_for_node(&PolicyTexts::from(policy))? }))
        });
        match latest {
            Ok(None) => own,
            Ok(Some(latest)) => {
                if latest.digest != own.digest {
                    event::policy_from_shelf(&latest.texts.name, latest.number, &place, &own.texts.name);
                }
                latest
            }
            Err(reason) => {
                say!("rivulet: the policy in {place} cannot be used: {reason}");
                own
            }
        }
    }

    /// Returns the shelf of a node. `node`: that of a dispatcher, which looks for later policies in
    /// the store; units get them from it.
    pub fn begin(self, present: u64, node: Option<&str>) -> Box<dyn PolicyShelf> {
        let is_shared = matches!(self, NodeShelf::Store(_));
        let (sender, policies) = channel();
        let (kept, outcomes) = channel();
        let (found, newer) = channel();
        let keeper = match (self, node) {
            (NodeShelf::Files(files), _) => Keeper::Files(files),
            (NodeShelf::Store(store), Some(node)) => {
                Keeper::Store { store, node: node.to_owned(), found, present }
            }
            (NodeShelf::Store(_) | NodeShelf::None, _) => Keeper::None,
        };
        // Without a thread, nothing is kept, and each attempt is reported.
        let work = move || keeper.run(&policies, &kept);
        let _ = std::thread::Builder::new().name("policies".to_owned()).spawn(work);
        Box::new(Shelf { sender, outcomes, newer, is_shared, awaited: VecDeque::new() })
    }
}

/// Returns the folder of a node's state, unless its configuration names one.
fn usual_folder(name: &str) -> PathBuf {
    let given = std::env::var_os(STATE_VARIABLE).filter(|given| !given.is_empty());
    // Several are separated by colons.
    let first = given.as_ref().and_then(|given| given.to_str()).and_then(|given| given.split(':').next());
    Path::new(first.unwrap_or(STATE_FOLDER)).join(name)
}

fn from_store(store: &dyn ClusterStore) -> Result<Option<WrittenPolicy>, String> {
    match load(store) {
        Ok(Some(StoredPolicy { number, contents, .. })) => {
            let kept: WrittenPolicy = serde_json::from_slice(&contents).map_err(|error| error.to_string())?;
            Ok(Some(WrittenPolicy { number, ..kept }))
        }
        Ok(None) => Ok(None),
        // The store is read again later; other nodes may have the policy.
        Err(error @ StoreError::Unreachable { .. }) => {
            event::store_failed(&error);
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The end of a shelf on a thread of its own.
enum Keeper {
    Files(Box<StateFiles>),
    Store { store: Arc<dyn ClusterStore>, node: String, found: Sender<AppliedPolicy>, present: u64 },
    None,
}

impl Keeper {
    /// Keeps policies until no sender is left.
    fn run(mut self, policies: &Receiver<(AppliedPolicy, bool)>, kept: &Sender<KeptPolicy>) {
        let mut has_failed = false;
        loop {
            let next = match self {
                Keeper::Store { .. } => policies.recv_timeout(LOOK),
                _ => policies.recv().map_err(RecvTimeoutError::from),
            };
            match next {
                Ok((policy, is_order)) => {
                    let outcome = self.keep(&policy, is_order);
                    if kept.send(KeptPolicy { policy: policy.id, is_order, outcome }).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let looked = self.look();
                    if let (Err(reason), false) = (&looked, has_failed) {
                        event::store_failed(reason);
                    }
                    has_failed = looked.is_err();
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn keep(&mut self, policy: &AppliedPolicy, is_order: bool) -> Result<(), String> {
        match self {
            Keeper::Files(files) => files.write(policy).map_err(|error| error.to_string()),
            // The policy was read from the store, or the ordering node has kept it there.
            Keeper::Store { present, .. } if !is_order => {
                *present = policy.id.number.max(*present);
                Ok(())
            }
            Keeper::Store { store, node, present, .. } => {
                let stored = StoredPolicy {
                    number: policy.id.number,
                    digest: policy.id.digest.iter().map(|byte| format!("{byte:02x}")).collect(),
                    name: policy.texts.name.clone(),
                    node: node.clone(),
                    contents: json_of(policy, ""),
                };
                keep(&**store, &stored).map_err(|error| error.to_string())?;
                *present = policy.id.number;
                Ok(())
            }
            Keeper::None => Ok(()),
        }
    }

    /// Looks for a later policy in the store.
    fn look(&mut self) -> Result<(), String> {
        let Keeper::Store { store, found, present, .. } = self else { return Ok(()) };
        let number = present_number(&**store).map_err(|error| error.to_string())?;
        if number <= *present {
            return Ok(());
        }
        if let Some(WrittenPolicy { number, policy, .. }) = from_store(&**store)? {
            *present = number;
            let read = read_for_node(&PolicyTexts::from(policy))?;
            // This fails only if the receiver has ended.
            let _ = found.send(NodePolicy { number, ..read }.applied());
        }
        Ok(())
    }
}

fn json_of(policy: &AppliedPolicy, cluster: &str) -> Vec<u8> {
    let kept = WrittenPolicy {
        cluster: cluster.to_owned(),
        number: policy.id.number,
        policy: PolicyRequest::from(policy.texts.clone()),
    };
    // Numbers and texts are always JSON.
    serde_json::to_vec(&kept).unwrap_or_default()
}

impl StateFiles {
    /// Opens the files in a folder, or creates both.
    fn open(folder: &Path, cluster: String) -> std::io::Result<StateFiles> {
        std::fs::create_dir_all(folder)?;
        let open = |name| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.open(folder.join(name))
        };
        Ok(StateFiles { files: [open("policy-0.json")?, open("policy-1.json")?], next: 0, cluster })
    }

    /// Returns the latest policy of this cluster in the files.
    fn read(&mut self) -> Result<Option<WrittenPolicy>, String> {
        let mut latest: Option<WrittenPolicy> = None;
        for at in 0..self.files.len() {
            let Some(kept) = read_file(&mut self.files[at]).filter(|kept| kept.cluster == self.cluster)
            else {
                continue;
            };
            if latest.as_ref().is_none_or(|latest| latest.number < kept.number) {
                (self.next, latest) = (1 - at, Some(kept));
            }
        }
        Ok(latest)
    }

    fn write(&mut self, policy: &AppliedPolicy) -> std::io::Result<()> {
        let json = json_of(policy, &self.cluster);
        let file = &mut self.files[self.next];
        file.seek(SeekFrom::Start(0))?;
        // The rest of the file is of an earlier policy.
        file.write_all(&[head_of(&json).as_bytes(), &json].concat())?;
        file.sync_all()?;
        self.next = 1 - self.next;
        Ok(())
    }
}

/// Returns the line before a policy in a file: its length and its fingerprint.
fn head_of(json: &[u8]) -> String {
    format!("{:010} {:016x}\n", json.len(), cluster::fingerprint(json))
}

/// Reads a whole policy; `None` if there is none.
fn read_file(file: &mut File) -> Option<WrittenPolicy> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    Read::by_ref(file).take(STATE_LEN_MAX).read_to_end(&mut bytes).ok()?;
    let head = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let len: usize = std::str::from_utf8(bytes.get(..10)?).ok()?.parse().ok()?;
    let json = bytes.get(head..head.checked_add(len)?)?;
    if head_of(json).as_bytes() != &bytes[..head] {
        return None;
    }
    serde_json::from_slice(json).ok()
}

/// A node's end of its shelf.
struct Shelf {
    sender: Sender<(AppliedPolicy, bool)>,
    outcomes: Receiver<KeptPolicy>,
    newer: Receiver<AppliedPolicy>,
    is_shared: bool,
    /// Outcomes that have not come yet.
    awaited: VecDeque<(NumberedDigest, bool)>,
}

impl PolicyShelf for Shelf {
    fn keep(&mut self, policy: &AppliedPolicy, is_order: bool) {
        self.awaited.push_back((policy.id, is_order));
        // If the thread has ended, `poll_kept` reports it.
        let _ = self.sender.send((policy.clone(), is_order));
    }

    fn poll_kept(&mut self) -> Option<KeptPolicy> {
        let &(policy, is_order) = self.awaited.front()?;
        let kept = match self.outcomes.try_recv() {
            Ok(kept) => kept,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                let outcome = Err("the thread that keeps it has failed".to_owned());
                KeptPolicy { policy, is_order, outcome }
            }
        };
        self.awaited.pop_front();
        Some(kept)
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn poll_newer(&mut self) -> Option<AppliedPolicy> {
        self.newer.try_iter().last()
    }
}
