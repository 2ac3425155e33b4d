//! A function that records the TCP streams of its flows in order.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;

use graph::{Graph, Options};
use nf::stage::load;
use nf::stream::StreamEventKind;
use nf::{
    Access, Affinity, Context, Descriptor, Maturity, NetworkFunction, PacketView, Scaling, Setup, Verdict,
};
use packet::{Direction, Endpoint, FlowKey, PacketPool};
use values::ConfigError;

use crate::traces::Capture;

/// The endpoints of a connection, the sender of the stream first.
pub type Ends = (SocketAddr, SocketAddr);

/// A recorded connection.
pub struct Connection {
    /// The sender of the first packet comes first.
    pub ends: Ends,
    pub heard: Vec<(Direction, Heard)>,
}

/// A recorded event of one direction.
pub enum Heard {
    Bytes(Vec<u8>),
    Gap(u64),
    End,
}

/// All recorded connections, and the newest of each flow.
#[derive(Default)]
struct All {
    connections: Vec<Connection>,
    newest: HashMap<FlowKey, usize>,
}

impl All {
    fn begin(&mut self, flow: FlowKey, ends: Ends) {
        self.newest.insert(flow, self.connections.len());
        self.connections.push(Connection { ends, heard: Vec::new() });
    }
}

thread_local! {
    /// Recordings of the function below.
    static HEARD: RefCell<All> = RefCell::default();
}

/// Records all streams of its flows.
struct Recorder;

impl NetworkFunction for Recorder {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "recorder",
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
    type State = [u8; 8];

    fn new(_: (), _: &mut Setup) -> Result<Recorder, ConfigError> {
        Ok(Recorder)
    }

    fn process(&self, packet: &mut PacketView<'_>, _: &mut [u8; 8], context: &mut Context<'_>) -> Verdict {
        let flow = context.flow();
        if flow.key.protocol != packet::parse::protocol::TCP {
            return Verdict::Forward;
        }
        let (first, second) = flow.key.ends(flow.reversed);
        let ends = (address(first), address(second));
        HEARD.with_borrow_mut(|all| {
            if flow.seq == 1 {
                all.begin(flow.key, ends);
            }
            for event in packet.stream() {
                let heard = match event.kind {
                    StreamEventKind::Restart => {
                        all.begin(flow.key, ends);
                        continue;
                    }
                    StreamEventKind::Data(bytes) => Heard::Bytes(bytes.to_vec()),
                    StreamEventKind::Gap(len) => Heard::Gap(len),
                    StreamEventKind::Finished => Heard::End,
                    StreamEventKind::Reset => continue,
                };
                let newest = all.newest.get(&flow.key).copied();
                if let Some(connection) = newest.and_then(|newest| all.connections.get_mut(newest)) {
                    connection.heard.push((event.direction, heard));
                }
            }
        });
        Verdict::Forward
    }
}

fn address(end: Endpoint) -> SocketAddr {
    SocketAddr::new(end.addr.ip(), end.port)
}

/// Returns all connections of a capture in order of their starts.
pub fn connections(capture: &Capture) -> Vec<Connection> {
    let options = Options { flows_max: 1 << 17, inner: true, ..Options::default() };
    let mut graph = Graph::new(vec![load::<Recorder>((), Setup::new(1, 1 << 17)).unwrap()], options).unwrap();
    let mut pool = PacketPool::new(8192); // Pending fragments use buffers, too.
    let (mut batch, mut out) = (Vec::new(), Vec::new());
    for record in &capture.records {
        let Some(mut packet) = pool.take(&record.data) else { continue };
        let meta = packet.meta_mut();
        (meta.transit.timestamp_ns, meta.wire_len, meta.link) =
            (record.timestamp_ns, record.wire_len, record.link);
        batch.push(packet);
        if batch.len() == 16 {
            graph.process(&mut batch, &mut out, &mut pool);
            pool.give_all(&mut out);
        }
    }
    graph.process(&mut batch, &mut out, &mut pool);
    HEARD.take().connections
}
