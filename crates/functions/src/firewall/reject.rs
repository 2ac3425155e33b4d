//! Rate-limited answers to the senders of rejected packets.

use nf::answer::{self, IcmpError};
use nf::{Context, PacketView, SharedSet};
use packet::parse::protocol;
use packet::{Addr, DropReason, split_mix};

use super::{ANSWERED_ALL, ANSWERED_SOURCES, COUNTERS};

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

/// Answers the packet with a TCP reset or an ICMP error, if permitted. Returns the drop reason.
#[cold]
pub(super) fn reject(packet: &PacketView<'_>, context: &mut Context<'_>) -> DropReason {
    if try_answer(packet, context) {
        context.count(COUNTERS.answered, 1);
        DropReason::FirewallRejected
    } else {
        context.count(COUNTERS.unanswered, 1);
        DropReason::FirewallDenied
    }
}

fn try_answer(packet: &PacketView<'_>, context: &mut Context<'_>) -> bool {
    let mut buffer = answer::buffer();
    let (source, destination) = packet.ends();
    let network = if packet.meta().protocol == protocol::TCP {
        answer::tcp_reset(packet, &mut buffer)
    } else {
        answer::icmp_error(packet, IcmpError::AdminProhibited, destination.addr, &mut buffer)
    };
    match network {
        Ok(network) => is_permitted(source.addr, context) && context.answer(packet, network).is_ok(),
        Err(_) => false,
    }
}

/// Takes a token from both buckets, which are kept by virtual scheduling (GCRA, ITU-T I.371): a
/// member's time is when its bucket will be full again.
fn is_permitted(source: Addr, context: &mut Context<'_>) -> bool {
    let now_ns = context.now_ns();
    let (member, all) = (bucket_of(source), 0);
    let per_source =
        after_one(context.set(ANSWERED_SOURCES), member, now_ns, SOURCE_ANSWERS_PER_S, SOURCE_ANSWERS_BURST);
    let in_all = after_one(context.set(ANSWERED_ALL), all, now_ns, ANSWERS_PER_S, ANSWERS_BURST);
    let (Some(per_source), Some(in_all)) = (per_source, in_all) else { return false };
    context.set(ANSWERED_SOURCES).add(member, per_source);
    context.set(ANSWERED_ALL).add(all, in_all);
    true
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
