//! The way to a running dispatcher, for operators.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use runtime::report::LinksReport;

use super::nodes::NodeInfo;
use crate::links::LinkInfo;

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// A node joins: its name and address. If it is known, this is its address after the present
    /// link.
    Add {
        /// The name.
        name: String,
        /// The address.
        address: String,
    },
    /// Nobody waits for the node of this name any more. A link to it goes on while it lives.
    Remove {
        /// The name.
        name: String,
    },
    /// The node of this name gives its flows away and gets no more.
    Drain {
        /// The name.
        name: String,
    },
    /// The drained node of this name may be a unit again, once it is there.
    Resume {
        /// The name.
        name: String,
    },
}

/// The way to a dispatcher, for operators.
#[derive(Clone)]
pub struct RemoteHandle {
    commands: Sender<NodeCommand>,
    status: Arc<Mutex<RemoteStatus>>,
}

/// The latest status that the dispatcher has shown.
#[derive(Default)]
pub(super) struct RemoteStatus {
    pub nodes: Vec<NodeInfo>,
    pub links: Vec<LinkInfo>,
    pub totals: LinksReport,
}

/// The dispatcher's end of [`RemoteHandle`].
pub struct RemoteControl {
    pub(super) commands: Receiver<NodeCommand>,
    status: Arc<Mutex<RemoteStatus>>,
}

impl RemoteControl {
    /// Shows the status to operators.
    pub(super) fn show(&self, status: RemoteStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

impl RemoteHandle {
    /// Returns both ends of the way to a dispatcher that is created later.
    pub fn new() -> (RemoteHandle, RemoteControl) {
        let (sender, commands) = channel();
        let status = Arc::new(Mutex::new(RemoteStatus::default()));
        let control = RemoteControl { commands, status: Arc::clone(&status) };
        (RemoteHandle { commands: sender, status }, control)
    }

    /// Sends a command. Returns false if the dispatcher has ended.
    pub fn send(&self, command: NodeCommand) -> bool {
        self.commands.send(command).is_ok()
    }

    /// Returns the nodes, in the order in which they were named.
    pub fn status(&self) -> Vec<NodeInfo> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).nodes.clone()
    }

    /// Returns the links of now.
    pub fn links(&self) -> Vec<LinkInfo> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).links.clone()
    }

    /// Returns counts of all links so far, and of handshakes.
    pub fn link_totals(&self) -> LinksReport {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).totals.clone()
    }
}
