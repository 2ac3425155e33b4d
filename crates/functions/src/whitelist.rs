//! The UDP whitelister (S26): UDP reaches the protected side only if somebody there asked for it.
//!
//! Who was asked is a member of a set that flows share; a datagram that nobody asked for leaves
//! nothing behind. See the README.

mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use nf::{
    Access, Affinity, Context, Descriptor, Field, Maturity, NetworkFunction, PacketView, Scaling, Setup,
    Shared, Verdict,
};
use packet::parse::protocol;
use packet::{DropReason, Endpoint, FlowHasher, PacketClass, Side};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use config::{
    Config, MEMBERS_MAX, NonUdpAction, PeerMatch, ProtectedSide, RecordedRequests, SERVICES_MAX,
};

/// The UDP whitelister.
pub struct Whitelist {
    protected: Side,
    records_hosts: bool,
    records_clients: bool,
    by_port: bool,
    expiry_ns: u64,
    /// Ports, ascending, of the protected side to which anybody may send.
    services: Vec<u16>,
    drops_others: bool,
    hasher: FlowHasher,
    flood: Option<FloodAlert>,
}

/// When and how a flood is told of.
struct FloodAlert {
    /// Between unsolicited datagrams at the threshold.
    interval_ns: u64,
    /// Between two alerts, at least.
    silence_ns: u64,
    signature: Arc<str>,
}

/// What the whitelist keeps of each flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// The last moment at which an answer to the flow's own requests may come; 0: there was none.
    until_ns: u64,
    /// Where the flow's other end stands in the two sets, if it does.
    places: [u32; 2],
}

/// Set: those that were asked by the protected side.
const ASKED: usize = 0;
/// Set: those that asked a service.
const CLIENTS: usize = 1;
/// Meters with one member: all that is unsolicited.
const UNSOLICITED: usize = 0;

/// Numbers of the counters in the descriptor.
mod counter {
    pub const REQUESTS: usize = 0;
    pub const ANSWERS: usize = 1;
    pub const SERVED: usize = 2;
    pub const CLIENTS: usize = 3;
    pub const UNSOLICITED: usize = 4;
    pub const OTHERS_DROPPED: usize = 5;
    pub const DISPLACED: usize = 6;
    pub const FLOODS: usize = 7;
}

/// So long a rate above the threshold is borne with before it is a flood: a second's worth of
/// datagrams.
const FLOOD_NS: u64 = 1_000_000_000;

/// Keeps the members' hash apart from other uses of the run's seed.
const MEMBER_SALT: u64 = 0x7768_6974_656c_6973;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "whitelist",
    aliases: &["udp-whitelist", "UdpWhitelist", "udp-whitelister"],
    summary: "Stops UDP floods: UDP passes only in answer to a request, or to a service",
    maturity: Maturity::Preview,
    state_version: 1,
    attributes: &[],
    reads: &[
        Field::SourceAddress,
        Field::DestinationAddress,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Protocol,
        Field::Vlan,
    ],
    writes: &[],
    payload: Access::Ignore,
    stream: false,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    shared: &[
        Shared::Counter("requests"),
        Shared::Counter("answers"),
        Shared::Counter("served"),
        Shared::Counter("from_clients"),
        Shared::Counter("unsolicited"),
        Shared::Counter("others_dropped"),
        Shared::Counter("displaced"),
        Shared::Counter("floods"),
        Shared::Set { name: "asked", capacity: MEMBERS },
        Shared::Set { name: "clients", capacity: MEMBERS },
        Shared::Meters("unsolicited"),
    ],
    map: None,
    buffers: None,
    keeps_flows: false,
    recomputes: false,
    changes_flows: false,
    consolidates: false,
    cycles_per_packet: 60,
};

/// Members of each set, unless said.
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
        // It has no ports, and comes only behind its first fragment, which passed.
        if meta.class == PacketClass::LaterFragment {
            return Verdict::Forward;
        }
        if context.side() == self.protected {
            return self.request(packet, state, context);
        }
        let now_ns = context.now_ns();
        if state.until_ns != 0 && now_ns <= state.until_ns {
            context.count(counter::ANSWERS, 1);
            return Verdict::Forward;
        }
        self.arrival(packet, state, context)
    }
}

