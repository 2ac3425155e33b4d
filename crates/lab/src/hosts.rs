//! A dispatcher and its units over loopback, as on hosts: links with certificates, encryption and
//! datagrams. Units have a thread each, and the dispatcher the calling one.

use std::hint::black_box;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::identity::{Authority, Identity, IdentityFiles};
use cluster::policies::{AppliedPolicy, NoShelf, PolicyReader, PolicyTexts, ReadPolicy};
use cluster::policy_digest;
use cluster::remote::{
    NewPolicy, NodeCommand, NodeInfo, NodeStatus, PolicyDesk, RemoteHandle, RemoteOptions, RolloutState,
    StartStatus, UNIT_IN_FLIGHT_MAX, remote_runner,
};
use cluster::unit::{UnitOptions, UnitOrder, UnitProcess};
use packet::{LinkType, Packet};
use protocol::dispatcher::{FlowStatus, Granularity};
use protocol::message::{FlowId, UnitId};
use runtime::elastic::{UNITS_MAX, UnitsConfig};
use runtime::operator::{
    FLOWS_LISTED_MAX, FLOWS_MIGRATED_MAX, MigrationTarget, OperatorHandle, OperatorRequest,
};
use runtime::{Assembly, Frame, Ingress, Output, Report, Runner};
use rustix::time::{ClockId, clock_gettime};
use sim::workload::Arriving;
use tempfile::TempDir;

/// Makes the functions of a node.
pub type ChainMaker = fn() -> Result<Assembly, String>;

/// Default length of a frame in bytes, without its checksum.
pub const FRAME_LEN: usize = 60;
/// Bytes of the longest frame, without its checksum.
const FRAME_MAX: usize = 1_514;
/// The chain's port inside.
pub const INSIDE: u16 = 0;
/// Its port outside.
const OUTSIDE: u16 = 1;
/// Offset of the flow's number and the seq in a frame.
pub const MARK: usize = 14 + 20 + 8;
/// Sleep between two looks at what has arrived, while the next packet is not there.
const POLL: Duration = Duration::from_micros(50);
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The packets of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct FlowSeen {
    sent: u32,
    left: u32,
    /// The highest seq that has left.
    highest: u32,
    /// Packets from outside that have left.
    replies: u32,
}

/// Faults of moves, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveFaults {
    /// Packets that have not left.
    pub lost: u64,
    /// Packets that left after a later one of their flow.
    pub reordered: u64,
    /// Packets that left more than once.
    pub duplicated: u64,
    /// Flows without their state: the firewall drops a reply, or the dispatcher counted it.
    pub broken: u64,
    /// Flows that pass although the policy refuses them.
    pub passed: u64,
}

/// The packets of all flows that left, and when those of one flow did.
struct Seen {
    flows: Vec<FlowSeen>,
    reordered: u64,
    /// Packets that have left since all had.
    left: u64,
    /// Packets of flow 0, with the time at which they left.
    timed: Vec<(u32, Instant)>,
}

impl Seen {
    /// Counts a frame that leaves by a port.
    fn count(&mut self, port: u16, frame: &[u8]) {
        let number = |at: usize| {
            let bytes = frame.get(at..).and_then(|rest| rest.first_chunk());
            u32::from_be_bytes(bytes.copied().unwrap_or_default())
        };
        let (flow, seq) = (number(MARK), number(MARK + 4));
        self.left += 1;
        if flow == 0 {
            self.timed.push((seq, Instant::now()));
        }
        let Some(seen) = self.flows.get_mut(flow as usize) else { return };
        if port == INSIDE {
            seen.replies += 1;
        } else {
            seen.left += 1;
            self.reordered += u64::from(seq < seen.highest);
            seen.highest = seen.highest.max(seq);
        }
    }
}

impl Output for Seen {
    type Error = std::convert::Infallible;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), Self::Error> {
        self.count(port, packet.data());
        Ok(())
    }

    fn alert(&mut self, _function: &str, _alert: &nf::Alert) -> Result<(), Self::Error> {
        Ok(())
    }

    fn event(&mut self, _function: &str, _event: nf::Event<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    fn flow(&mut self, _report: &nf::FlowReport, _now_ns: u64) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// A unit on its thread.
struct HostUnit {
    name: String,
    address: String,
    order: Arc<UnitOrder>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for HostUnit {
    fn drop(&mut self) {
        self.order.aborts.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // That it failed was seen by the dispatcher.
        }
    }
}

/// Wall time and CPU time, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeSpent {
    /// Wall time.
    pub wall_ns: f64,
    /// CPU time of dispatcher and units.
    pub cpu_ns: f64,
    /// CPU time of the dispatcher, which is that of the calling thread.
    pub dispatcher_ns: f64,
}

