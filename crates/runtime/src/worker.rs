//! A worker as its runner and its interfaces see it: one of several threads with a share of the
//! flows each.

pub(crate) mod counters;

use std::sync::Arc;

use crate::doorbell::{Doorbell, EventWaker};

/// The place of a worker among all, and the way to wake its thread.
#[derive(Clone)]
pub(crate) struct WorkerPlace {
    pub number: usize,
    /// Number of workers.
    pub count: usize,
    pub doorbell: Arc<Doorbell<EventWaker>>,
}

/// A received frame about a neighbour, with the number of its port.
pub(crate) type SnoopedFrame = (u16, Box<[u8]>);
