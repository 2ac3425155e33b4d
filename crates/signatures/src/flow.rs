//! Tests of flows, and the state that rules keep for flows and addresses.

use crate::number::Comparison;

/// `flow`: the direction, state and reassembly of a packet. `None` means not tested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowOptions {
    /// The direction of the packet within its flow.
    pub direction: Option<FlowDirection>,
    /// The state of the connection.
    pub state: Option<FlowState>,
    /// True if the input must be a reassembled TCP stream.
    pub stream: Option<ReassemblyFilter>,
    /// True if the packet must be reassembled from fragments.
    pub fragments: Option<ReassemblyFilter>,
}

/// A direction within a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowDirection {
    /// `to_server`, `from_client`: from the initiator.
    ToServer,
    /// `to_client`, `from_server`: to the initiator.
    ToClient,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowState {
    /// `established`: TCP after its handshake; other protocols after packets in both directions.
    Established,
    /// `not_established`.
    NotEstablished,
    /// `stateless`: any state of a flow.
    Stateless,
}

/// True if the input must or must not be reassembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReassemblyFilter {
    /// `only_stream`, `only_frag`.
    Assembled,
    /// `no_stream`, `no_frag`.
    Plain,
}

/// `flowbits`: a named bit of the flow. Names are case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flowbit {
    /// Tests that any of the bits is set (`isset,a|b`).
    IsSet(Vec<String>),
    /// Tests that any of the bits is not set (`isnotset,a|b`).
    IsNotSet(Vec<String>),
    /// Sets the bits.
    Set(Vec<String>),
    /// Clears the bits.
    Unset(Vec<String>),
    /// Toggles the bits.
    Toggle(Vec<String>),
}

/// `xbits`, `hostbits`: a named bit of an address, of a pair of addresses, or of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Xbit {
    /// The operation.
    pub operation: XbitOperation,
    /// The name of the bit.
    pub name: String,
    /// The owner of the bit.
    pub track: XbitTrack,
    /// Seconds until it expires; [`DEFAULT_XBIT_SECONDS`] by default.
    pub expire_seconds: u32,
}

/// Default seconds until an xbit expires.
pub const DEFAULT_XBIT_SECONDS: u32 = 30;

/// An operation on an xbit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XbitOperation {
    /// Tests that it is set.
    IsSet,
    /// Tests that it is not set.
    IsNotSet,
    /// Sets it.
    Set,
    /// Clears it.
    Unset,
    /// Toggles it.
    Toggle,
}

/// The owner of an xbit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XbitTrack {
    /// The packet's source.
    Source,
    /// The packet's destination.
    Destination,
    /// Both addresses, in either order.
    Pair,
    /// The transaction of the application protocol.
    Transaction,
}

/// `flowint`: a named number of the flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flowint {
    /// The number's name.
    pub name: String,
    /// The operation.
    pub operation: FlowintOperation,
}

/// An operation on a flowint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowintOperation {
    /// Tests that it has a value.
    IsSet,
    /// Tests that it has no value.
    IsNotSet,
    /// Sets it.
    Set(FlowintValue),
    /// Adds to it.
    Add(FlowintValue),
    /// Subtracts from it.
    Subtract(FlowintValue),
    /// Compares it.
    Test(FlowintTest, FlowintValue),
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowintTest {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

/// A number, or another flowint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowintValue {
    /// A constant.
    Number(u32),
    /// The name of the other flowint.
    Name(String),
}

/// `stream_size`: bytes of a TCP stream so far, by sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamSize {
    /// The side.
    pub side: StreamSide,
    /// The comparison.
    pub bytes: Comparison<u32>,
}

/// The side with the counted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamSide {
    /// The client's bytes.
    Client,
    /// The server's bytes.
    Server,
    /// Each side: the test must pass for both.
    Both,
    /// Either side.
    Either,
}
