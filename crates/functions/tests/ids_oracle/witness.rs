//! A function that records a graph's view of each packet: all that the oracle knows of the traffic.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use graph::{Graph, Options};
use nf::stage::load;
use nf::stream::StreamEventKind;
use nf::{
    Access, Affinity, Context, Descriptor, Maturity, NetworkFunction, PacketView, Scaling, Setup, Verdict,
};
use packet::{Direction, LinkType, PacketClass, PacketPool};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An address and a port; 0 without ports.
pub type End = (IpAddr, u16);

/// A packet as seen by a function of a graph.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its number in order of arrival.
    pub sequence: u64,
    /// Its arrival time.
    pub time_ns: u64,
    /// Its flow's unique number.
    pub flow: u64,
    /// Its direction within the flow.
    pub direction: Direction,
    /// The sender.
    pub source: End,
    /// The receiver.
    pub destination: End,
    /// The IP protocol number.
    pub protocol: u8,
    /// 4 or 6.
    pub version: u8,
    /// Relation to its flow.
    pub class: PacketClass,
    /// From the IP header on.
    pub network: Vec<u8>,
    /// From the transport header on.
    pub transport: Vec<u8>,
    /// The transport's payload.
    pub payload: Vec<u8>,
    /// Its stream events, in order.
    pub brought: Vec<Brought>,
}

impl Observed {
    /// Returns the packet as seen with client and server swapped.
    pub fn turned(&self) -> Observed {
        let mut turned = self.clone();
        turned.direction = turned.direction.other();
        turned.brought.iter_mut().for_each(|one| one.direction = one.direction.other());
        turned
    }
}

/// A stream event of a packet.
#[derive(Clone, Debug)]
pub struct Brought {
    /// The direction of the stream.
    pub direction: Direction,
    /// The offset in the stream.
    pub offset: u64,
    /// The event.
    pub what: What,
}

/// See [`StreamEventKind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Restart,
    Data(Vec<u8>),
    Gap(u64),
    Finished,
    Reset,
}

/// A frame to send.
#[derive(Clone, Debug)]
pub struct Frame {
    pub time_ns: u64,
    pub link: LinkType,
    pub wire_len: u32,
    pub bytes: Vec<u8>,
}

impl Observed {
    /// Returns whether it brought such an event.
    pub fn brings(&self, is: impl Fn(&What) -> bool) -> bool {
        self.brought.iter().any(|brought| is(&brought.what))
    }
}

thread_local! {
    static OBSERVED: RefCell<Vec<Observed>> = const { RefCell::new(Vec::new()) };
    static FLOWS: Cell<u64> = const { Cell::new(0) };
}

/// Records what it sees. Place it before the function under test, so that it sees packets that are
/// dropped.
pub struct Witness;

/// The flow's number; 0 before it is assigned.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Numbered {
    number: u64,
}

impl Witness {
    /// Takes everything that the witnesses of this thread recorded.
    pub fn take() -> Vec<Observed> {
        OBSERVED.take()
    }

    /// Returns the view of these frames by a graph of just a witness.
    pub fn watch(frames: &[Frame]) -> Vec<Observed> {
        drop(Witness::take());
        let flows_max = FLOWS_MAX.min(16 + frames.len() as u32);
        let options = Options { flows_max, ..Options::default() };
        let mut graph =
            Graph::new(vec![load::<Witness>((), Setup::new(1, flows_max)).unwrap()], options).unwrap();
        pass(&mut graph, frames);
        Witness::take()
    }
}

/// Maximum flows of a test's graph.
pub const FLOWS_MAX: u32 = 1 << 14;

/// Sends frames through a graph.
pub fn pass(graph: &mut Graph, frames: &[Frame]) {
    let mut pool = PacketPool::new(256);
    let (mut batch, mut out) = (Vec::new(), Vec::new());
    for frame in frames {
        let mut packet = pool.take(&frame.bytes).unwrap();
        let meta = packet.meta_mut();
        (meta.transit.timestamp_ns, meta.wire_len, meta.link) = (frame.time_ns, frame.wire_len, frame.link);
        batch.push(packet);
        graph.process(&mut batch, &mut out, &mut pool);
        pool.give_all(&mut out);
    }
}

impl NetworkFunction for Witness {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "witness",
        summary: "A function of a test.",
        maturity: Maturity::Experimental,
        state_version: 1,
        payload: Access::Read,
        affinity: Affinity::Flow,
        scaling: Scaling::Single,
        stream: true,
        cycles_per_packet: 10,
        ..Descriptor::DEFAULT
    };
    type Config = ();
    type State = Numbered;

    fn new(_: (), _: &mut Setup) -> Result<Witness, ConfigError> {
        Ok(Witness)
    }

    fn process(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut Numbered,
        context: &mut Context<'_>,
    ) -> Verdict {
        if state.number == 0 {
            state.number = FLOWS.get() + 1;
            FLOWS.set(state.number);
        }
        let (flow, meta, ends) = (context.flow(), packet.meta(), packet.ends());
        let observed = Observed {
            sequence: flow.sequence,
            time_ns: flow.now_ns,
            flow: state.number,
            direction: flow.direction,
            source: (ends.0.addr.ip(), ends.0.port),
            destination: (ends.1.addr.ip(), ends.1.port),
            protocol: meta.protocol,
            version: meta.version,
            class: meta.class,
            network: packet.network().to_vec(),
            transport: packet.transport().to_vec(),
            payload: packet.payload().to_vec(),
            brought: packet.stream().map(brought).collect(),
        };
        OBSERVED.with_borrow_mut(|all| all.push(observed));
        Verdict::Forward
    }
}

fn brought(event: nf::stream::StreamEvent<'_>) -> Brought {
    let what = match event.kind {
        StreamEventKind::Restart => What::Restart,
        StreamEventKind::Data(bytes) => What::Data(bytes.to_vec()),
        StreamEventKind::Gap(len) => What::Gap(len),
        StreamEventKind::Finished => What::Finished,
        StreamEventKind::Reset => What::Reset,
    };
    Brought { direction: event.direction, offset: event.offset, what }
}
