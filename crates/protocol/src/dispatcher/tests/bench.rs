//! A dispatcher and its driver.

use crate::message::{Epoch, FlowId, FromDispatcher, FromUnit, Handover, Stamp, UnitId};
use packet::{Addr, Endpoint, FlowHasher, FlowKey, Scope};

use crate::dispatcher::*;

pub struct Bench {
    pub dispatcher: Dispatcher,
    /// Outputs since the last [`Bench::take`].
    pub outputs: Vec<DispatcherOutput>,
    hasher: FlowHasher,
}

impl Bench {
    pub fn new(config: Config) -> Bench {
        Bench {
            dispatcher: Dispatcher::new(config).unwrap(),
            outputs: Vec::new(),
            hasher: FlowHasher::new(1),
        }
    }

    /// Dispatches a packet of a flow, by the flow's number.
    pub fn try_packet(&mut self, now_ns: u64, flow: u32, len: u32) -> Option<(UnitId, Stamp)> {
        self.packet_with(now_ns, &key(flow), len)
    }

    pub fn packet(&mut self, now_ns: u64, flow: u32, len: u32) -> (UnitId, Stamp) {
        self.try_packet(now_ns, flow, len).unwrap()
    }

    /// The same for a packet whose outcome does not matter.
    pub fn feed(&mut self, now_ns: u64, flow: u32, len: u32) {
        let _ = self.try_packet(now_ns, flow, len);
    }

    pub fn packet_with(&mut self, now_ns: u64, key: &FlowKey, len: u32) -> Option<(UnitId, Stamp)> {
        let hash = self.hasher.hash(key);
        self.dispatcher.prefetch(hash);
        self.dispatcher.guess(hash);
        match self.dispatcher.handle_packet(now_ns, PacketArrival { key, hash, len }, &mut self.outputs) {
            Dispatched::To { unit, stamp } => Some((unit, stamp)),
            Dispatched::Refused | Dispatched::NoUnit | Dispatched::Waits(_) => None,
        }
    }

    pub fn alias(&mut self, flow: FlowId, alias: &FlowKey) -> Result<(), AliasConflict> {
        self.dispatcher.aliases().set(flow, alias, self.hasher.hash(alias))
    }

    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.dispatcher.handle_timeout(now_ns, &mut self.outputs);
    }

    pub fn handle_message(&mut self, now_ns: u64, from: UnitId, message: FromUnit) {
        self.dispatcher.handle_message(now_ns, from, message, &mut self.outputs);
    }

    pub fn take(&mut self) -> Vec<DispatcherOutput> {
        std::mem::take(&mut self.outputs)
    }

    pub fn state(&self, unit: u16) -> UnitState {
        self.dispatcher.units().nth(unit.into()).unwrap().state
    }
}

/// Returns the key of a flow by number.
pub fn key(flow: u32) -> FlowKey {
    let client = Endpoint::new(Addr::from_v4_bytes(flow.to_be_bytes()), 1024);
    let server = Endpoint::new(Addr::from_v4_bytes([192, 0, 2, 1]), 443);
    FlowKey::new(client, server, 6, 4, Scope::default(), 0).0
}

/// Units 0 to `units` - 1 are active from the beginning, and no others.
pub fn fixed(units: u16) -> Config {
    Config { units_min: units, units_max: units, flows_max: 1000, ..Config::default() }
}

pub const fn send(to: u16, message: FromDispatcher) -> DispatcherOutput {
    DispatcherOutput::Send { to: UnitId(to), message }
}

/// The release of an owner whose epoch began with `start`.
pub fn release(flow: (FlowId, Epoch), owner: UnitId, last: u64, start: Handover) -> FromDispatcher {
    let (flow, epoch) = flow;
    FromDispatcher::Release { flow, epoch, owner, last, start }
}

pub const MS: u64 = 1_000_000;
