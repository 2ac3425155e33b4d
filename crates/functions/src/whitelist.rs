//! The UDP whitelister (S26): UDP enters the protected side only in answer to a request.
//!
//! Peers with an outstanding request are members of a set that flows share. An unsolicited datagram
//! leaves no state. See the README.

mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, NodeSharing, PacketView,
    Scaling, Setup, Shared, Verdict,
};
use packet::parse::protocol;
use packet::{DropReason, Endpoint, FlowHasher, PacketClass, Side};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use config::{
    Config, MEMBERS_MAX, NonUdpAction, PeerMatch, ProtectedSide, RecordedRequests, SERVICES_MAX,
};

/// A UDP whitelister.
pub struct Whitelist {
    protected: Side,
    records_hosts: bool,
    records_clients: bool,
    by_port: bool,
    expiry_ns: u64,
    /// Ports of the protected side that are open to all, sorted.
    services: Vec<u16>,
    drops_others: bool,
    hasher: FlowHasher,
    flood: Option<FloodAlert>,
}

/// Detection of floods, and the alert.
struct FloodAlert {
    /// Interval between unsolicited datagrams at the threshold.
    interval_ns: u64,
    /// Minimum interval between two alerts.
    silence_ns: u64,
    signature: Arc<str>,
}

/// Per-flow state of the whitelist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Last time at which answers to the flow's requests may arrive; 0: no request.
    until_ns: u64,
    /// Slots of the flow's peer in the two sets.
    places: [u32; 2],
}

/// Set: peers that got a request from the protected side.
const ASKED: usize = 0;
/// Set: clients that have sent a request to a service.
const CLIENTS: usize = 1;
/// Meter with one member: all unsolicited datagrams.
const UNSOLICITED: usize = 0;

nf::counters! {
    /// Requests of the protected side, recorded.
    requests: packets,
    /// Datagrams passed as answers to requests of hosts (1 and 3).
    answers: packets,
    /// Datagrams passed to a service (2).
    served: packets,
    /// Datagrams passed as those of a service's clients (4).
    from_clients: packets,
    /// Unsolicited datagrams dropped.
    unsolicited: packets,
    /// Packets of other protocols dropped.
    others_dropped: packets,
    /// Recorded peers displaced because a set was full.
    displaced: peers,
    /// Alerts about unsolicited datagrams.
    floods: alerts,
}

/// Tolerance of the flood detector: one second's worth of datagrams above the threshold.
const FLOOD_NS: u64 = 1_000_000_000;

/// Separates the hash of members from other uses of the run's seed.
const MEMBER_SALT: u64 = 0x7768_6974_656c_6973;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "whitelist",
    aliases: &["udp-whitelist", "UdpWhitelist", "udp-whitelister"],
    summary: "Stops UDP floods: UDP passes only in answer to a request, or to a service",
    maturity: Maturity::Preview,
    state_version: 1,
    reads: &[
        Field::SourceAddress,
        Field::DestinationAddress,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Protocol,
        Field::Vlan,
    ],
    payload: Access::Ignore,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    shared: &[
        Shared::Set { name: "asked", capacity: MEMBERS },
        Shared::Set { name: "clients", capacity: MEMBERS },
        Shared::Meters("unsolicited"),
    ],
    across_nodes: NodeSharing::OneMachine("a request permits answers in flows at other nodes"),
    cycles_per_packet: 60,
    ..Descriptor::DEFAULT
};

/// Default capacity of each set.
const MEMBERS: usize = 65_536;

impl NetworkFunction for Whitelist {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<Whitelist, ConfigError> {
        let record = config.checked_record()?;
        let records_hosts = record.contains(&RecordedRequests::Hosts);
        let records_clients = record.contains(&RecordedRequests::Clients);
        let capacity = config.checked_capacity()?;
        setup.set_capacity(ASKED, if records_hosts { capacity } else { 1 });
        setup.set_capacity(CLIENTS, if records_clients { capacity } else { 1 });
        setup.meters(1);
        Ok(Whitelist {
            protected: config.protect.side(),
            records_hosts,
            records_clients,
            by_port: config.strict == PeerMatch::AddressPort,
            expiry_ns: config.checked_expiry_ns()?,
            services: config.checked_services()?,
            drops_others: config.others == NonUdpAction::Drop,
            hasher: FlowHasher::new(setup.seed ^ MEMBER_SALT),
            flood: config.flood(),
        })
    }

    // S26
    #[inline(always)]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let meta = packet.meta();
        if meta.protocol != protocol::UDP {
            return if self.drops_others { self.other(packet, state, context) } else { Verdict::Forward };
        }
        // A later fragment has no ports. It arrives only after its first fragment, which passed.
        if meta.class == PacketClass::LaterFragment {
            return Verdict::Forward;
        }
        if context.side() == self.protected {
            return self.request(packet, state, context);
        }
        let now_ns = context.now_ns();
        if state.until_ns != 0 && now_ns <= state.until_ns {
            context.count(COUNTERS.answers, 1);
            return Verdict::Forward;
        }
        self.arrival(packet, state, context)
    }
}