impl Whitelist {
    /// UDP from the protected side: whom it goes to may answer.
    #[inline(always)]
    fn request(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let (source, destination) = packet.ends();
        // What a service sends is an answer, and what is sent to it passes anyway.
        if self.records_hosts && !self.is_service(source.port) {
            context.count(counter::REQUESTS, 1);
            let now_ns = context.now_ns();
            state.until_ns = state.until_ns.max(now_ns.saturating_add(self.expiry_ns));
            self.record(ASKED, destination, state, context);
        }
        Verdict::Forward
    }

    /// UDP from the other side, in a flow in which nobody asked.
    #[inline(never)]
    fn arrival(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let (source, destination) = packet.ends();
        if self.is_service(destination.port) {
            context.count(counter::SERVED, 1);
            if self.records_clients && !packet.payload().is_empty() {
                self.record(CLIENTS, source, state, context);
            }
            return Verdict::Forward;
        }
        let member = self.member(source, context);
        if self.records_hosts && self.is_recorded(ASKED, member, context) {
            context.count(counter::ANSWERS, 1);
            return Verdict::Forward;
        }
        if self.records_clients && self.is_recorded(CLIENTS, member, context) {
            context.count(counter::CLIENTS, 1);
            return Verdict::Forward;
        }
        self.unsolicited(context)
    }

    fn unsolicited(&self, context: &mut Context<'_>) -> Verdict {
        context.count(counter::UNSOLICITED, 1);
        if let Some(flood) = &self.flood {
            flood.count(context);
        }
        Verdict::Drop(DropReason::WhitelistUnsolicited)
    }

    /// Another protocol than UDP, where only ICMP errors about permitted flows may come in.
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
        context.count(counter::OTHERS_DROPPED, 1);
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
            context.count(counter::DISPLACED, 1);
        }
    }

    #[inline]
    fn is_recorded(&self, set: usize, member: u64, context: &mut Context<'_>) -> bool {
        let now_ns = context.now_ns();
        let added_ns = context.set(set).added_ns(member);
        added_ns.is_some_and(|added_ns| now_ns.saturating_sub(added_ns) <= self.expiry_ns)
    }

    /// The end as a member of a set. Equal addresses of tenants, VLANs or virtual networks are
    /// different ones.
    #[inline(always)]
    fn member(&self, end: Endpoint, context: &Context<'_>) -> u64 {
        let key = context.flow().key;
        let port = if self.by_port { u64::from(end.port) } else { 0 };
        let [high, low]: [u64; 2] = zerocopy::transmute!(end.addr);
        let scope: u64 = zerocopy::transmute!(key.scope);
        self.hasher.hash_words(&[high, low, 0, 0, port << 16 | u64::from(key.tenant), scope])
    }
}

impl FloodAlert {
    /// Counts a datagram that nobody asked for. Virtual scheduling (GCRA, ITU-T I.371): with each,
    /// a theoretical time of arrival moves on by the interval; when it would be a second ahead of
    /// the clock, a second's worth too many have come.
    fn count(&self, context: &mut Context<'_>) {
        let now_ns = context.now_ns();
        // Room for one was asked for, and this is the only key.
        let Some(value) = context.meters(UNSOLICITED).of(&[0; 4], now_ns, u64::MAX) else { return };
        let [expected_ns, quiet_until_ns, _] = value;
        let next_ns = now_ns.max(*expected_ns).saturating_add(self.interval_ns);
        if next_ns - now_ns <= FLOOD_NS {
            *expected_ns = next_ns;
        } else if now_ns >= *quiet_until_ns {
            *quiet_until_ns = now_ns.saturating_add(self.silence_ns);
            context.count(counter::FLOODS, 1);
            context.alert(1, &self.signature, "udp-flood", 2);
        }
    }
}
