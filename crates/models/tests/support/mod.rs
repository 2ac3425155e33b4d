//! The dispatcher of the models. Its clock stands still; in mode `flow` it decides nothing by time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use packet::{Addr, Endpoint, FlowHasher, FlowKey, Scope};
use protocol::dispatcher::TargetChoice;
use protocol::dispatcher::{Config, Dispatched, Dispatcher, DispatcherOutput, Granularity, PacketArrival};
use protocol::message::{Stamp, UnitId};

/// The time at the dispatcher.
pub const NOW_NS: u64 = 1;

/// Returns a dispatcher with all units running.
pub fn dispatcher(units: u16) -> Dispatcher {
    let config = Config {
        mode: Granularity::Flow,
        targets: TargetChoice::None,
        units_min: units,
        units_max: units,
        buckets: 1,
        flows_max: 4,
        ..Config::default()
    };
    Dispatcher::new(config).unwrap()
}

/// Dispatches a packet with this key.
pub fn dispatch(
    dispatcher: &mut Dispatcher,
    key: &FlowKey,
    outputs: &mut Vec<DispatcherOutput>,
) -> Option<(UnitId, Stamp)> {
    let arrival = PacketArrival { key, hash: hash(key), len: 100 };
    match dispatcher.handle_packet(NOW_NS, arrival, outputs) {
        Dispatched::To { unit, stamp } => Some((unit, stamp)),
        Dispatched::Refused | Dispatched::NoUnit | Dispatched::Waits(_) => None,
    }
}

/// Returns the hash of a key.
pub fn hash(key: &FlowKey) -> u64 {
    FlowHasher::new(1).hash(key)
}

/// Returns the key of a client's flow to the server.
pub fn key(client: u32) -> FlowKey {
    let client = Endpoint::new(Addr::from_v4_bytes(client.to_be_bytes()), 1024);
    let server = Endpoint::new(Addr::from_v4_bytes([192, 0, 2, 1]), 443);
    FlowKey::new(client, server, 6, 4, Scope::default(), 0).0
}
