//! Captures with a comment on each packet: the actions of each function of a policy.

use std::collections::VecDeque;
use std::convert::Infallible;

use io::capture::{CaptureDirection, Notes};
use nf::{Alert, Event, FlowReport};
use packet::Packet;
use runtime::{Frame, Ingress, Intake, Live, Output, Runner};

use crate::error::SinkError;
use crate::explain::{self, BegunConnections, PacketOutcome, PacketTrace, Selection, Tracer};
use crate::sinks::Capture;
use crate::spool::{OutputOutcome, Spool};

/// A capture of packets that run through a policy one by one, each with a comment.
pub struct AnnotatedCapture {
    observer: PacketObserver,
    alerts: Alerts,
    selection: Selection,
    /// Of captures, which may begin amid connections.
    connections: Option<BegunConnections>,
    capture: Capture,
    written: u64,
    /// Maximum number of packets to write.
    count: u64,
}

impl AnnotatedCapture {
    /// Creates a writer of up to `count` selected packets.
    pub fn new(capture: Capture, selection: Selection, count: Option<u64>) -> AnnotatedCapture {
        AnnotatedCapture {
            observer: PacketObserver::default(),
            alerts: Alerts::default(),
            selection,
            connections: None,
            capture,
            written: 0,
            count: count.unwrap_or(u64::MAX),
        }
    }

    /// Marks packets of connections that began before the capture: a policy may decide otherwise
    /// about them if it sees the whole connection.
    pub fn marks_midstream(self) -> AnnotatedCapture {
        AnnotatedCapture { connections: Some(BegunConnections::default()), ..self }
    }

    /// Runs a packet through the policy, and writes it.
    pub fn process(&mut self, runner: &mut Runner, frame: Frame<'_>, from: Ingress) {
        self.observer.number += 1;
        let Ok(()) = self.observer.observe(runner, frame, from, None, &mut self.alerts);
        let mut forwarded = VecDeque::from(runner.take_forwarded());
        while let Some(packet) = forwarded.pop_front() {
            let after_program = Some(packet.node.as_str());
            let Ok(()) =
                self.observer.observe(runner, packet.frame(), packet.from, after_program, &mut self.alerts);
            forwarded.extend(runner.take_forwarded());
        }
        self.write(runner);
    }

    /// Runs the packets that interfaces have received through the policy, sends the result, and
    /// writes each packet.
    pub fn round(&mut self, live: &mut Live) {
        let Ok(()) = live.round_uncaught(&mut self.observer, &mut self.alerts);
        self.write(live.runner());
    }

    /// Returns whether all requested packets are written, or writing has failed.
    pub fn is_full(&mut self) -> bool {
        self.written >= self.count || self.capture.spool().is_some_and(|spool| spool.has_failed())
    }

    /// Makes the packets written so far visible to readers of the file.
    pub fn flush(&mut self) {
        self.capture.spool().into_iter().for_each(Spool::flush);
    }

    /// Reopens the file by name.
    pub fn reopen(&mut self) {
        self.capture.spool().into_iter().for_each(Spool::reopen);
    }

    /// Returns the number of packets with an unknown fate: of TCP connections that began before.
    pub fn unknown(&self) -> u64 {
        self.connections.as_ref().map_or(0, |connections| connections.unknown)
    }

    /// Processes what a live run still has.
    pub fn drain(&mut self, live: &mut Live) {
        let Ok(_) = live.finish(&mut self.alerts);
    }

    /// Completes the file. Returns the numbers of packets received and written, and the outcome of
    /// the file.
    ///
    /// # Errors
    /// A file without packets cannot be completed.
    pub fn finish(self) -> Result<(u64, u64, OutputOutcome), SinkError> {
        Ok((self.observer.number, self.written, self.capture.finish()?))
    }