impl TimeSpent {
    /// Returns the CPU time of the units.
    pub fn units_ns(&self) -> f64 {
        self.cpu_ns - self.dispatcher_ns
    }
}

/// A dispatcher and its units; one unit has all flows.
pub struct Hosts {
    runner: Runner,
    nodes: RemoteHandle,
    operator: OperatorHandle,
    seen: Seen,
    began: Instant,
    next: u32,
    /// Bytes of the frames that are sent, in turn, and how many have been.
    lengths: &'static [usize],
    frames: usize,
    /// The frame that is sent.
    frame: [u8; FRAME_MAX],
    /// Packets that have arrived since all had left.
    arrived: u64,
    units: Vec<HostUnit>,
    certificates: Option<TempDir>,
    /// Flows that the policy refuses.
    refused: Range<u32>,
}

impl Hosts {
    /// Starts a dispatcher and this many units, and begins this many flows.
    ///
    /// # Errors
    ///
    /// If a node cannot start.
    pub fn start(units: u16, flows: u32, chain: ChainMaker) -> Result<Hosts, String> {
        Hosts::start_to_update(units, flows, [chain; 2])
    }

    /// The same with functions that are [updated](Hosts::update) later: the first, and the next.
    ///
    /// # Errors
    ///
    /// If a node cannot start.
    pub fn start_to_update(units: u16, flows: u32, chains: [ChainMaker; 2]) -> Result<Hosts, String> {
        let mut hosts = Hosts::on_units(of_flows(units), units, flows, chains)?;
        hosts.begin();
        Ok(hosts)
    }

    /// Has packets arrive in real time, with the time stamps that they have, and returns the report
    /// of the run.
    ///
    /// # Errors
    ///
    /// If a node cannot start.
    pub fn replay(config: UnitsConfig, packets: &[Arriving], chain: ChainMaker) -> Result<Report, String> {
        let flows = packets.iter().map(|packet| packet.flow + 1).max().unwrap_or_default();
        let mut hosts = Hosts::on_units(config, config.units_max, flows, [chain; 2])?;
        hosts.await_nodes(config.units_max)?;
        hosts.began = Instant::now();
        for packet in packets {
            while (hosts.began.elapsed().as_nanos() as u64) < packet.time_ns {
                hosts.poll();
                std::thread::sleep(POLL);
            }
            let Arriving { time_ns, flow, len } = *packet;
            let seen = &mut hosts.seen.flows[flow as usize];
            seen.sent += 1;
            let (seq, bytes) = (seen.sent, (len as usize).clamp(FRAME_LEN, FRAME_MAX));
            write_frame(&mut hosts.frame[..bytes], INSIDE, flow, seq);
            let data = &hosts.frame[..bytes];
            let (timestamp_ns, wire_len) = (time_ns + 1, bytes as u32);
            let frame = Frame { timestamp_ns, link: LinkType::Ethernet, wire_len, data };
            let Ok(()) = hosts.runner.receive(frame, Ingress::Port(INSIDE), &mut hosts.seen);
        }
        let Ok(report) = hosts.runner.finish(&mut hosts.seen);
        Ok(report)
    }

