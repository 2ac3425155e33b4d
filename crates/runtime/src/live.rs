//! A policy on network interfaces: frames in, batch by batch, through the runner, and out.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use io::port::{Interface, LinkMonitor, LinkState, TransmitBurst};
use l3::{EgressAction, IngressAction, ProxyPort, RouterPort};
use nf::{Alert, Event, FlowReport, OwnedAddresses};
use packet::wire::MacAddress;
use packet::{LinkType, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::panics::{Processing, RESTARTS_MAX};
use crate::ports::Port;
use crate::report::{HostReport, InterfaceReport, PollingReport, Report};
use crate::runner::{Frame, Ingress, Output, Runner};
use crate::shards::Shard;

/// Rounds without a frame, after which the thread sleeps until one comes: some tens of
/// microseconds, in which the next one of a burst finds it awake.
const ROUNDS_AWAKE: u32 = 64;

/// How long it sleeps at most, so that time passes for flows and for whoever drives the rounds.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 16_000_000 };

/// How long it sleeps at least and at most, if frames may come that cannot be waited for (DPDK); in
/// between, an eighth of the time that it has slept since one came: so whoever waits for an answer
/// waits little longer, and without traffic little is done.
pub const POLL_SLEEP_NS_MIN: u64 = 50_000;
/// See [`POLL_SLEEP_NS_MIN`].
pub const POLL_SLEEP_NS_MAX: u64 = 1_000_000;

/// How often time is let pass in the graph.
const TICK_NS: u64 = 1_000_000;

/// How often it is looked whether interfaces are up, and those that are there, if the kernel says
/// nothing of it.
const LOOK_NS: u64 = 500_000_000;

/// How often it is asked whether the kernel says something.
const ASK_NS: u64 = 1_000_000;

/// Drives a runner from network interfaces, each of them a port of the policy.
pub struct Live {
    runner: Runner,
    attached: Vec<Attached>,
    outlets: Vec<Outlet>,
    clock: Clock,
    /// Rounds without a frame, one after the other.
    idle: u32,
    ticked_ns: u64,
    /// Without it, as where a sandbox allows no such sockets, it is looked now and then.
    news: Option<LinkMonitor>,
    asked_ns: u64,
    looked_ns: u64,
    /// How long it has slept.
    slept: Duration,
    /// How long it had slept when a frame came last.
    slept_before: Duration,
    polling: PollingReport,
    receives: bool,
    /// How often a round ended in a panic.
    restarts: u64,
}

/// How the frames that come are given to the runner.
pub trait Intake {
    /// Gives it this one.
    ///
    /// # Errors
    /// Those of `output`.
    fn take_in<O: Output>(
        &mut self,
        runner: &mut Runner,
        frame: Frame<'_>,
        from: Ingress,
        output: &mut O,
    ) -> Result<(), O::Error>;
}

/// They are processed with their batch.
struct InBatches;

impl Intake for InBatches {
    fn take_in<O: Output>(
        &mut self,
        runner: &mut Runner,
        frame: Frame<'_>,
        from: Ingress,
        output: &mut O,
    ) -> Result<(), O::Error> {
        runner.receive(frame, from, output)
    }
}

/// A port and its interface.
struct Attached {
    port: u16,
    interface: Interface,
    is_up: bool,
}

/// What is to leave by a port.
struct Outlet {
    port: u16,
    outbox: TransmitBurst,
    /// What stands between it and the graph.
    end: End,
}

/// What stands between a port and the graph.
enum End {
    /// Nothing: all frames go through.
    Wire,
    /// Who answers for addresses of functions on a wire.
    Proxy(Box<ProxyPort>),
    /// A router's port, which has addresses.
    Router(Box<RouterPort>),
}

/// What became of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub interface: String,
    /// Whether it is up now; if not, it is down or gone.
    pub is_up: bool,
    /// Why another driver than before is in use now, if so.
    pub fallback: Option<String>,
    /// What is to be said of it: who has connected, or why it is down, if it knows.
    pub why: Option<String>,
}

