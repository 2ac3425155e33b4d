//! Runs a policy on network interfaces.
//!
//! A round receives a burst from each port, processes it, transmits the output, and waits if there
//! is nothing to do:
//!
//! ```text
//! interface -> L3 -> runner -> L3 -> interface
//! ```

mod clock;
mod l3;
mod port;
mod wait;

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use io::port::{Interface, LinkMonitor};
use nf::{Alert, Event, FlowReport};
use packet::{DropReason, Packet};

use self::clock::Clock;
use self::l3::PortL3;
pub use self::port::LinkChange;
use self::port::{LinkCheck, LivePort, frame, mac_addresses};
pub use self::wait::{POLL_SLEEP_NS_MAX, POLL_SLEEP_NS_MIN};
use self::wait::{SleepLimit, Sleeper};
use crate::panics::{Processing, RESTARTS_MAX};
use crate::report::{PollingReport, Report};
use crate::runner::{Frame, Ingress, Output, Runner};

/// Period of the timers of the graph and of L3.
const TICK_NS: u64 = 1_000_000;

/// Period of looks at the interfaces' state if there are no events.
const LINK_CHECK_NS: u64 = 500_000_000;

/// Period of looks for link events.
const LINK_EVENTS_NS: u64 = 1_000_000;

/// Runs a runner on network interfaces, each a port of the policy.
pub struct Live {
    runner: Runner,
    ports: Vec<LivePort>,
    clock: Clock,
    sleeper: Sleeper,
    ticked_ns: u64,
    /// Time of the latest round.
    round_ns: Option<u64>,
    /// Link events of the kernel. Without them, as where a sandbox allows no such sockets, looks
    /// are periodic.
    link_monitor: Option<LinkMonitor>,
    link_events_ns: u64,
    link_checked_ns: u64,
    polling: PollingReport,
    receives: bool,
    /// Rounds that ended in a panic.
    restarts: u64,
}

/// Time without a round after which what has waited at ports is too old for a cluster: others may
/// have given this process up.
const STALE_NS: u64 = 2_000_000_000;
/// Limit on the bursts of a port that are dropped then: more than any ring holds.
const STALE_BURSTS_MAX: u32 = 4096;

/// Takes the frames of a round, and has them processed.
pub trait Intake {
    /// Takes a received frame.
    fn receive(&mut self, runner: &mut Runner, frame: Frame<'_>, ingress: Ingress) {
        runner.enqueue(frame, ingress);
    }

    /// Processes the frames that were taken.
    ///
    /// # Errors
    /// Those of `output`.
    fn process<O: Output>(&mut self, runner: &mut Runner, output: &mut O) -> Result<(), O::Error> {
        runner.flush(output)
    }
}

/// Processes all frames of a round as a batch.
struct Batches;

impl Intake for Batches {}

impl Live {
    /// Creates a live run on these interfaces, each with the number of its port.
    ///
    /// # Errors
    /// If the state of an interface's link cannot be read.
    pub fn new(mut runner: Runner, interfaces: Vec<(u16, Interface)>) -> std::io::Result<Live> {
        runner.watch_nodes();
        let wire = mac_addresses(interfaces.iter().map(|(_, interface)| interface));
        let place = runner.worker().map_or((0, 1), |worker| (worker.number, worker.count));
        let port = |(number, interface): (u16, Interface)| {
            let (link, entry) = (interface.link()?, runner.assembly().ports.number(number));
            let l3 =
                entry.map_or(PortL3::Wire, |entry| PortL3::new(entry, link, &wire, runner.assembly(), place));
            Ok(LivePort::new(number, interface, l3, runner.assembly()))
        };
        let ports = interfaces.into_iter().map(port).collect::<std::io::Result<_>>()?;
        Ok(Live {
            runner,
            ports,
            clock: Clock::new(),
            sleeper: Sleeper::default(),
            ticked_ns: 0,
            round_ns: None,
            link_monitor: LinkMonitor::subscribe().ok(),
            link_events_ns: 0,
            link_checked_ns: 0,
            polling: PollingReport::default(),
            receives: true,
            restarts: 0,
        })
    }

    /// Returns the runner.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Returns the runner, to be given commands.
    pub fn runner_mut(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Returns the time in nanoseconds since 1970. It follows the system's clock at the start, and
    /// is monotonic from there on.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Receives, processes and transmits a burst of each port.
    ///
    /// After some rounds without work it waits up to 16 ms for the next frame, or up to
    /// [`POLL_SLEEP_NS_MAX`] where frames arrive without a notification.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn round<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        self.round_with(&mut Batches, output)
    }