    /// Waits until this many nodes have connected.
    fn await_nodes(&mut self, count: u16) -> Result<(), String> {
        let began = Instant::now();
        let is_there = |node: &NodeInfo| node.status != NodeStatus::Connecting;
        while self.nodes.status().into_iter().filter(is_there).count() < usize::from(count) {
            if began.elapsed() > PATIENCE {
                return Err(format!("nodes are missing: {:?}", self.nodes.status()));
            }
            self.poll();
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Starts a dispatcher and this many nodes, with functions and the next ones.
    fn on_units(
        config: UnitsConfig,
        nodes: u16,
        flows: u32,
        [chain, next]: [ChainMaker; 2],
    ) -> Result<Hosts, String> {
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let authority = Authority::open(folder.path(), None).map_err(|error| error.to_string())?;
        let identity = |name: &str| {
            authority.issue_named(folder.path(), name).map_err(|error| error.to_string())?;
            let files = IdentityFiles::in_folder(folder.path(), name);
            Identity::read(name, &files).map_err(|error| error.to_string())
        };
        let start = |number| {
            let name = format!("unit-{number}");
            start_unit(&name, identity(&name)?, [chain, next])
        };
        let units = (0..nodes).map(start).collect::<Result<Vec<_>, String>>()?;
        let (nodes, control) = RemoteHandle::new();
        for HostUnit { name, address, .. } in &units {
            nodes.send(NodeCommand::Add { name: name.clone(), address: address.clone() });
        }
        let options = RemoteOptions {
            identity: identity("dispatcher")?,
            policy: PolicyDesk::fixed(AppliedPolicy::default()),
            incarnation: 1,
            control,
            dispatchers: Vec::new(),
            listening: None,
        };
        let began = Instant::now();
        let is_late = |_: &StartStatus| began.elapsed() > PATIENCE;
        let started = remote_runner(chain()?, "hosts", config, options, Some(&is_late));
        let runner = started.map_err(|error| error.to_string())?;
        Ok(Hosts::over(runner, nodes, flows, units, Some(folder)))
    }

    /// Begins this many flows on the calling thread, which runs the chain itself.
    ///
    /// # Errors
    ///
    /// If the chain cannot be made.
    pub fn inline(flows: u32, chain: ChainMaker) -> Result<Hosts, String> {
        let (nodes, _) = RemoteHandle::new();
        let mut hosts = Hosts::over(Runner::new(chain()?, "inline"), nodes, flows, Vec::new(), None);
        hosts.begin();
        Ok(hosts)
    }

    fn over(
        mut runner: Runner,
        nodes: RemoteHandle,
        flows: u32,
        units: Vec<HostUnit>,
        certificates: Option<TempDir>,
    ) -> Hosts {
        let operator = runner.open_to_operators();
        let seen = Seen {
            flows: vec![FlowSeen::default(); flows as usize],
            reordered: 0,
            left: 0,
            timed: Vec::new(),
        };
        Hosts {
            runner,
            nodes,
            operator,
            seen,
            began: Instant::now(),
            next: 0,
            lengths: &[FRAME_LEN],
            frames: 0,
            frame: [0; FRAME_MAX],
            arrived: 0,
            units,
            certificates,
            refused: 0..0,
        }
    }

    /// Begins all flows.
    fn begin(&mut self) {
        for flow in 0..self.seen.flows.len() as u32 {
            self.send(flow);
        }
        self.settle();
    }

    /// Sends frames of these lengths in turn, in bytes without checksum: 60 to 1,514.
    pub fn set_lengths(&mut self, lengths: &'static [usize]) {
        self.lengths = lengths;
    }

    /// Sends a packet of a flow, and returns its seq.
    pub fn send(&mut self, flow: u32) -> u32 {
        let seen = &mut self.seen.flows[flow as usize];
        seen.sent += 1;
        let seq = seen.sent;
        self.receive(INSIDE, flow, seq);
        seq
    }

    /// Has a frame arrive at a port. Waits while too many packets are on their way: the
    /// dispatcher would drop some.
    fn receive(&mut self, port: u16, flow: u32, seq: u32) {
        if self.arrived.saturating_sub(self.seen.left) >= UNIT_IN_FLIGHT_MAX / 2 {
            self.settle();
            (self.arrived, self.seen.left) = (0, 0);
        }
        self.arrived += 1;
        let len = self.write_frame(port, flow, seq);
        let data = &self.frame[..len];
        let timestamp_ns = self.began.elapsed().as_nanos() as u64 + 1;
        let frame = Frame { timestamp_ns, link: LinkType::Ethernet, wire_len: data.len() as u32, data };
        let Ok(()) = self.runner.receive(frame, Ingress::Port(port), &mut self.seen);
    }

    /// Writes the next frame, and returns its length.
    fn write_frame(&mut self, port: u16, flow: u32, seq: u32) -> usize {
        let len = self.lengths[self.frames % self.lengths.len()].clamp(FRAME_LEN, FRAME_MAX);
        self.frames += 1;
        write_frame(&mut self.frame[..len], port, flow, seq);
        len
    }

    /// Does the overhead of [`send_some`](Hosts::send_some): makes frames, and counts them as sent
    /// and left.
    pub fn make_some(&mut self, count: u32) {
        for _ in 0..count {
            let seen = &mut self.seen.flows[self.next as usize];
            seen.sent += 1;
            let (flow, seq) = (self.next, seen.sent);
            let len = self.write_frame(INSIDE, flow, seq);
            black_box(self.began.elapsed());
            self.seen.count(OUTSIDE, black_box(&self.frame[..len]));
            self.next = (self.next + 1) % self.seen.flows.len() as u32;
        }
        self.seen.left = 0;
    }

    /// Sends the next packets of all flows in turn.
    pub fn send_some(&mut self, count: u32) {
        for _ in 0..count {
            self.send(self.next);
            self.next = (self.next + 1) % self.seen.flows.len() as u32;
        }
        self.poll();
    }

    /// Sends what waits, and takes what has arrived.
    pub fn poll(&mut self) {
        let Ok(()) = self.runner.flush(&mut self.seen);
    }

    /// Polls until no packet is pending.
    fn poll_all(&mut self) {
        loop {
            self.poll();
            if !self.runner.has_pending() {
                return;
            }
        }
    }

    /// Waits until no packet is pending.
    pub fn settle(&mut self) {
        let Ok(()) = self.runner.settle(&mut self.seen);
    }

    /// Sends a packet of each flow, and waits until all have left.
    pub fn round(&mut self) {
        self.send_some(self.seen.flows.len() as u32);
        self.settle();
    }

    /// Returns the live flows.
    ///
    /// # Errors
    ///
    /// If the dispatcher does not answer.
    pub fn flows(&mut self) -> Result<Vec<FlowStatus>, String> {
        let (mut flows, mut from) = (Vec::new(), Some(0));
        while let Some(begin) = from {
            let range = begin..begin + FLOWS_LISTED_MAX;
            let list = self.ask(|reply| OperatorRequest::Flows(range, reply))?;
            flows.extend(list.flows);
            from = list.next;
        }
        Ok(flows)
    }

    /// Migrates flows to a unit, batch by batch, while all flows send: 64 packets between two
    /// batches.
    ///
    /// # Errors
    ///
    /// If one does not migrate.
    pub fn migrate(&mut self, flows: &[FlowId], to: UnitId) -> Result<(), String> {
        for batch in flows.chunks(FLOWS_MIGRATED_MAX) {
            let target = |&flow| MigrationTarget { flow, from: None, to: Some(to) };
            let targets = batch.iter().map(target).collect();
            for moved in self.ask(|reply| OperatorRequest::Migrate(targets, reply))? {
                moved.map_err(|error| error.to_string())?;
            }
            if flows.len() > 1 {
                self.send_some(64);
            }
        }
        Ok(())
    }

    /// Copies a flow's state to the unit that it will migrate to, and waits until it is there.
    ///
    /// # Errors
    ///
    /// If it does not arrive.
    pub fn copy(&mut self, flow: FlowId, to: UnitId) -> Result<(), String> {
        let targets = vec![MigrationTarget { flow, from: None, to: Some(to) }];
        let copied = self.ask(|reply| OperatorRequest::Copy(targets, reply))?;
        if copied.late == 0 { Ok(()) } else { Err("a copy of a state did not come".to_owned()) }
    }

    /// Drains the node that has all flows, while all flows send, until its unit has stopped.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    pub fn drain(&mut self) -> Result<(), String> {
        let unit = self.flows()?.first().ok_or("there are no flows")?.owner;
        // The nodes' state is shown from time to time.
        let name = self.await_node(|node| node.unit == Some(unit))?;
        self.nodes.send(NodeCommand::Drain { name: name.clone() });
        let has_flows =
            |status| !matches!(status, NodeStatus::Drained | NodeStatus::Spare | NodeStatus::Connecting);
        self.await_node(|node| node.name == name && !has_flows(node.status))?;
        Ok(())
    }

    /// Gives all nodes the next functions, one by one, while all flows send. They refuse these
    /// flows.
    ///
    /// # Errors
    ///
    /// If one does not get it.
    pub fn update(&mut self, next: ChainMaker, refused: Range<u32>) -> Result<(), String> {
        self.refused = refused;
        let texts = PolicyTexts { name: "next".to_owned(), text: "next".to_owned(), files: Vec::new() };
        let (digest, graph) = (policy_digest([texts.text.as_str()]), next()?.graph);
        self.nodes.apply(NewPolicy { texts, digest, graph }).ok_or("the dispatcher has ended")?;
        let began = Instant::now();
        loop {
            match self.nodes.rollout().map(|rollout| rollout.state) {
                Some(RolloutState::Done) => return Ok(()),
                Some(RolloutState::Failed(reason)) => return Err(reason),
                _ if began.elapsed() > PATIENCE => {
                    return Err(format!("the update takes too long: {:?}", self.nodes.rollout()));
                }
                _ => self.send_some(64),
            }
            let now_ns = self.began.elapsed().as_nanos() as u64 + 1;
            let Ok(()) = self.runner.handle_timeout(now_ns, &mut self.seen);
            std::thread::sleep(POLL);
        }
    }

    /// Stops all nodes, and starts others with the next functions in their place. They refuse these
    /// flows.
    ///
    /// # Errors
    ///
    /// If one cannot start.
    pub fn restart(&mut self, units: u16, next: ChainMaker, refused: Range<u32>) -> Result<(), String> {
        self.refused = refused;
        let Ok(_) = self.runner.finish(&mut self.seen);
        self.units.clear();
        let Hosts { runner, nodes, operator, units, certificates, .. } =
            Hosts::on_units(of_flows(units), units, 0, [next; 2])?;
        (self.runner, self.nodes, self.operator) = (runner, nodes, operator);
        (self.units, self.certificates) = (units, certificates);
        Ok(())
    }

    /// Sends packets until there is such a node, and returns its name.
    fn await_node(&mut self, is_it: impl Fn(&NodeInfo) -> bool) -> Result<String, String> {
        let began = Instant::now();
        loop {
            if let Some(node) = self.nodes.status().into_iter().find(|node| is_it(node)) {
                return Ok(node.name);
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("no node is as it must be: {:?}", self.nodes.status()));
            }
            self.send_some(64);
        }
    }