impl Live {
    /// Drives this runner from these interfaces, each of them the port with this number.
    ///
    /// # Errors
    /// If an interface does not tell what its link is like, which the host of a router's port has
    /// to know.
    pub fn new(runner: Runner, interfaces: Vec<(u16, Interface)>) -> std::io::Result<Live> {
        let wire = addresses(interfaces.iter().map(|(_, interface)| interface));
        let outlet = |&(number, ref interface): &(u16, Interface)| {
            let (link, port) = (interface.link()?, number);
            let port = runner.assembly().ports.number(port);
            let end = port.map_or(End::Wire, |port| end(port, link, &wire, &runner));
            Ok(Outlet { port: number, outbox: TransmitBurst::default(), end })
        };
        let outlets = interfaces.iter().map(outlet).collect::<std::io::Result<_>>()?;
        let attach = |(port, interface)| Attached { port, is_up: is_up(&interface), interface };
        let attached = interfaces.into_iter().map(attach).collect();
        Ok(Live {
            runner,
            attached,
            outlets,
            clock: Clock::new(),
            idle: 0,
            ticked_ns: 0,
            news: LinkMonitor::subscribe().ok(),
            asked_ns: 0,
            looked_ns: 0,
            slept: Duration::ZERO,
            slept_before: Duration::ZERO,
            polling: PollingReport::default(),
            restarts: 0,
            receives: true,
        })
    }

    /// What is driven.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// The time, in nanoseconds since 1970: as the system's clock said at the start, and even from
    /// there on.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// What is driven, to be given commands.
    pub fn runner_mut(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Takes what has come, and sends what comes of it; `output` is told of it all. If nothing
    /// comes for a while, it waits for that, but not for longer than 16 ms; where frames cannot be
    /// waited for, [`POLL_SLEEP_NS_MAX`].
    ///
    /// # Errors
    /// Those of `output`.
    pub fn round<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        self.round_with(&mut InBatches, output)
    }

    /// The same, with frames taken in by `intake`, which gives each to [`Runner::receive`].
    ///
    /// # Errors
    /// Those of `output`.
    pub fn round_with<I: Intake, O: Output>(
        &mut self,
        intake: &mut I,
        output: &mut O,
    ) -> Result<(), O::Error> {
        let round = || {
            let _processing = Processing::begin();
            self.round_by(intake, output)
        };
        match catch_unwind(AssertUnwindSafe(round)) {
            Ok(done) => done,
            Err(panic) if self.restarts >= RESTARTS_MAX => resume_unwind(panic),
            Err(_) => {
                // Others of the machine go on meanwhile, and this one with what comes next.
                self.restarts += 1;
                self.runner.recover();
                Ok(())
            }
        }
    }

