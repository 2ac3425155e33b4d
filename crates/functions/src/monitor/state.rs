//! The state of a flow.

use nf::{FlowInfo, FlowReport};
use packet::parse::protocol;
use packet::{Direction, Endpoint, Packet};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Counts of one flow since its last report. Pairs are in the order original, reply.
///
/// The fields that every packet touches are in the first 64 bytes; the endpoints are written once.
#[derive(Clone, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Bytes of IP packets.
    bytes: [u64; 2],
    /// Time of the first packet; meaningless while `packets` is 0.
    first_ns: [u64; 2],
    /// Latest time of a packet.
    last_ns: [u64; 2],
    /// Below [`PACKETS_MAX`], at which the flow is reported.
    packets: [u32; 2],
    /// TCP: union of all flags. ICMP: type and code of the first packet.
    marks: [u16; 2],
    watch: u8,
    /// Type of service of each direction's first packet since the last report.
    tos: [u8; 2],
    reserved: u8,
    /// The endpoints at this function when the flow began. Earlier functions may have rewritten
    /// them, so they may differ from the flow's key.
    source: Endpoint,
    destination: Endpoint,
    reserved_too: [u8; 4],
}

const _: () = assert!(size_of::<State>() == 104);

/// Maximum packets of a direction in a report; a flow that reaches it is reported at once.
const PACKETS_MAX: u32 = u32::MAX;

/// Values of `watch`. Zero is a flow without packets so far.
const NEW: u8 = 0;
const WATCHED: u8 = 1;
const IGNORED: u8 = 2;

impl State {
    /// The size of the fields that every packet touches.
    pub(super) const HOT_BYTES: usize = std::mem::offset_of!(State, source);

    /// Returns whether no packet of the flow was seen.
    #[inline]
    pub(super) fn is_new(&self) -> bool {
        self.watch == NEW
    }

    /// Returns whether the flow is sampled.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.watch == WATCHED
    }

    /// Samples the flow.
    pub(super) fn watch(&mut self, source: Endpoint, destination: Endpoint) {
        self.watch = WATCHED;
        self.source = source;
        self.destination = destination;
    }

    /// Excludes the flow from sampling.
    pub(super) fn ignore(&mut self) {
        self.watch = IGNORED;
    }

    /// Returns whether the flow must be reported before a packet of `direction` is counted.
    #[inline]
    pub(super) fn is_due(&self, direction: Direction, now_ns: u64, timeout_ns: u64) -> bool {
        let first_ns = |d: usize| if self.packets[d] == 0 { u64::MAX } else { self.first_ns[d] };
        let age_ns = now_ns.saturating_sub(first_ns(0).min(first_ns(1)));
        age_ns >= timeout_ns || self.packets[direction.index()] == PACKETS_MAX
    }

    /// Counts a packet.
    #[inline(always)]
    pub(super) fn count(&mut self, packet: &Packet, direction: Direction, now_ns: u64, bytes: u64) {
        let d = direction.index();
        if self.packets[d] == 0 {
            self.begin(packet, d, now_ns);
        }
        self.packets[d] += 1;
        self.bytes[d] += bytes;
        if now_ns < self.last_ns[d] {
            // Packets of several captures or queues may be out of order.
            self.first_ns[d] = self.first_ns[d].min(now_ns);
        } else {
            self.last_ns[d] = now_ns;
        }
        self.marks[d] |= u16::from(packet.meta().tcp_flags);
    }

    /// Records the fields of a direction's first packet.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, packet: &Packet, direction: usize, now_ns: u64) {
        self.first_ns[direction] = now_ns;
        self.last_ns[direction] = now_ns;
        self.marks[direction] = icmp_type(packet);
        self.tos[direction] = type_of_service(packet);
    }

    /// Returns whether anything was counted since the last report.
    pub(super) fn has_counted(&self) -> bool {
        self.packets != [0; 2]
    }

    /// Resets the counts after a report.
    pub(super) fn restart(&mut self) {
        self.packets = [0; 2];
        self.bytes = [0; 2];
        self.marks = [0; 2];
        self.tos = [0; 2];
    }

    /// Returns the counts since the last report, with this flowEndReason, of a flow that leaves the
    /// path between these endpoints.
    pub(super) fn report(
        &self,
        flow: &FlowInfo,
        exit: Option<(Endpoint, Endpoint)>,
        end_reason: u8,
        sampling: u32,
    ) -> FlowReport {
        let counted = |times_ns: [u64; 2]| [0, 1].map(|d| if self.packets[d] == 0 { 0 } else { times_ns[d] });
        let is_tcp = flow.key.protocol == protocol::TCP;
        FlowReport {
            key: flow.key,
            source: self.source.addr,
            destination: self.destination.addr,
            source_port: self.source.port,
            destination_port: self.destination.port,
            protocol: flow.key.protocol,
            version: flow.key.version,
            tcp_flags: if is_tcp { self.marks.map(|mark| mark as u8) } else { [0; 2] },
            icmp: if is_tcp { [0; 2] } else { self.marks },
            vlan: flow.key.scope.vlan().unwrap_or(0),
            first_ns: counted(self.first_ns),
            last_ns: counted(self.last_ns),
            packets: self.packets.map(u64::from),
            bytes: self.bytes,
            tos: self.tos,
            translated: exit.filter(|exit| *exit != (self.source, self.destination)),
            end_reason,
            connection: flow.connection,
            sampling,
            findings: None,
        }
    }
}

/// Returns the IPv4 type of service or IPv6 traffic class (RFC 791 3.1, RFC 8200 3).
#[inline]
fn type_of_service(packet: &Packet) -> u8 {
    match *packet.network() {
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        [_, second, ..] => second,
        _ => 0,
    }
}

/// Returns ICMP type and code; 0 for other protocols and later fragments.
#[inline]
fn icmp_type(packet: &Packet) -> u16 {
    let meta = packet.meta();
    let is_icmp = matches!(meta.protocol, protocol::ICMP | protocol::ICMPV6) && meta.has_transport();
    match *packet.transport() {
        [kind, code, ..] if is_icmp => u16::from_be_bytes([kind, code]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of several captures or queues may be out of order.
    #[test]
    fn a_report_begins_at_the_earliest_packet() {
        let mut state = State::default();
        let packet = packet::PacketPool::new(1).take(&[0; 60]).unwrap();
        for now_ns in [30, 10, 20] {
            state.count(&packet, Direction::Original, now_ns, 100);
        }
        assert_eq!((state.first_ns[0], state.last_ns[0]), (10, 30));
    }

    #[test]
    fn a_full_counter_makes_the_flow_due() {
        let state = State { packets: [PACKETS_MAX, 1], first_ns: [5, 5], ..State::default() };
        assert!(state.is_due(Direction::Original, 5, u64::MAX));
        assert!(!state.is_due(Direction::Reply, 5, u64::MAX));
    }

    #[test]
    fn the_age_is_that_of_the_earlier_direction() {
        let mut state = State { packets: [1, 1], first_ns: [20, 10], ..State::default() };
        assert!(!state.is_due(Direction::Original, 14, 5));
        assert!(state.is_due(Direction::Original, 15, 5));
        assert!(!state.is_due(Direction::Original, 0, 5), "time that goes back is no age");
        state.restart();
        assert!(!state.has_counted() && !state.is_due(Direction::Original, u64::MAX - 1, u64::MAX));
    }
}