    /// Sends a reply to each flow, and returns all faults so far.
    ///
    /// # Errors
    ///
    /// If the dispatcher does not answer.
    pub fn faults(&mut self) -> Result<MoveFaults, String> {
        self.seen.flows.iter_mut().for_each(|flow| flow.replies = 0);
        for flow in 0..self.seen.flows.len() as u32 {
            self.receive(OUTSIDE, flow, 0);
        }
        self.settle();
        let passed = self.refused_that_pass();
        let status = self.ask(OperatorRequest::Status)?.dispatcher.unwrap_or_default();
        let mut faults = MoveFaults { reordered: self.seen.reordered, passed, ..MoveFaults::default() };
        faults.broken = status.flows_lost + status.states_refused;
        for (flow, FlowSeen { sent, left, replies, .. }) in (0..).zip(&self.seen.flows) {
            faults.duplicated += u64::from(left.saturating_sub(*sent));
            if self.refused.contains(&flow) {
                continue;
            }
            faults.lost += u64::from(sent.saturating_sub(*left));
            faults.broken += u64::from(*replies == 0);
        }
        Ok(faults)
    }

    /// Sends a packet of each flow that the policy refuses, and returns how many flows of them have
    /// let it, or the reply before it, pass.
    fn refused_that_pass(&mut self) -> u64 {
        let flows = self.refused.start..self.refused.end.min(self.seen.flows.len() as u32);
        let left = |hosts: &Hosts, flow: u32| hosts.seen.flows[flow as usize].left;
        let before: Vec<u32> = flows.clone().map(|flow| left(self, flow)).collect();
        for flow in flows.clone() {
            self.send(flow);
        }
        self.settle();
        let has_passed = |(flow, before): (u32, u32)| {
            left(self, flow) > before || self.seen.flows[flow as usize].replies > 0
        };
        flows.zip(before).filter(|&of| has_passed(of)).count() as u64
    }

