//! The options and the counters of a graph.

use nf::stage::OnPanic;
use nf::{AffinityGroups, EndReason};
use packet::{DropReason, Sanity, TunnelKind, TunnelPorts};

use crate::streams::{StreamCounters, StreamOptions};
use crate::{FlowClass, Shares, Timeouts};

/// The behaviour of a graph. The defaults suit a small site.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum number of flows; see `when_full`.
    pub flows_max: u32,
    /// The policy for a new flow when the table is full.
    pub when_full: WhenFull,
    /// The shares of classes and sources when the table is full.
    pub shares: Shares,
    /// Timeouts of flows, unless a function sets them.
    pub timeouts: Timeouts,
    /// The policy for frames that are not IP.
    pub not_ip: NotIp,
    /// True if the innermost IP header determines the flow (see [`packet::Parser::inner`]).
    pub inner: bool,
    /// The UDP ports of tunnels.
    pub tunnel_ports: TunnelPorts,
    /// True if an IPv4 total length of 0 stands for the rest of the frame (see
    /// [`packet::Parser::offloaded`]).
    pub offloaded: bool,
    /// Checks of well-formed packets that nobody may send.
    pub guards: Guards,
    /// True if packets leave by the port where packets of the other direction arrived. Needed where
    /// a side has several ports.
    pub remembers_ports: bool,
    /// True if packets with a wrong IPv4 header checksum are dropped.
    pub verify_ipv4_checksum: bool,
    /// True if VLAN tags are no part of the flow key.
    pub ignore_vlans: bool,
    /// Maximum number of fragmented datagrams that are tracked; then the oldest one gives way.
    pub fragments_max: usize,
    /// Timeout of fragments that wait for the first one of their datagram.
    pub fragment_timeout_ns: u64,
    /// Reassembly of TCP streams, if a function subscribes to them.
    pub streams: StreamOptions,
    /// Enables the fast path: packets follow their flow's cached rule where one applies (B3). The
    /// output is the same.
    pub consolidate: bool,
    /// The policy for a packet at which a function panics.
    pub on_panic: OnPanic,
    /// The affinity groups of flows, if flows may be at several nodes: functions divide their pools
    /// among them.
    pub affinity_groups: Option<AffinityGroups>,
    /// Seed of hashes and of everything random.
    pub seed: u64,
    /// Reads the processor's cycle counter. If set, the cycles of each function are measured.
    pub cycles: Option<fn() -> u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            flows_max: 65_536,
            when_full: WhenFull::EvictOldest,
            shares: Shares::default(),
            timeouts: Timeouts::default(),
            not_ip: NotIp::AsFunctions,
            inner: false,
            tunnel_ports: TunnelPorts::DEFAULT,
            offloaded: false,
            guards: Guards::default(),
            remembers_ports: false,
            verify_ipv4_checksum: false,
            ignore_vlans: false,
            fragments_max: 1024,
            fragment_timeout_ns: 30_000_000_000,
            streams: StreamOptions::default(),
            consolidate: true,
            on_panic: OnPanic::Drop,
            affinity_groups: None,
            seed: 0,
            cycles: None,
        }
    }
}

/// The policy for a new flow when the table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The new flow's packet is dropped ([`DropReason::FlowTableFull`]).
    RefuseNew,
    /// The least useful flow is evicted, by class and source; see [`Shares`].
    EvictOldest,
}

/// Checks that drop well-formed packets that nobody may send. An unset check applies if a function
/// of the graph drops what it cannot classify ([`nf::NetworkFunction::forwards_unclassified`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    /// See [`Sanity::martians`].
    pub martians: Option<bool>,
    /// See [`Sanity::land`].
    pub land: Option<bool>,
    /// See [`Sanity::source_routes`].
    pub source_routes: Option<bool>,
    /// See [`Sanity::ttl_zero`].
    pub ttl_zero: Option<bool>,
    /// See [`Sanity::encapsulated`].
    pub encapsulated: Option<bool>,
}

