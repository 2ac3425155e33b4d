//! The flow ownership protocol, sans-IO: its messages, and the state machines of the roles that
//! exchange them.
//!
//! - [`message`]: stamps, epochs, watermarks and messages;
//! - [`dispatcher`]: numbers packets, cuts flowlets and assigns each to a unit;
//! - [`unit`](mod@unit): owns flows, processes their packets in order and hands their states over;
//! - [`timer`]: the timers of both;
//! - [`wire`]: the bytes of messages on links;
//! - [`metering`]: demand and allocation per interval, and what a tenant pays for it.
//!
//! A role has no clock, socket or thread: time is given with every call, and what it sends is
//! returned as values.
//!
//! A dispatcher and two units, and a flow that moves from one to the other. The engine of these
//! units counts the packets of each flow, and this count is the state that moves:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use packet::{FlowHasher, FlowKey};
//! use protocol::dispatcher::{Config, Dispatched, Dispatcher, DispatcherOutput, PacketArrival};
//! use protocol::message::{FlowId, RefuseReason, UnitId, UnitMessage};
//! use protocol::unit::{self, Done, Engine, Outbox, Unit};
//!
//! #[derive(Default)]
//! struct Counter(BTreeMap<FlowId, u64>);
//!
//! impl Engine for Counter {
//!     type Packet = ();
//!     type Effects = ();
//!
//!     fn process(&mut self, _now_ns: u64, flow: FlowId, _seq: u64, _packet: ()) {
//!         *self.0.entry(flow).or_default() += 1;
//!     }
//!     fn flush(&mut self, _done: impl FnMut(Done<(), ()>)) {}
//!     fn save(&mut self, flow: FlowId, out: &mut Vec<u8>) {
//!         out.extend(self.0.get(&flow).into_iter().flat_map(|count| count.to_be_bytes()));
//!     }
//!     fn restore(&mut self, _now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason> {
//!         let count = state.try_into().map_err(|_| RefuseReason::Unreadable)?;
//!         self.0.insert(flow, u64::from_be_bytes(count));
//!         Ok(())
//!     }
//!     fn forget(&mut self, _now_ns: u64, flow: FlowId, _ended: bool) {
//!         self.0.remove(&flow);
//!     }
//! }
//!
//! let mut dispatcher = Dispatcher::new(Config { units_min: 2, units_max: 2, ..Config::default() })?;
//! let unit = |number| Unit::new(unit::Config::new(UnitId(number)), Counter::default());
//! let (mut units, mut outputs, mut out) = ([unit(0), unit(1)], Vec::new(), Outbox::default());
//!
//! // Three packets of one flow go to the unit that the dispatcher names.
//! let (key, _) = FlowKey::of_ipv4(([10, 0, 0, 1], [4, 0]), ([192, 0, 2, 1], [1, 187]), 6, 0);
//! let hash = FlowHasher::new(1).hash(&key);
//! for now_ns in 0..3 {
//!     let arrival = PacketArrival { key: &key, hash, len: 100 };
//!     let Dispatched::To { unit, stamp } = dispatcher.handle_packet(now_ns, arrival, &mut outputs) else {
//!         panic!("the first packet begins a flow");
//!     };
//!     assert_eq!((unit, stamp.seq), (UnitId(0), now_ns + 1));
//!     units[0].handle_packet(now_ns, stamp, (), &mut out);
//! }
//!
//! // The flow moves to the other unit: one message to each of them.
//! let flow = dispatcher.flows().find(hash, &key).ok_or("no flow")?;
//! dispatcher.migrations().migrate(3, flow, Some(UnitId(1)), &mut outputs)?;
//! for output in outputs.drain(..) {
//!     if let DispatcherOutput::Send { to, message } = output {
//!         units[to.index()].handle_message(3, UnitMessage::FromDispatcher(message), &mut out);
//!     }
//! }
//!
//! // Unit 1 pulls the state, unit 0 sends it, and unit 1 acknowledges it.
//! let mut messages = 0;
//! while let Some((to, message)) = out.to_units.pop() {
//!     let from = UnitId(1 - to.0);
//!     units[to.index()].handle_message(4, UnitMessage::FromPeer(from, message), &mut out);
//!     messages += 1;
//! }
//! assert_eq!((messages, units[0].owned(flow)), (3, None));
//! assert!(units[1].owned(flow).is_some_and(|(epoch, mark)| epoch == 2 && mark.covers(3)));
//! assert_eq!(units[1].engine().0[&flow], 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod dispatcher;
pub mod message;
pub mod metering;
pub mod timer;
pub mod unit;
pub mod wire;