    fn write(&mut self, runner: &Runner) {
        let ports = &runner.assembly().ports;
        for TracedPacket { mut trace, has_waited } in self.observer.taken.drain(..) {
            self.connections.iter_mut().for_each(|connections| connections.note(&mut trace));
            if self.written >= self.count || !self.selection.takes(&trace, runner) {
                continue;
            }
            self.written += 1;
            let comment = explain::comment(&trace, &self.alerts.0, runner);
            let packet_id = trace.number.filter(|_| !trace.generated);
            let notes = Notes { comment: Some(&comment), direction: None, packet_id };
            // A pending packet was written on arrival, and a generated one never arrived. A dropped
            // packet is always written.
            let has_come = !trace.generated && !has_waited;
            let is_gone = matches!(trace.outcome, PacketOutcome::Dropped(_));
            if (has_come || is_gone)
                && let Some(arrived) = trace.arrived.as_ref().or(trace.steps.first().map(|s| &s.before))
            {
                let notes = Notes { direction: (!trace.generated).then_some(CaptureDirection::In), ..notes };
                self.capture.write(arrived.meta().transit.ingress, arrived, &notes);
            }
            if let Some(left) = &trace.left {
                self.capture.write(
                    ports.egress(left),
                    left,
                    &Notes { direction: Some(CaptureDirection::Out), ..notes },
                );
            }
        }
        self.alerts.0.clear();
    }
}

/// Observer of each packet.
#[derive(Default)]
struct PacketObserver {
    tracer: Tracer,
    /// Number of the latest packet.
    number: u64,
    /// Frames of the current round.
    received: Vec<ReceivedFrame>,
    /// Packets since the last write.
    taken: Vec<TracedPacket>,
}

/// A received frame and a copy of its bytes.
struct ReceivedFrame {
    frame: Frame<'static>,
    ingress: Ingress,
    data: Box<[u8]>,
}

/// A packet and its fate.
struct TracedPacket {
    trace: PacketTrace,
    /// True if it arrived before the current packet.
    has_waited: bool,
}

impl PacketObserver {
    fn observe<O: Output>(
        &mut self,
        runner: &mut Runner,
        frame: Frame<'_>,
        from: Ingress,
        after_program: Option<&str>,
        output: &mut O,
    ) -> Result<(), O::Error> {
        self.tracer.expect(self.number, after_program);
        runner.observe(frame, from, &mut self.tracer, output)?;
        let traces = self.tracer.take(&frame, from, runner).into_iter();
        self.taken.extend(traces.map(|trace| TracedPacket {
            has_waited: !trace.generated && trace.number != Some(self.number),
            trace,
        }));
        Ok(())
    }
}

impl Intake for PacketObserver {
    fn receive(&mut self, _runner: &mut Runner, frame: Frame<'_>, ingress: Ingress) {
        self.received.push(ReceivedFrame {
            frame: Frame { data: &[], ..frame },
            ingress,
            data: frame.data.into(),
        });
    }

    fn process<O: Output>(&mut self, runner: &mut Runner, output: &mut O) -> Result<(), O::Error> {
        for ReceivedFrame { frame, ingress, data } in std::mem::take(&mut self.received) {
            self.number += 1;
            self.observe(runner, Frame { data: &data, ..frame }, ingress, None, output)?;
        }
        // There is no batch; this returns buffers and passes pending output on.
        runner.flush(output)
    }
}

/// Alerts, each with its function.
#[derive(Default)]
struct Alerts(Vec<(String, Alert)>);

impl Output for Alerts {
    type Error = Infallible;

    fn packet(&mut self, _port: u16, _packet: &Packet) -> Result<(), Infallible> {
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), Infallible> {
        self.0.push((function.to_owned(), alert.clone()));
        Ok(())
    }

    fn event(&mut self, _function: &str, _event: Event<'_>) -> Result<(), Infallible> {
        Ok(())
    }

    fn flow(&mut self, _report: &FlowReport, _now_ns: u64) -> Result<(), Infallible> {
        Ok(())
    }
}