    /// Sends packets of flow 0, and returns the time that each took from port to port, in ns. In a
    /// burst, three packets of other flows follow each of them; otherwise each waits until the
    /// previous one has left.
    ///
    /// # Errors
    ///
    /// If one does not leave.
    pub fn times_ns(&mut self, packets: u32, is_burst: bool) -> Result<Vec<f64>, String> {
        self.seen.timed.clear();
        let mut sent = Vec::new();
        for _ in 0..packets {
            let began = Instant::now();
            sent.push((self.send(0), began));
            if is_burst {
                for _ in 0..3 {
                    self.next = self.next.max(1); // Not flow 0.
                    self.send(self.next);
                    self.next = (self.next + 1) % self.seen.flows.len() as u32;
                }
                self.poll();
            } else {
                self.poll_all();
            }
        }
        self.poll_all();
        let timed = &self.seen.timed;
        let took = sent.iter().map(|(sent, began)| {
            let (_, left) = timed.iter().find(|(seq, _)| seq == sent).ok_or("a packet has not left")?;
            Ok(left.duration_since(*began).as_nanos() as f64)
        });
        took.collect()
    }

    /// Does something, and returns the time that it took.
    ///
    /// # Errors
    ///
    /// Those of what it does.
    pub fn timed(&mut self, run: impl FnOnce(&mut Hosts) -> Result<(), String>) -> Result<TimeSpent, String> {
        let clocks = || (cpu_ns(ClockId::ProcessCPUTime), thread_cpu_ns());
        let (began, before) = (Instant::now(), clocks());
        run(self)?;
        let (wall_ns, after) = (began.elapsed().as_nanos() as f64, clocks());
        Ok(TimeSpent { wall_ns, cpu_ns: after.0 - before.0, dispatcher_ns: after.1 - before.1 })
    }

