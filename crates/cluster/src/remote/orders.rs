//! Orders of operators to give all nodes a policy.

use super::desk::NewPolicy;

/// Takes the answer to an order: its number, or the reason for which it was refused.
pub type OrderReply = Box<dyn FnOnce(Result<u64, String>) + Send>;

/// An order to give all nodes a policy.
pub(super) struct PolicyOrder {
    pub number: u64,
    pub policy: NewPolicy,
    /// Nodes read it, and nothing changes.
    pub is_dry_run: bool,
    /// Called once the order is taken; of a dry run, once all nodes have read the policy.
    pub reply: OrderReply,
}

/// An order of a policy that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedOrder {
    /// Its number.
    pub number: u64,
    /// The name of the policy's file.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// Failed orders that are remembered. The oldest is forgotten.
pub(super) const FAILED_ORDERS_MAX: usize = 16;