impl Whitelist {
    /// Handles UDP from the protected side, and permits answers from its destination.
    #[inline(always)]
    fn request(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let (source, destination) = packet.ends();
        // A service's packets are answers, and packets to it pass anyway.
        if self.records_hosts && !self.is_service(source.port) {
            context.count(COUNTERS.requests, 1);
            let now_ns = context.now_ns();
            state.until_ns = state.until_ns.max(now_ns.saturating_add(self.expiry_ns));
            self.record(ASKED, destination, state, context);
        }
        Verdict::Forward
    }

    /// Handles UDP from the other side, in a flow without a current request.
    #[inline(never)]
    fn arrival(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let (source, destination) = packet.ends();
        if self.is_service(destination.port) {
            context.count(COUNTERS.served, 1);
            if self.records_clients && !packet.payload().is_empty() {
                self.record(CLIENTS, source, state, context);
            }
            return Verdict::Forward;
        }
        let member = self.member(source, context);
        if self.records_hosts && self.is_recorded(ASKED, member, context) {
            context.count(COUNTERS.answers, 1);
            return Verdict::Forward;
        }
        if self.records_clients && self.is_recorded(CLIENTS, member, context) {
            context.count(COUNTERS.from_clients, 1);
            return Verdict::Forward;
        }
        self.unsolicited(context)
    }

    fn unsolicited(&self, context: &mut Context<'_>) -> Verdict {
        context.count(COUNTERS.unsolicited, 1);
        if let Some(flood) = &self.flood {
            flood.count(context);
        }
        Verdict::Drop(DropReason::WhitelistUnsolicited)
    }

    /// Handles other protocols, where only ICMP errors about permitted flows may enter.
    #[cold]
    fn other(&self, packet: &PacketView<'_>, state: &State, context: &mut Context<'_>) -> Verdict {
        let flow = context.flow();
        let speaks_of_request = packet.meta().class == PacketClass::IcmpError
            && flow.key.protocol == protocol::UDP
            && state.until_ns != 0
            && flow.now_ns <= state.until_ns;
        if flow.side == self.protected || speaks_of_request {
            return Verdict::Forward;
        }
        context.count(COUNTERS.others_dropped, 1);
        Verdict::Drop(DropReason::WhitelistProtocol)
    }

    #[inline(always)]
    fn is_service(&self, port: u16) -> bool {
        !self.services.is_empty() && self.services.binary_search(&port).is_ok()
    }

    #[inline(always)]
    fn record(&self, set: usize, end: Endpoint, state: &mut State, context: &mut Context<'_>) {
        let member = self.member(end, context);
        let now_ns = context.now_ns();
        let (members, place) = (context.set(set), &mut state.places[set]);
        if members.renew(*place, member, now_ns) {
            return;
        }
        let displaced = members.displaced();
        *place = members.add_at(member, now_ns).0;
        if members.displaced() != displaced {
            context.count(COUNTERS.displaced, 1);
        }
    }

    #[inline]
    fn is_recorded(&self, set: usize, member: u64, context: &mut Context<'_>) -> bool {
        let now_ns = context.now_ns();
        let added_ns = context.set(set).added_ns(member);
        added_ns.is_some_and(|added_ns| now_ns.saturating_sub(added_ns) <= self.expiry_ns)
    }

    /// Returns the set member for an endpoint. Equal addresses in different tenants, VLANs or
    /// virtual networks are different.
    #[inline(always)]
    fn member(&self, end: Endpoint, context: &Context<'_>) -> u64 {
        let key = context.flow().key;
        let port = if self.by_port { u64::from(end.port) } else { 0 };
        let [high, low]: [u64; 2] = zerocopy::transmute!(end.addr);
        let scope: u64 = zerocopy::transmute!(key.scope);
        self.hasher.hash_words(&[high, low, 0, 0, port << 16 | u64::from(key.tenant()), scope])
    }
}

impl FloodAlert {
    /// Counts an unsolicited datagram by virtual scheduling (GCRA, ITU-T I.371). Each datagram
    /// advances the theoretical arrival time by the interval. There is a flood when that time would
    /// be more than a second ahead of the clock.
    fn count(&self, context: &mut Context<'_>) {
        let now_ns = context.now_ns();
        // The table was sized for one meter, and this is the only key.
        let Some(value) = context.meters(UNSOLICITED).of(&[0; 4], now_ns, u64::MAX) else { return };
        let [expected_ns, quiet_until_ns, _] = value;
        let next_ns = now_ns.max(*expected_ns).saturating_add(self.interval_ns);
        if next_ns - now_ns <= FLOOD_NS {
            *expected_ns = next_ns;
        } else if now_ns >= *quiet_until_ns {
            *quiet_until_ns = now_ns.saturating_add(self.silence_ns);
            context.count(COUNTERS.floods, 1);
            context.alert(1, &self.signature, "udp-flood", 2);
        }
    }
}