    /// The same, with frames taken in by `intake`, whatever it does with them: a panic goes on to
    /// the caller.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn round_by<I: Intake, O: Output>(&mut self, intake: &mut I, output: &mut O) -> Result<(), O::Error> {
        self.polling.rounds += 1;
        let now_ns = self.clock.now_ns();
        let taken = |runner: &Runner| runner.shard().map_or(0, |shard| shard.counters().taken);
        let taken_before = taken(&self.runner);
        let mut wire = Wire { outlets: &mut self.outlets, output, now_ns };
        let mut has_come = false;
        if self.receives {
            for (at, attached) in self.attached.iter_mut().enumerate() {
                has_come |= attached.receive(at, intake, &mut self.runner, &mut wire)?;
            }
        }
        if now_ns >= self.ticked_ns + TICK_NS {
            self.ticked_ns = now_ns;
            wire.outlets.iter_mut().for_each(|outlet| outlet.pass_time(now_ns));
            self.runner.pass_time(now_ns, &mut wire)?;
        } else {
            self.runner.flush(&mut wire)?;
        }
        wire.return_all(intake, &mut self.runner)?;
        wire.tell_of_neighbours(&mut self.runner);
        self.send();
        has_come |= taken(&self.runner) != taken_before;
        let is_idle = !has_come && !self.runner.has_under_way();
        self.idle = if is_idle { self.idle.saturating_add(1) } else { 0 };
        if !is_idle {
            self.slept_before = self.slept;
        }
        if self.idle > ROUNDS_AWAKE {
            self.sleep();
        }
        Ok(())
    }

    /// Looks which interfaces went down or came up, and opens those anew that were gone: when the
    /// kernel, or one of them, has news, and twice a second.
    pub fn look(&mut self) -> Vec<Change> {
        let now_ns = self.now_ns();
        let has_news = self.has_news(now_ns);
        if !has_news && now_ns < self.looked_ns + LOOK_NS {
            return Vec::new();
        }
        self.polling.link_news += u64::from(has_news);
        self.looked_ns = now_ns;
        let looks: Vec<_> = self.attached.iter_mut().map(Attached::look).collect();
        let wire = addresses(self.attached.iter().map(|attached| &attached.interface));
        let each = looks.into_iter().zip(&self.attached).zip(&mut self.outlets);
        each.filter_map(|(((change, is_another), attached), outlet)| {
            let is_back = is_another || change.as_ref().is_some_and(|change| change.is_up);
            if let Ok(link) = attached.interface.link() {
                outlet.set_link(link, &wire, is_back, now_ns);
            }
            change
        })
        .collect()
    }

    fn has_news(&mut self, now_ns: u64) -> bool {
        if now_ns < self.asked_ns + ASK_NS {
            return false;
        }
        self.asked_ns = now_ns;
        let of_kernel = self.news.as_mut().is_some_and(LinkMonitor::take_change);
        self.attached.iter_mut().fold(of_kernel, |has_news, attached| {
            let of_interface = attached.interface.take_link_change();
            has_news || of_interface
        })
    }

    /// Receives nothing more; what others hand over goes through all the same.
    pub(crate) fn receive_no_more(&mut self) {
        self.receives = false;
    }

    /// The share of the time that it has slept.
    pub(crate) fn asleep(&self) -> f64 {
        self.slept.as_secs_f64() / self.clock.began.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// What has been counted so far, by the interfaces, too.
    pub fn report(&mut self) -> Report {
        let report = self.runner.report_with_shared();
        self.with_interfaces(report)
    }

    /// Ends the run: what is under way is processed and sent, all flows end, and the report is
    /// made.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn finish<O: Output>(&mut self, output: &mut O) -> Result<Report, O::Error> {
        let now_ns = self.now_ns();
        let report = self.runner.finish(&mut Wire { outlets: &mut self.outlets, output, now_ns })?;
        self.send();
        Ok(self.with_interfaces(report))
    }

    fn with_interfaces(&mut self, mut report: Report) -> Report {
        report.restarts += self.restarts;
        for (attached, outlet) in self.attached.iter_mut().zip(&self.outlets) {
            let port = self.runner.assembly().ports.number(attached.port);
            let name = port.map_or_else(String::new, |port| port.name.clone());
            report.interfaces.insert(name, attached.report(outlet.host_report()));
        }
        report.timing.polling = Some(self.polling);
        report
    }

    fn send(&mut self) {
        for (attached, outlet) in self.attached.iter_mut().zip(&mut self.outlets) {
            outlet.collect();
            attached.interface.send(&mut outlet.outbox);
        }
    }

    fn sleep(&mut self) {
        let shard = self.runner.shard();
        let bell = shard.map(Shard::bell);
        bell.inspect(|bell| bell.lie_down());
        // What was handed over before that, no bell tells of.
        if !shard.is_some_and(Shard::has_work) {
            let sockets = self.attached.iter().filter(|_| self.receives);
            let sockets = sockets.flat_map(|attached| attached.interface.sockets());
            let events = bell.map(|bell| bell.event());
            let news = self.news.as_ref().map(AsFd::as_fd);
            let is_polled =
                self.receives && self.attached.iter().any(|attached| attached.interface.is_polled());
            let waits = sockets.chain(events).chain(news);
            let mut waits: Vec<_> = waits.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let time =
                if is_polled { poll_sleep(self.slept.saturating_sub(self.slept_before)) } else { SLEEP };
            let began = Instant::now();
            // Whether a frame, time, a bell, news or a signal has ended it, the next round finds
            // out.
            let woken_by = poll(&mut waits, Some(&time));
            self.slept += began.elapsed();
            // Link news and socket errors are handled at once: until then, either ends every sleep.
            // A TAP device that is being deleted reports an error long before a read fails.
            let has_news = self.news.is_some() && waits.last().is_some_and(|news| !news.revents().is_empty());
            let has_failed = waits.iter().any(|wait| wait.revents().intersects(FAILED));
            if has_news || has_failed {
                self.asked_ns = 0;
            }
            self.polling.sleeps += 1;
            self.polling.wakeups += u64::from(woken_by != Ok(0));
        }
        bell.inspect(|bell| bell.get_up());
    }
}