    /// Does the same as [`round`](Live::round) with another intake.
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
            self.round_uncaught(intake, output)
        };
        match catch_unwind(AssertUnwindSafe(round)) {
            Ok(done) => done,
            Err(panic) if self.restarts >= RESTARTS_MAX => resume_unwind(panic),
            Err(_) => {
                // Other parts of the system have run on; this one continues with the next frame.
                self.restarts += 1;
                self.runner.recover();
                Ok(())
            }
        }
    }

    /// Does the same as [`round_with`](Live::round_with), but panics reach the caller.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn round_uncaught<I: Intake, O: Output>(
        &mut self,
        intake: &mut I,
        output: &mut O,
    ) -> Result<(), O::Error> {
        self.polling.rounds += 1;
        let now_ns = self.clock.now_ns();
        self.drop_stale(now_ns);
        let has_received = self.receive(now_ns, intake);
        let has_taken_over = self.process(now_ns, intake, output)?;
        self.transmit();
        self.wait(has_received || has_taken_over);
        Ok(())
    }

    /// Drops what has waited at ports while this process did not run, if others may have given it
    /// up in the meantime.
    fn drop_stale(&mut self, now_ns: u64) {
        let round_ns = self.round_ns.replace(now_ns).unwrap_or(now_ns);
        if now_ns.saturating_sub(round_ns) < STALE_NS || self.runner.takes_stale() {
            return;
        }
        for port in &mut self.ports {
            // Fresh packets among these are dropped, too; there are few.
            let mut bursts = 0..STALE_BURSTS_MAX;
            while bursts.next().is_some() && port.drop_burst(&mut self.runner) {}
        }
    }

    /// Receives a burst of each port. Returns whether there was one.
    fn receive(&mut self, now_ns: u64, intake: &mut impl Intake) -> bool {
        if !self.receives {
            return false;
        }
        let mut has_received = false;
        for port in &mut self.ports {
            has_received |= port.receive(now_ns, &mut self.runner, intake);
        }
        has_received
    }

    /// Processes received packets, and handles timers. Returns whether packets arrived from other
    /// workers.
    fn process<I: Intake, O: Output>(
        &mut self,
        now_ns: u64,
        intake: &mut I,
        output: &mut O,
    ) -> Result<bool, O::Error> {
        let taken_over = |runner: &Runner| runner.worker_counters().map_or(0, |counters| counters.taken);
        let taken_before = taken_over(&self.runner);
        let mut egress = Egress { ports: &mut self.ports, output, now_ns };
        intake.process(&mut self.runner, &mut egress)?;
        if now_ns >= self.ticked_ns + TICK_NS {
            self.ticked_ns = now_ns;
            egress.ports.iter_mut().for_each(|port| port.l3.handle_timeout(now_ns));
            self.runner.handle_timeout(now_ns, &mut egress)?;
        }
        egress.process_returned(intake, &mut self.runner)?;
        if self.runner.worker().is_some() {
            egress.exchange_neighbours(&mut self.runner);
        }
        Ok(taken_over(&self.runner) != taken_before)
    }

    /// Transmits the packets that leave.
    fn transmit(&mut self) {
        self.ports.iter_mut().for_each(LivePort::transmit);
    }

    /// Waits for a frame if there has been no work for a while.
    fn wait(&mut self, has_worked: bool) {
        // What is pending at units of other machines comes back with an event.
        let is_pending = self.runner.has_pending();
        let is_idle = !has_worked && (!is_pending || self.runner.event().is_some());
        if !self.sleeper.note_round(is_idle) {
            return;
        }
        let doorbell = self.runner.worker().map(|worker| &worker.doorbell);
        if let Some(doorbell) = doorbell {
            doorbell.park();
        }
        // No doorbell reports what other workers handed over before it was parked.
        if doorbell.is_none() || !self.runner.has_pending() {
            let ports = self.ports.iter().filter(|_| self.receives);
            let limit = match ports.clone().any(|port| port.interface.is_polled()) {
                true => SleepLimit::Polled,
                false if is_pending => SleepLimit::Pending,
                false => SleepLimit::Idle,
            };
            let sockets = ports.flat_map(|port| port.interface.sockets());
            let sockets = sockets.chain(doorbell.map(|doorbell| doorbell.waker().event()));
            let sockets = sockets.chain(self.runner.event());
            let links = self.link_monitor.as_ref().map(AsFd::as_fd);
            let woken = self.sleeper.sleep(sockets, links, limit);
            self.polling.sleeps += 1;
            self.polling.wakeups += u64::from(woken.by_event);
            if woken.by_link {
                self.link_events_ns = 0;
            }
        }
        if let Some(doorbell) = doorbell {
            doorbell.unpark();
            doorbell.waker().clear();
        }
    }

    /// Returns interfaces that went down or came up, and opens those again that were gone. Looks at
    /// them on an event of the kernel or of a driver, and twice a second.
    pub fn check_links(&mut self) -> Vec<LinkChange> {
        let now_ns = self.now_ns();
        let has_event = self.take_link_event(now_ns);
        if !has_event && now_ns < self.link_checked_ns + LINK_CHECK_NS {
            return Vec::new();
        }
        self.polling.link_news += u64::from(has_event);
        self.link_checked_ns = now_ns;
        let checks: Vec<_> = self.ports.iter_mut().map(LivePort::check_link).collect();
        let wire = mac_addresses(self.ports.iter().map(|port| &port.interface));
        let ports = checks.into_iter().zip(&mut self.ports);
        ports
            .filter_map(|(LinkCheck { change, link, came_up }, port)| {
                if let Some(link) = link {
                    port.l3.set_link(link, &wire, came_up, now_ns);
                }
                change
            })
            .collect()
    }

    fn take_link_event(&mut self, now_ns: u64) -> bool {
        if now_ns < self.link_events_ns + LINK_EVENTS_NS {
            return false;
        }
        self.link_events_ns = now_ns;
        let of_kernel = self.link_monitor.as_mut().is_some_and(LinkMonitor::take_change);
        let ports = self.ports.iter_mut();
        ports.fold(of_kernel, |has_event, port| port.interface.take_link_change() || has_event)
    }

    /// Receives no further frames; packets of other workers are still processed.
    pub(crate) fn stop_receiving(&mut self) {
        self.set_receiving(false);
    }

    /// Receives frames, or leaves them at the ports.
    pub fn set_receiving(&mut self, receives: bool) {
        self.receives = receives;
    }

    /// Returns the share of the time that the thread has slept.
    pub(crate) fn asleep(&self) -> f64 {
        self.sleeper.slept().as_secs_f64() / self.clock.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Returns the report so far, with the interfaces' counters.
    pub fn report(&mut self) -> Report {
        let report = self.runner.report_with_shared();
        self.with_interfaces(report)
    }

    /// Ends the run: processes and transmits pending packets, ends all flows, and returns the
    /// report.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn finish<O: Output>(&mut self, output: &mut O) -> Result<Report, O::Error> {
        let now_ns = self.now_ns();
        let mut report = self.runner.finish(&mut Egress { ports: &mut self.ports, output, now_ns })?;
        self.transmit();
        for (packets, bytes) in self.ports.iter_mut().map(LivePort::drop_bypassed) {
            report.drop_sent(DropReason::NodeDown, packets, bytes);
        }
        Ok(self.with_interfaces(report))
    }

    fn with_interfaces(&mut self, mut report: Report) -> Report {
        report.restarts += self.restarts;
        for port in &mut self.ports {
            let entry = self.runner.assembly().ports.number(port.number);
            let name = entry.map_or_else(String::new, |entry| entry.name.clone());
            report.interfaces.insert(name, port.report());
        }
        report.timing.polling = Some(self.polling);
        report
    }
}

