//! Limits on answers to the senders of unwanted packets, kept in two shared sets of a function.

use nf::{Context, Shared, SharedSet};
use packet::{Addr, split_mix};

/// Maximum number of answers per second, to all sources together (RFC 1812 4.3.2.8, RFC 4443 2.4
/// (f)).
pub const ANSWERS_PER_S: u64 = 1_000;
/// Burst of answers to all sources together.
pub const ANSWERS_BURST: u64 = 100;
/// Maximum number of answers per second to one source: an IPv4 address or an IPv6 /64.
pub const SOURCE_ANSWERS_PER_S: u64 = 10;
/// Burst of answers to one source.
pub const SOURCE_ANSWERS_BURST: u64 = 10;
/// Maximum number of sources with a limit of their own; the oldest is forgotten.
pub const SOURCES_MAX: usize = 4_096;

/// Declaration of the set of sources that got answers.
pub const SOURCES: Shared = Shared::Set { name: "answered_sources", capacity: SOURCES_MAX };
/// Declaration of the set with one member, for all answers.
pub const ALL: Shared = Shared::Set { name: "answered", capacity: 1 };

/// The limits of a function: the numbers of its two sets in its descriptor.
#[derive(Clone, Copy)]
pub struct AnswerLimits {
    /// The number of [`SOURCES`].
    pub sources: usize,
    /// The number of [`ALL`].
    pub all: usize,
}

impl AnswerLimits {
    /// Takes a token from both buckets, which are kept by virtual scheduling (GCRA, ITU-T I.371): a
    /// member's time is when its bucket will be full again. Returns false if one is empty.
    pub fn permit(self, source: Addr, context: &mut Context<'_>) -> bool {
        let now_ns = context.now_ns();
        let (member, all) = (bucket_of(source), 0);
        let sources = context.set(self.sources);
        let per_source = after_one(sources, member, now_ns, SOURCE_ANSWERS_PER_S, SOURCE_ANSWERS_BURST);
        let in_all = after_one(context.set(self.all), all, now_ns, ANSWERS_PER_S, ANSWERS_BURST);
        let (Some(per_source), Some(in_all)) = (per_source, in_all) else { return false };
        context.set(self.sources).add(member, per_source);
        context.set(self.all).add(all, in_all);
        true
    }
}

/// Returns when the bucket will be full again after taking a token now; none if it is empty.
fn after_one(buckets: &SharedSet, member: u64, now_ns: u64, per_s: u64, burst: u64) -> Option<u64> {
    let interval_ns = 1_000_000_000 / per_s;
    let full_ns = buckets.added_ns(member).unwrap_or(0).max(now_ns);
    let spent = (full_ns - now_ns).div_ceil(interval_ns);
    (spent < burst).then(|| full_ns.saturating_add(interval_ns))
}

fn bucket_of(source: Addr) -> u64 {
    let number = source.to_u128();
    let high = if source.is_v4() { number } else { number >> 64 };
    split_mix(&mut (high as u64))
}