impl Attached {
    /// Takes a batch of what has come by this one, which has the outlet with this number; whether
    /// anything has.
    fn receive<I: Intake, O: Output>(
        &mut self,
        at: usize,
        intake: &mut I,
        runner: &mut Runner,
        wire: &mut Wire<'_, O>,
    ) -> Result<bool, O::Error> {
        let (mut has_come, mut result) = (false, Ok(()));
        let mut untagged = Vec::new();
        let received = self.interface.receive(|data| {
            has_come = true;
            let is_router = matches!(wire.outlets[at].end, End::Router(_));
            let is_tagged = is_router && l3::untag(data, &mut untagged);
            let data = if is_tagged { &untagged[..] } else { data };
            if result.is_ok() {
                match wire.outlets[at].arrive(data, wire.now_ns) {
                    IngressAction::Forward => result = wire.take_in(intake, runner, self.port, data),
                    IngressAction::Drop(reason) => runner.refuse(self.port, data.len(), reason),
                    IngressAction::Consumed => {}
                }
            }
        });
        result?;
        // An interface that went down says so once; `look` finds it, and when it is back.
        Ok(has_come && received.is_ok())
    }

    /// What has changed, and whether the interface is another one than before, of the same name.
    fn look(&mut self) -> (Option<Change>, bool) {
        let mode = self.interface.mode();
        // As long as there is none, the next look tries again.
        let is_another = self.interface.reopen().unwrap_or(false);
        let was_up = std::mem::replace(&mut self.is_up, is_up(&self.interface));
        let fallback = (self.interface.mode() != mode).then(|| self.interface.fallback()).flatten();
        let fallback = fallback.map(ToString::to_string);
        let why = self.interface.take_reason();
        let has_changed = was_up != self.is_up || fallback.is_some() || why.is_some();
        let change = has_changed.then(|| Change {
            interface: self.interface.name().to_owned(),
            is_up: self.is_up,
            fallback,
            why,
        });
        (change, is_another)
    }

    fn report(&mut self, host: Option<HostReport>) -> InterfaceReport {
        let counted = self.interface.counters();
        InterfaceReport {
            name: self.interface.name().to_owned(),
            driver: self.interface.mode().to_owned(),
            received: counted.received,
            completed: counted.completed,
            missed: counted.missed,
            unreadable: counted.unreadable,
            sent: counted.sent,
            too_long: counted.too_long,
            no_room: counted.no_room,
            down: counted.down,
            host,
        }
    }
}

/// What `poll` reports of a socket that has an error or no device any more.
const FAILED: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

/// How long to sleep after so long without a frame.
fn poll_sleep(silence: Duration) -> Timespec {
    let ns = (silence.as_nanos() / 8).clamp(POLL_SLEEP_NS_MIN.into(), POLL_SLEEP_NS_MAX.into());
    Timespec { tv_sec: 0, tv_nsec: ns as i64 }
}

fn is_up(interface: &Interface) -> bool {
    interface.link().is_ok_and(|link| link.is_up)
}

