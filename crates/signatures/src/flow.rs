//! What rules ask of flows, and the marks that they leave on flows and addresses.

use crate::number::Comparison;

/// `flow`: where in a flow a packet is to be. Nothing is asked where a field is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Which way the packet goes within its flow.
    pub direction: Option<Way>,
    /// The state of the connection.
    pub state: Option<State>,
    /// Whether what is looked at was put together from a TCP stream.
    pub stream: Option<Only>,
    /// Whether the packet was put together from fragments.
    pub fragments: Option<Only>,
}

/// Which way a packet goes in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// `to_server`, `from_client`: from who opened the flow.
    ToServer,
    /// `to_client`, `from_server`: to who opened the flow.
    ToClient,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// `established`: TCP after its handshake; anything else after packets went both ways.
    Established,
    /// `not_established`.
    NotEstablished,
    /// `stateless`: in a flow, in whatever state.
    Stateless,
}

/// Whether only what was put together, or only what was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Only {
    /// `only_stream`, `only_frag`.
    Assembled,
    /// `no_stream`, `no_frag`.
    Plain,
}

/// `flowbits`: a named mark of the flow. Names are told apart by case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flowbit {
    /// A test: any of the marks is set (`isset,a|b`).
    IsSet(Vec<String>),
    /// A test: any of the marks is not set (`isnotset,a|b`).
    IsNotSet(Vec<String>),
    /// Set the marks.
    Set(Vec<String>),
    /// Take the marks away.
    Unset(Vec<String>),
    /// Set the marks if not set, else take them away.
    Toggle(Vec<String>),
}

/// `xbits`, `hostbits`: a named mark of an address, of a pair of addresses, or of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Xbit {
    /// What to do.
    pub operation: XbitOperation,
    /// The mark's name.
    pub name: String,
    /// Whose mark it is.
    pub track: XbitTrack,
    /// For how many seconds it stays set; [`DEFAULT_XBIT_SECONDS`] if the rule does not say.
    pub expire_seconds: u32,
}

/// How long a mark of an address stays set if the rule does not say, in seconds.
pub const DEFAULT_XBIT_SECONDS: u32 = 30;

/// What a rule does with a mark of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XbitOperation {
    /// Test that it is set.
    IsSet,
    /// Test that it is not set.
    IsNotSet,
    /// Set it.
    Set,
    /// Take it away.
    Unset,
    /// Set it if not set, else take it away.
    Toggle,
}

/// Whose mark it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XbitTrack {
    /// The packet's source.
    Source,
    /// The packet's destination.
    Destination,
    /// The two together, whichever way.
    Pair,
    /// The transaction of the application protocol.
    Transaction,
}

/// `flowint`: a named number of the flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flowint {
    /// The number's name.
    pub name: String,
    /// What to do with it.
    pub operation: FlowintOperation,
}

/// What a rule does with a number of the flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowintOperation {
    /// Test that it has a value.
    IsSet,
    /// Test that it has none.
    IsNotSet,
    /// Give it the value.
    Set(FlowintValue),
    /// Add to it.
    Add(FlowintValue),
    /// Subtract from it.
    Subtract(FlowintValue),
    /// Test it; the numbers of the comparison are what [`FlowintValue`] stands for.
    Test(FlowintTest, FlowintValue),
}

/// How two numbers are to compare.
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

/// A number, or another number of the flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowintValue {
    /// The number.
    Number(u32),
    /// The name of the other.
    Name(String),
}

/// `stream_size`: how many bytes of a TCP stream were seen so far, by sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamSize {
    /// Of which side.
    pub side: StreamSide,
    /// How many.
    pub bytes: Comparison<u32>,
}

/// Whose bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamSide {
    /// What the client sent.
    Client,
    /// What the server sent.
    Server,
    /// Each of the two: the test is to hold for both.
    Both,
    /// Any of the two.
    Either,
}