    /// Sends a request to the dispatcher, which answers between two batches.
    fn ask<T: Send + 'static>(
        &mut self,
        request: impl FnOnce(runtime::operator::Reply<T>) -> OperatorRequest,
    ) -> Result<T, String> {
        let (sender, answers) = channel();
        // If this fails, the caller has ended.
        let reply = Box::new(move |answer| drop(sender.send(answer)));
        self.operator.send(request(reply)).map_err(|error| error.to_string())?;
        let began = Instant::now();
        loop {
            self.poll();
            if let Ok(answer) = answers.try_recv() {
                return answer.map_err(|error| error.to_string());
            }
            if began.elapsed() > PATIENCE {
                return Err("the dispatcher does not answer".to_owned());
            }
        }
    }
}

/// Returns the configuration of this many units, with assignment of whole flows.
pub fn of_flows(units: u16) -> UnitsConfig {
    UnitsConfig {
        mode: Granularity::Flow,
        units_min: units,
        units_max: UNITS_MAX, // A node that comes back is another unit.
        capacity_bps: 1_000_000_000_000,
        is_live: true,
        ..UnitsConfig::as_published()
    }
}

/// Returns the CPU time of the calling thread, in ns.
pub fn thread_cpu_ns() -> f64 {
    cpu_ns(ClockId::ThreadCPUTime)
}