/// What stands between a port and the graph. On a wire with these cards, functions that own
/// addresses on one side have nobody else to answer for those; what is owned on both sides, as a
/// load balancer's, hosts of the wire may have.
fn end(port: &Port, link: LinkState, wire: &[MacAddress], runner: &Runner) -> End {
    let (assembly, part) = (runner.assembly(), runner.shard().map_or((0, 1), Shard::place));
    let all_owned = assembly.graph.stages().iter().flat_map(|stage| &stage.shared().owned);
    let range = |owned: &OwnedAddresses| (owned.first, owned.last);
    if port.networks.is_empty() {
        let mut on_a_side = all_owned.filter(|owned| owned.side.is_some()).peekable();
        if on_a_side.peek().is_none() || link.address.is_none() {
            return End::Wire;
        }
        let here = on_a_side.filter(|owned| owned.side == Some(port.side));
        let (owned, wire) = (here.map(range).collect(), wire.to_vec());
        return End::Proxy(Box::new(ProxyPort::new(l3::ProxyPortConfig {
            mac: mac(link),
            wire,
            nf_addresses: owned,
            shard: part,
        })));
    }
    let router = assembly.ports.all().iter().flat_map(|port| &port.networks);
    End::Router(Box::new(RouterPort::new(l3::Config {
        mac: mac(link),
        mtu: link.mtu,
        addresses: port.networks.clone(),
        gateways: port.gateways.clone(),
        nf_addresses: all_owned
            .filter(|owned| owned.side.is_none_or(|side| side == port.side))
            .map(range)
            .collect(),
        router_addresses: router.map(|network| network.address).collect(),
        drop_martians: assembly.graph.options().guards.martians != Some(false),
        shard: part,
    })))
}

/// The Ethernet addresses of these interfaces.
fn addresses<'a>(interfaces: impl Iterator<Item = &'a Interface>) -> Vec<MacAddress> {
    interfaces.filter_map(|interface| interface.link().ok()?.address.map(MacAddress)).collect()
}

fn mac(link: LinkState) -> MacAddress {
    MacAddress(link.address.unwrap_or_default())
}

impl End {
    /// A packet is to leave by the port.
    fn depart(&mut self, frame: &mut [u8], now_ns: u64) -> EgressAction {
        match self {
            End::Wire => EgressAction::Transmit,
            End::Proxy(proxy) => proxy.handle_egress(frame, now_ns),
            End::Router(host) => host.handle_egress(frame, now_ns),
        }
    }
}

impl Outlet {
    /// A frame has arrived at the port: on a wire, all go through.
    fn arrive(&mut self, frame: &[u8], now_ns: u64) -> IngressAction {
        let arrival = match &mut self.end {
            End::Wire => return IngressAction::Forward,
            End::Proxy(proxy) => proxy.handle_ingress(frame, now_ns),
            End::Router(host) => host.handle_ingress(frame, now_ns),
        };
        if arrival == IngressAction::Consumed {
            // Packets that waited for what this frame told leave before others.
            self.collect();
        }
        arrival
    }

    /// Another worker's part of the port has heard this of a neighbour.
    fn overhear(&mut self, frame: &[u8], now_ns: u64) {
        match &mut self.end {
            End::Wire => return,
            End::Proxy(proxy) => proxy.snoop(frame, now_ns),
            End::Router(host) => host.snoop(frame, now_ns),
        }
        self.collect();
    }

    fn pass_time(&mut self, now_ns: u64) {
        match &mut self.end {
            End::Wire => {}
            End::Proxy(proxy) => proxy.handle_timeout(now_ns),
            End::Router(host) => host.handle_timeout(now_ns),
        }
    }

    /// The link is like that now, on a wire with these cards; `is_back`: it was down, or its
    /// interface is another one.
    fn set_link(&mut self, link: LinkState, wire: &[MacAddress], is_back: bool, now_ns: u64) {
        match &mut self.end {
            End::Wire => {}
            End::Proxy(proxy) => {
                proxy.set_link(mac(link), wire);
                if is_back {
                    proxy.handle_link_up(now_ns);
                }
            }
            End::Router(host) => {
                host.set_link(mac(link), link.mtu);
                if is_back {
                    host.handle_link_up(now_ns);
                }
            }
        }
    }

    /// Frames that told of neighbours, for the port's other parts.
    fn take_told(&mut self) -> Vec<Vec<u8>> {
        match &mut self.end {
            End::Wire => Vec::new(),
            End::Proxy(proxy) => proxy.take_snooped(),
            End::Router(host) => host.take_snooped(),
        }
    }

    /// Frames that go through the graph as if they had arrived here.
    fn take_returned(&mut self) -> Vec<Vec<u8>> {
        match &mut self.end {
            End::Wire | End::Proxy(_) => Vec::new(),
            End::Router(host) => host.take_returned(),
        }
    }

