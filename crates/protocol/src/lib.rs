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

pub mod dispatcher;
pub mod message;
pub mod metering;
pub mod timer;
pub mod unit;
pub mod wire;
