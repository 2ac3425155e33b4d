//! Operators' orders to apply a policy to all nodes.

use super::desk::NewPolicy;

/// Takes the reply to an order: its number, or the reason for its refusal.
pub type OrderReply = Box<dyn FnOnce(Result<u64, String>) + Send>;

/// An order to apply a policy to all nodes.
pub(super) struct PolicyOrder {
    pub number: u64,
    pub policy: NewPolicy,
    /// Nodes only read it; nothing changes.
    pub is_dry_run: bool,
    /// Called once the order is accepted or refused; for a dry run, once all nodes have read the
    /// policy.
    pub reply: OrderReply,
}

/// A failed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedOrder {
    /// Its number.
    pub number: u64,
    /// The name of the policy's file.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// Limit on failed orders that are kept. The oldest is forgotten.
pub(super) const FAILED_ORDERS_MAX: usize = 16;