    fn host_report(&self) -> Option<HostReport> {
        match &self.end {
            End::Wire => None,
            End::Proxy(proxy) => Some(HostReport::of(proxy.counters(), proxy.pending())),
            End::Router(host) => Some(HostReport::of(host.counters(), host.pending())),
        }
    }

    /// Takes what the host has to say.
    fn collect(&mut self) {
        let frames = match &mut self.end {
            End::Wire => return,
            End::Proxy(proxy) => proxy.take_frames(),
            End::Router(host) => host.take_frames(),
        };
        for frame in frames {
            self.outbox.push(&frame);
        }
    }
}

/// An output that has packets sent, too.
struct Wire<'a, O> {
    outlets: &'a mut [Outlet],
    output: &'a mut O,
    now_ns: u64,
}

impl<O: Output> Wire<'_, O> {
    /// Gives the runner a frame that came in by this port.
    fn take_in<I: Intake>(
        &mut self,
        intake: &mut I,
        runner: &mut Runner,
        port: u16,
        data: &[u8],
    ) -> Result<(), O::Error> {
        let wire_len = data.len() as u32;
        let frame = Frame { timestamp_ns: self.now_ns, link: LinkType::Ethernet, wire_len, data };
        intake.take_in(runner, frame, Ingress::Port(port), self)
    }

    /// What a host has heard of neighbours, those of other workers' parts of the port hear, too.
    fn tell_of_neighbours(&mut self, runner: &mut Runner) {
        let Some(shard) = runner.shard_mut() else { return };
        for (port, frame) in shard.take_heard() {
            if let Some(outlet) = self.outlets.iter_mut().find(|outlet| outlet.port == port) {
                outlet.overhear(&frame, self.now_ns);
            }
        }
        for outlet in self.outlets.iter_mut() {
            outlet.take_told().iter().for_each(|frame| shard.tell(outlet.port, frame));
        }
    }

    /// Gives the runner what hosts say of packets that could not leave, until they have no more to
    /// say of that.
    fn return_all<I: Intake>(&mut self, intake: &mut I, runner: &mut Runner) -> Result<(), O::Error> {
        loop {
            let returned = |outlet: &mut Outlet| {
                outlet.take_returned().into_iter().map(|frame| (outlet.port, frame)).collect::<Vec<_>>()
            };
            let returned: Vec<_> = self.outlets.iter_mut().flat_map(returned).collect();
            if returned.is_empty() {
                return Ok(());
            }
            for (port, frame) in returned {
                self.take_in(intake, runner, port, &frame)?;
            }
            runner.flush(self)?;
        }
    }
}

impl<O: Output> Output for Wire<'_, O> {
    type Error = O::Error;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), O::Error> {
        if let Some(outlet) = self.outlets.iter_mut().find(|outlet| outlet.port == port) {
            let frame = outlet.outbox.push(packet.data());
            if outlet.end.depart(frame, self.now_ns) == EgressAction::Consumed {
                outlet.outbox.pop();
            }
        }
        self.output.packet(port, packet)
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), O::Error> {
        self.output.alert(function, alert)
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), O::Error> {
        self.output.event(function, event)
    }

    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> Result<(), O::Error> {
        self.output.flow(report, now_ns)
    }
}

/// The time since 1970 that never goes back.
struct Clock {
    began: Instant,
    began_ns: u64,
}

impl Clock {
    fn new() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { began: Instant::now(), began_ns: since.as_nanos() as u64 }
    }

    fn now_ns(&self) -> u64 {
        self.began_ns + self.began.elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_to_ask_sleeps_longer_the_longer_nothing_comes() {
        let ns = |silence_us| poll_sleep(Duration::from_micros(silence_us)).tv_nsec as u64;
        assert_eq!([0, 400, 800, 8_000, 8_001].map(ns), [50_000, 50_000, 100_000, 1_000_000, 1_000_000]);
        assert_eq!(poll_sleep(Duration::MAX).tv_nsec as u64, POLL_SLEEP_NS_MAX);
    }
}
