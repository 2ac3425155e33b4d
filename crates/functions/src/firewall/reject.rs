//! Rate-limited answers to the senders of rejected packets.

use nf::answer::{self, IcmpError};
use nf::{Context, PacketView};
use packet::DropReason;
use packet::parse::protocol;

use super::{ANSWERS, COUNTERS};

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
        Ok(network) => ANSWERS.permit(source.addr, context) && context.answer(packet, network).is_ok(),
        Err(_) => false,
    }
}
