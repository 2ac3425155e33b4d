//! A policy on network interfaces: frames in, batch by batch, through the runner, and out.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use io::port::{Interface, Outbox};
use nf::{Alert, Event, FlowReport};
use packet::{LinkType, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::report::{InterfaceReport, Report};
use crate::runner::{Frame, From, Output, Runner};

/// Rounds without a frame, after which the thread sleeps until one comes: some tens of microseconds, in which the next
/// one of a burst finds it awake.
const ROUNDS_AWAKE: u32 = 64;

/// How long it sleeps at most, so that time passes for flows and for whoever drives the rounds.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 16_000_000 };

/// How often time is let pass in the chain.
const TICK_NS: u64 = 1_000_000;

/// How often it is looked whether interfaces are up, and those that are there.
const LOOK_NS: u64 = 500_000_000;

/// Drives a runner from network interfaces, each of them a port of the policy.
pub struct Live {
    runner: Runner,
    attached: Vec<Attached>,
    /// What is to leave by each of them, with the port's number.
    outboxes: Vec<(u16, Outbox)>,
    clock: Clock,
    /// Rounds without a frame, one after the other.
    idle: u32,
    ticked_ns: u64,
    looked_ns: u64,
}

/// A port and its interface.
struct Attached {
    port: u16,
    interface: Interface,
    is_up: bool,
}

/// What became of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub interface: String,
    /// Whether it is up now; if not, it is down or gone.
    pub is_up: bool,
}

impl Live {
    /// Drives this runner from these interfaces, each of them the port with this number.
    pub fn new(runner: Runner, interfaces: Vec<(u16, Interface)>) -> Live {
        let outboxes = interfaces.iter().map(|&(port, _)| (port, Outbox::default())).collect();
        let attach = |(port, interface)| Attached { port, is_up: is_up(&interface), interface };
        let attached = interfaces.into_iter().map(attach).collect();
        Live { runner, attached, outboxes, clock: Clock::new(), idle: 0, ticked_ns: 0, looked_ns: 0 }
    }

    /// The time, in nanoseconds since 1970: as the system's clock said at the start, and even from there on.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// What is driven.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// What is driven, to be given commands.
    pub fn runner_mut(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Takes what has come, and sends what comes of it; `output` is told of it all. If nothing comes for a while, it waits
    /// for that, but not for longer than 16 ms.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn round<O: Output>(&mut self, output: &mut O) -> Result<(), O::Error> {
        let mut wire = Wire { outboxes: &mut self.outboxes, output };
        let mut has_come = false;
        for attached in &mut self.attached {
            has_come |= attached.receive(&mut self.runner, self.clock.now_ns(), &mut wire)?;
        }
        let now_ns = self.clock.now_ns();
        if now_ns >= self.ticked_ns + TICK_NS {
            self.ticked_ns = now_ns;
            self.runner.pass_time(now_ns, &mut wire)?;
        } else {
            self.runner.flush(&mut wire)?;
        }
        self.send();
        self.idle = if has_come { 0 } else { self.idle.saturating_add(1) };
        if self.idle > ROUNDS_AWAKE {
            self.sleep();
        }
        Ok(())
    }

    /// Looks which interfaces went down or came up, and opens those anew that were gone; twice a second at most.
    pub fn look(&mut self) -> Vec<Change> {
        let now_ns = self.now_ns();
        if now_ns < self.looked_ns + LOOK_NS {
            return Vec::new();
        }
        self.looked_ns = now_ns;
        self.attached.iter_mut().filter_map(Attached::look).collect()
    }

    /// What has been counted so far, by the interfaces, too.
    pub fn report(&mut self) -> Report {
        let report = self.runner.report();
        self.with_interfaces(report)
    }

    /// Ends the run: what is under way is processed and sent, all flows end, and the report is made.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn finish<O: Output>(&mut self, output: &mut O) -> Result<Report, O::Error> {
        let report = self.runner.finish(&mut Wire { outboxes: &mut self.outboxes, output })?;
        self.send();
        Ok(self.with_interfaces(report))
    }

    fn with_interfaces(&mut self, mut report: Report) -> Report {
        for attached in &mut self.attached {
            let port = self.runner.assembly().ports.number(attached.port);
            let name = port.map_or_else(String::new, |port| port.name.clone());
            report.interfaces.insert(name, attached.report());
        }
        report
    }

    fn send(&mut self) {
        for (attached, (_, outbox)) in self.attached.iter_mut().zip(&mut self.outboxes) {
            attached.interface.send(outbox);
        }
    }

    fn sleep(&self) {
        let mut waits: Vec<_> =
            self.attached.iter().map(|attached| PollFd::new(&attached.interface, PollFlags::IN)).collect();
        // Whether a frame, time or a signal has ended it, the next round finds out.
        let _ = poll(&mut waits, Some(&SLEEP));
    }
}

impl Attached {
    /// Takes a batch of what has come; whether anything has.
    fn receive<O: Output>(
        &mut self,
        runner: &mut Runner,
        now_ns: u64,
        wire: &mut Wire<'_, O>,
    ) -> Result<bool, O::Error> {
        let (mut has_come, mut result) = (false, Ok(()));
        let received = self.interface.receive(|data| {
            has_come = true;
            if result.is_ok() {
                let wire_len = data.len() as u32;
                let frame = Frame { timestamp_ns: now_ns, link: LinkType::Ethernet, wire_len, data };
                result = runner.receive(frame, From::Port(self.port), wire);
            }
        });
        result?;
        // An interface that went down says so once; `look` finds it, and when it is back.
        Ok(has_come && received.is_ok())
    }

    fn look(&mut self) -> Option<Change> {
        // As long as there is none, the next look tries again.
        let _ = self.interface.reopen();
        let was_up = std::mem::replace(&mut self.is_up, is_up(&self.interface));
        (was_up != self.is_up)
            .then(|| Change { interface: self.interface.name().to_owned(), is_up: self.is_up })
    }

    fn report(&mut self) -> InterfaceReport {
        let counted = self.interface.counters();
        InterfaceReport {
            name: self.interface.name().to_owned(),
            received: counted.received,
            missed: counted.missed,
            unreadable: counted.unreadable,
            sent: counted.sent,
            too_long: counted.too_long,
            no_room: counted.no_room,
            down: counted.down,
        }
    }
}

fn is_up(interface: &Interface) -> bool {
    interface.link().is_ok_and(|link| link.is_up)
}

/// An output that has packets sent, too.
struct Wire<'a, O> {
    outboxes: &'a mut [(u16, Outbox)],
    output: &'a mut O,
}

impl<O: Output> Output for Wire<'_, O> {
    type Error = O::Error;

    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), O::Error> {
        if let Some((_, outbox)) = self.outboxes.iter_mut().find(|&&mut (number, _)| number == port) {
            outbox.push(packet.data());
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