fn cpu_ns(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Reads any policy as the next functions.
struct ChainReader {
    next: ChainMaker,
    texts: Option<PolicyTexts>,
}

impl PolicyReader for ChainReader {
    fn begin(&mut self, texts: PolicyTexts) {
        self.texts = Some(texts);
    }

    fn poll(&mut self) -> Option<Result<ReadPolicy, String>> {
        let (texts, next) = (self.texts.take()?, self.next);
        let make = Box::new(move |_| Ok(next()?.graph));
        Some(Ok(ReadPolicy { digest: policy_digest([texts.text.as_str()]), make }))
    }
}

fn start_unit(name: &str, identity: Identity, [chain, next]: [ChainMaker; 2]) -> Result<HostUnit, String> {
    let order = Arc::new(UnitOrder::default());
    let (sender, address) = channel();
    let ordered = Arc::clone(&order);
    let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
    let run = move || {
        let options = UnitOptions {
            listening,
            identity,
            policy: AppliedPolicy::default(),
            shelf: Box::<NoShelf>::default(),
            incarnation: 1,
            make: Box::new(move |_| Ok(chain()?.graph)),
            reader: Box::new(ChainReader { next, texts: None }),
            effects: Box::new(|_, _| {}),
        };
        if let Ok(mut unit) = UnitProcess::start(options)
            && sender.send(unit.address().to_string()).is_ok()
        {
            unit.run(&ordered);
        }
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    let thread = Some(thread.map_err(|error| error.to_string())?);
    let address = address.recv().map_err(|_| format!("{name} cannot listen"))?;
    Ok(HostUnit { name: name.to_owned(), address, order, thread })
}

/// Writes a datagram of a flow that arrives at this port, as long as the frame, which has at least
/// [`FRAME_LEN`] bytes.
pub fn write_frame(frame: &mut [u8], port: u16, flow: u32, seq: u32) {
    let len = frame.len();
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    let [_, high, middle, low] = flow.to_be_bytes();
    let (client, server) = ([10, high, middle, low], [198, 18, 0, 1]);
    let (from, to, ports) = match port {
        INSIDE => (client, server, [0x9c, 0x40, 0, 9]),
        _ => (server, client, [0, 9, 0x9c, 0x40]),
    };
    frame[26..30].copy_from_slice(&from);
    frame[30..34].copy_from_slice(&to);
    frame[34..38].copy_from_slice(&ports);
    frame[38..40].copy_from_slice(&((len - 34) as u16).to_be_bytes());
    frame[MARK..MARK + 4].copy_from_slice(&flow.to_be_bytes());
    frame[MARK + 4..MARK + 8].copy_from_slice(&seq.to_be_bytes());
    let words = frame[14..34].chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::{REFUSED, chain, first, next};

    #[test]
    fn nodes_are_updated_without_faults() {
        let mut hosts = Hosts::start(3, 20, chain).unwrap();
        hosts.update(chain, 0..0).unwrap();
        assert_eq!(hosts.faults().unwrap(), MoveFaults::default());
        hosts.restart(3, chain, 0..0).unwrap();
        assert_eq!(hosts.faults().unwrap(), MoveFaults { broken: 20, ..MoveFaults::default() });
    }

    #[test]
    fn next_version_takes_states_over_and_refuses_flows() {
        let flows = REFUSED.start + 4;
        let mut hosts = Hosts::start_to_update(3, flows, [first, next]).unwrap();
        hosts.update(next, REFUSED).unwrap();
        hosts.round();
        assert_eq!(hosts.faults().unwrap(), MoveFaults::default());
        // The first version has no such rules, and the next one refuses no others.
        let mut hosts = Hosts::start_to_update(3, flows, [first; 2]).unwrap();
        hosts.update(first, REFUSED).unwrap();
        assert_eq!(hosts.faults().unwrap(), MoveFaults { passed: 4, ..MoveFaults::default() });
        let mut hosts = Hosts::start_to_update(3, flows, [first, next]).unwrap();
        hosts.update(next, 0..0).unwrap();
        hosts.round();
        let faults = hosts.faults().unwrap();
        assert!(faults.lost >= 4 && faults.broken == 4, "{faults:?}");
        // A state that has not counted a packet does not let the next one pass.
        hosts.seen.flows[0].sent += 1;
        hosts.round();
        assert_eq!(hosts.faults().unwrap().lost, faults.lost + 4 + 2);
    }

    #[test]
    fn flows_move_without_faults_and_faults_are_seen() {
        let mut hosts = Hosts::start(2, 20, chain).unwrap();
        let flows = hosts.flows().unwrap();
        assert_eq!(flows.len(), 20);
        let ids: Vec<FlowId> = flows.iter().map(|flow| flow.flow).collect();
        let to = UnitId(flows[0].owner.0 ^ 1);
        hosts.migrate(&ids, to).unwrap();
        hosts.round();
        assert!(hosts.flows().unwrap().iter().all(|flow| flow.owner == to));
        assert_eq!(hosts.times_ns(4, true).unwrap().len(), 4);
        hosts.drain().unwrap();
        hosts.round();
        assert!(hosts.flows().unwrap().iter().all(|flow| flow.owner != to));
        assert_eq!(hosts.faults().unwrap(), MoveFaults::default());

        // Had a packet been lost, and another left twice.
        hosts.seen.flows[3].sent += 1;
        hosts.seen.flows[4].left += 1;
        let expected = MoveFaults { lost: 1, duplicated: 1, ..MoveFaults::default() };
        assert_eq!(hosts.faults().unwrap(), expected);
    }
}