impl Guards {
    /// Returns the checks; unset ones are `by_default`.
    pub(crate) fn sanity(&self, by_default: bool) -> Sanity {
        Sanity {
            martians: self.martians.unwrap_or(by_default),
            land: self.land.unwrap_or(by_default),
            source_routes: self.source_routes.unwrap_or(by_default),
            ttl_zero: self.ttl_zero.unwrap_or(by_default),
            encapsulated: self.encapsulated.unwrap_or(by_default),
        }
    }
}

/// The policy for frames that are not IP, such as ARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotIp {
    /// They pass, unless a function of the graph drops what it cannot classify
    /// ([`nf::NetworkFunction::forwards_unclassified`]). Link control frames pass in any case.
    AsFunctions,
    /// They pass to the other side unchanged.
    Pass,
    /// They are dropped ([`DropReason::NotIp`]).
    Drop,
}

/// The counters of a graph. At all times
/// `packets_in + packets_generated = packets_out + dropped + held`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub packets_in: u64,
    /// Their bytes, from the link layer on, as captured.
    pub bytes_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Packets that functions made.
    pub packets_generated: u64,
    /// Packets waiting inside: fragments without their first one, or held until their datagram is
    /// whole.
    pub packets_pending: u64,
    /// Pending fragments that arrived with their flows from another graph, less those that left
    /// with theirs.
    pub fragments_moved: i64,
    /// Packets dropped, by [`DropReason::index`].
    pub drops: [u64; DropReason::COUNT],
    /// Flows that began.
    pub flows_started: u64,
    /// Flows that are in the table.
    pub flows_live: u64,
    /// Flows in the table at once, at most.
    pub flows_peak: u64,
    /// Of those, the flows of each class, by [`FlowClass`].
    pub flows_by_class: [u64; FlowClass::COUNT],
    /// Flows that were evicted for another one in a full table, by [`FlowClass`].
    pub evicted_by_class: [u64; FlowClass::COUNT],
    /// Of those, flows of a source that held more than its share.
    pub evicted_over_source: u64,
    /// Flows that ended, by reason: idle, closed, rejected, evicted, shutdown.
    pub flows_ended: [u64; 5],
    /// Flows that were taken over from another graph ([`crate::FlowsMut::restore`]).
    pub flows_moved_in: u64,
    /// Flows that went to another graph ([`crate::FlowsMut::release`]).
    pub flows_moved_out: u64,
    /// Fragmented datagrams that were forgotten before their time because the table was full.
    pub fragments_displaced: u64,
    /// The same because their source had its share of the table.
    pub fragments_displaced_by_source: u64,
    /// Frames that were not IP and passed.
    pub not_ip_passed: u64,
    /// Panics of the graph's own code: all flows ended, and it started over.
    pub restarts: u64,
    /// Of these, frames that a link needs: ARP, LLDP, spanning tree.
    pub link_control_passed: u64,
    /// Flows that began and are tunnels that were not looked into, by [`TunnelKind`].
    pub tunnels: [u64; TunnelKind::COUNT],
    /// Counters of TCP streams; zeros if no function subscribes to them.
    pub streams: StreamCounters,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            packets_in: 0,
            bytes_in: 0,
            packets_out: 0,
            bytes_out: 0,
            packets_generated: 0,
            packets_pending: 0,
            fragments_moved: 0,
            drops: [0; DropReason::COUNT],
            flows_started: 0,
            flows_live: 0,
            flows_peak: 0,
            flows_by_class: [0; _],
            evicted_by_class: [0; _],
            evicted_over_source: 0,
            flows_ended: [0; 5],
            flows_moved_in: 0,
            flows_moved_out: 0,
            fragments_displaced: 0,
            fragments_displaced_by_source: 0,
            not_ip_passed: 0,
            restarts: 0,
            link_control_passed: 0,
            tunnels: [0; TunnelKind::COUNT],
            streams: StreamCounters::default(),
        }
    }
}

impl Counters {
    /// Packets dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Returns true if every packet is accounted for.
    pub fn add_up(&self) -> bool {
        let came = (self.packets_in + self.packets_generated).wrapping_add_signed(self.fragments_moved);
        came == self.packets_out + self.dropped() + self.packets_pending
    }

    /// Flows that ended for this reason.
    pub fn ended(&self, reason: EndReason) -> u64 {
        self.flows_ended[reason as usize]
    }
}
