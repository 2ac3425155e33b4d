//! The state of external nodes, which their supervisor, all workers and the report share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::tags::TagFault;
use super::{External, ExternalSetup, Sides, WhenDown};
use crate::report::ProgramReport;

/// The state of an external node.
#[derive(Debug)]
pub struct NodeState {
    name: String,
    kind: &'static str,
    when_down: WhenDown,
    /// The program runs, or there is none to run.
    runs: AtomicBool,
    /// The links of its ports are up.
    links: Sides<AtomicBool>,
    starts: AtomicU64,
    dropped: AtomicU64,
    bypassed: AtomicU64,
    too_long: AtomicU64,
    untagged: AtomicU64,
    bad_tags: AtomicU64,
    assumed: AtomicU64,
    lines_dropped: AtomicU64,
    lines_cut: AtomicU64,
    last_end: Mutex<String>,
}

impl NodeState {
    /// Creates the state of a node that has not been started.
    pub(crate) fn new(node: &External) -> NodeState {
        let (kind, runs) = match &node.setup {
            ExternalSetup::Legacy(plan) => ("legacy", plan.command.is_empty()),
            ExternalSetup::Native(_) => ("native", true),
        };
        NodeState {
            name: node.name.clone(),
            kind,
            when_down: node.when_down,
            runs: AtomicBool::new(runs),
            links: Sides::default(),
            starts: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            bypassed: AtomicU64::new(0),
            too_long: AtomicU64::new(0),
            untagged: AtomicU64::new(0),
            bad_tags: AtomicU64::new(0),
            assumed: AtomicU64::new(0),
            lines_dropped: AtomicU64::new(0),
            lines_cut: AtomicU64::new(0),
            last_end: Mutex::default(),
        }
    }

    /// Returns the name of the node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes that the program was started.
    pub fn note_start(&self) {
        self.starts.fetch_add(1, Ordering::Relaxed);
        self.runs.store(true, Ordering::Release);
    }

    /// Notes that the program ended, for this reason.
    pub fn note_end(&self, reason: &str) {
        self.runs.store(false, Ordering::Release);
        reason.clone_into(&mut self.last_end.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds lines of the program's output that were dropped, and cut, since the start.
    pub fn note_limited_output(&self, dropped: u64, cut: u64) {
        self.lines_dropped.store(dropped, Ordering::Relaxed);
        self.lines_cut.store(cut, Ordering::Relaxed);
    }

    /// Counts a frame of the program with an unreadable tag.
    pub(super) fn count_fault(&self, fault: TagFault) {
        let count = match fault {
            TagFault::Missing => &self.untagged,
            TagFault::Bad | TagFault::NoPacket => &self.bad_tags,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn is_up(&self) -> bool {
        self.runs.load(Ordering::Acquire) && self.links.iter().all(|link| link.load(Ordering::Relaxed))
    }

    pub(crate) fn report(&self) -> ProgramReport {
        let starts = self.starts.load(Ordering::Relaxed);
        ProgramReport {
            kind: self.kind.to_owned(),
            up: self.is_up().into(),
            restarts: starts.saturating_sub(1),
            dropped: self.dropped.load(Ordering::Relaxed),
            bypassed: self.bypassed.load(Ordering::Relaxed),
            too_long: self.too_long.load(Ordering::Relaxed),
            untagged: self.untagged.load(Ordering::Relaxed),
            bad_tags: self.bad_tags.load(Ordering::Relaxed),
            assumed: self.assumed.load(Ordering::Relaxed),
            lines_dropped: self.lines_dropped.load(Ordering::Relaxed),
            lines_cut: self.lines_cut.load(Ordering::Relaxed),
            answers: 0,
            bad_answers: 0,
            last_end: self.last_end.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// One port's part in the state of its node.
#[derive(Clone, Debug)]
pub struct NodeGate {
    state: Arc<NodeState>,
    /// The port's place in [`External::ports`].
    side: usize,
    /// The number of the node's other port.
    other: u16,
}

impl NodeGate {
    /// Returns the gate of a port, if it is one of the node's.
    pub(crate) fn of(node: &External, state: &Arc<NodeState>, port: u16) -> Option<NodeGate> {
        let side = node.ports.iter().position(|of| *of == port)?;
        Some(NodeGate { state: Arc::clone(state), side, other: node.ports[1 - side] })
    }

    /// Returns true if a packet that leaves by the port must be dropped, and counts it: the node is
    /// down.
    #[inline]
    pub(crate) fn drops(&self) -> bool {
        let drops = self.state.when_down == WhenDown::Drop && !self.state.is_up();
        if drops {
            self.count_drops(1);
        }
        drops
    }

    /// Returns the node's other port if the node is down and bypassed, and counts the packet that
    /// leaves by this one: it continues there, as if the program had sent it.
    #[inline]
    pub(crate) fn bypass(&self) -> Option<u16> {
        if self.state.when_down == WhenDown::Drop || self.state.is_up() {
            return None;
        }
        self.state.bypassed.fetch_add(1, Ordering::Relaxed);
        Some(self.other)
    }

    /// Returns the node's other port, and counts the packet that leaves by this one: without a
    /// program it continues there, as if forwarded.
    pub(crate) fn forward(&self) -> u16 {
        self.state.assumed.fetch_add(1, Ordering::Relaxed);
        self.other
    }

    /// Returns the name of the node.
    pub(crate) fn node(&self) -> &str {
        self.state.name()
    }

    /// Counts packets that arrived at the node while it was down, and were lost.
    pub(crate) fn count_drops(&self, count: u64) {
        self.state.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a packet that is too long for a tunnel to the program.
    pub(crate) fn count_too_long(&self) {
        self.state.too_long.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the link of the port is up or down.
    pub(crate) fn set_link(&self, is_up: bool) {
        self.state.links[self.side].store(is_up, Ordering::Relaxed);
    }
}
