//! Telling senders that their packets were rejected, and not too often.

use nf::answer::{self, IcmpError};
use nf::{Context, PacketView, SharedSet};
use packet::parse::protocol;
use packet::{Addr, DropReason, split_mix};

use super::{ANSWERED_ALL, ANSWERED_SOURCES, COUNT_ANSWERED, COUNT_UNANSWERED};

/// Answers per second at most, to all sources together (RFC 1812 4.3.2.8, RFC 4443 2.4 (f)).
pub const ANSWERS_PER_S: u64 = 1_000;
/// Answers at once.
pub const ANSWERS_BURST: u64 = 100;
/// Answers per second at most to one source: an IPv4 address or an IPv6 /64.
pub const SOURCE_ANSWERS_PER_S: u64 = 10;
/// Answers at once to one source.
pub const SOURCE_ANSWERS_BURST: u64 = 10;
/// Sources whose answers are counted; the one that came first is forgotten for the next.
pub const SOURCES_MAX: usize = 4_096;

/// Answers the packet with a TCP reset or an ICMP error, if it may be answered; the reason to drop
/// it.
#[cold]
pub(super) fn reject(packet: &PacketView<'_>, context: &mut Context<'_>) -> DropReason {
    if try_answer(packet, context) {
        context.count(COUNT_ANSWERED, 1);
        DropReason::FirewallRejected
    } else {
        context.count(COUNT_UNANSWERED, 1);
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

/// Two token buckets, as virtual scheduling (GCRA, ITU-T I.371): noted is the time at which a
/// bucket is full again.
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

/// When the bucket will be full again if one more token is taken now; none if it is empty.
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