/// The output of a live run: packets leave by their port, and everything goes to `output`, too.
struct Egress<'a, O> {
    ports: &'a mut [LivePort],
    output: &'a mut O,
    now_ns: u64,
}

impl<O> Egress<'_, O> {
    fn port(&mut self, number: u16) -> Option<&mut LivePort> {
        self.ports.iter_mut().find(|port| port.number == number)
    }
}

impl<O: Output> Egress<'_, O> {
    /// Processes what L3 answers to packets that could not leave, and packets that go past external
    /// nodes, until there are no more.
    fn process_returned<I: Intake>(&mut self, intake: &mut I, runner: &mut Runner) -> Result<(), O::Error> {
        loop {
            let mut has_returned = false;
            for port in self.ports.iter_mut() {
                let returned = port.l3.take_returned().into_iter().map(|data| (data, 0));
                for (data, tags) in returned.chain(port.take_bypassed()) {
                    has_returned = true;
                    let ingress = Ingress::Tagged(port.number, tags);
                    intake.receive(runner, frame(&data, self.now_ns), ingress);
                }
            }
            if !has_returned {
                return Ok(());
            }
            intake.process(runner, self)?;
        }
    }

    /// Shares what L3 has learnt of neighbours with other workers, and learns from them.
    fn exchange_neighbours(&mut self, runner: &mut Runner) {
        for (number, data) in runner.take_snooped() {
            if let Some(port) = self.ports.iter_mut().find(|port| port.number == number) {
                port.l3.snoop(&data, self.now_ns);
                port.collect();
            }
        }
        for port in self.ports.iter_mut() {
            port.l3.take_snooped().iter().for_each(|data| runner.share_snooped(port.number, data));
        }
    }
}

impl<O: Output> Output for Egress<'_, O> {
    type Error = O::Error;

    fn packet(&mut self, number: u16, packet: &Packet) -> Result<(), O::Error> {
        let now_ns = self.now_ns;
        if let Some(port) = self.port(number) {
            match port.bypass_to() {
                None => port.enqueue(packet, now_ns),
                Some(other) => {
                    let tags = port.passing_tags(packet);
                    if let Some(other) = self.port(other) {
                        other.bypass(packet.data(), tags);
                    }
                }
            }
        }
        self.output.packet(number, packet)
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), O::Error> {
        self.output.alert(function, alert)
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), O::Error> {
        self.output.event(function, event)
    }

    fn stream_frame(&mut self, node: &str, frame: &[u8]) {
        self.ports.iter_mut().any(|port| port.enqueue_stream(node, frame));
    }

    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> Result<(), O::Error> {
        self.output.flow(report, now_ns)
    }
}
