//! Comparison of flows by their silence, to choose the one of a sample to evict.

/// Limit on the packets of a flow that counts as a query with its answer, not as a conversation.
pub const FEW_PACKETS: u64 = 4;

/// Factor between the silences that end a conversation and a query.
const PATIENCE: u64 = 8;

/// Returns the silence of a flow with this many packets for comparison with others: the flow with
/// the greatest is evicted. Conversations count with less than their real silence. So idle ones
/// outlive floods of short flows, and ended ones are evicted before short flows that have just
/// begun.
pub const fn compared_silence_ns(silent_ns: u64, packets: u64) -> u64 {
    if packets > FEW_PACKETS { silent_ns / PATIENCE } else { silent_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_may_be_silent_for_longer_but_not_for_ever() {
        let query = compared_silence_ns(1_000, 2);
        assert!(compared_silence_ns(7_000, 100) < query);
        assert!(compared_silence_ns(9_000, 100) > query);
        assert_eq!(compared_silence_ns(9_000, FEW_PACKETS), 9_000);
    }
}
