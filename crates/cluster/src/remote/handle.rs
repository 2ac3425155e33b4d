//! The way to a running dispatcher, for operators.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use runtime::report::LinksReport;

use super::nodes::NodeInfo;
use crate::links::LinkInfo;

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// A node joins: its name and address.
    Add {
        /// The name.
        name: String,
        /// The address.
        address: String,
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

/// The way to a running dispatcher, for operators.
#[derive(Clone)]
pub struct RemoteHandle {
    pub(super) commands: Sender<NodeCommand>,
    pub(super) status: Arc<Mutex<RemoteStatus>>,
}

/// The latest status that the dispatcher has shown.
#[derive(Default)]
pub(super) struct RemoteStatus {
    pub nodes: Vec<NodeInfo>,
    pub links: Vec<LinkInfo>,
    pub totals: LinksReport,
}

impl RemoteHandle {
    /// Sends a command. Nothing happens if the dispatcher has ended.
    pub fn send(&self, command: NodeCommand) {
        let _ = self.commands.send(command);
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
