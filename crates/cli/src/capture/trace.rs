//! Runs packets through a policy one by one, and writes what happened to each.

use std::collections::VecDeque;

use io::capture::{CaptureDirection, Notes};
use nf::{Alert, Event, FlowReport};
use packet::Packet;
use runtime::{Frame, Ingress, Intake, Live, Output, Runner};

use super::comment;
use crate::explain::{BegunConnections, Outcome, PacketTrace, Selection, Tracer};
use crate::sinks::Capture;
use crate::spool::{self, Spool};

/// The capture file and the observer of its packets.
pub struct Trace {
    watch: TraceObserver,
    alerts: Alerts,
    selection: Selection,
    /// Of captures, which may begin amid connections.
    connections: Option<BegunConnections>,
    capture: Capture,
    written: u64,
    /// Maximum number of packets to write.
    count: u64,
}

impl Trace {
    /// Creates a writer of up to `count` selected packets.
    pub fn new(capture: Capture, selection: Selection, count: Option<u64>) -> Trace {
        Trace {
            watch: TraceObserver::default(),
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
    pub fn marks_midstream(self) -> Trace {
        Trace { connections: Some(BegunConnections::default()), ..self }
    }

    /// Runs a packet through the policy, and writes it.
    pub fn take_in(&mut self, runner: &mut Runner, frame: Frame<'_>, from: Ingress) -> anyhow::Result<()> {
        self.watch.number += 1;
        self.watch.observe(runner, frame, from, None, &mut self.alerts)?;
        let mut forwarded = VecDeque::from(runner.take_forwarded());
        while let Some(packet) = forwarded.pop_front() {
            let behind = Some(packet.node.as_str());
            self.watch.observe(runner, packet.frame(), packet.from, behind, &mut self.alerts)?;
            forwarded.extend(runner.take_forwarded());
        }
        self.write(runner)
    }

    /// Runs the packets that interfaces have received through the policy, sends the result, and
    /// writes each packet.
    pub fn round(&mut self, live: &mut Live) -> anyhow::Result<()> {
        live.round_uncaught(&mut self.watch, &mut self.alerts)?;
        self.write(live.runner())
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

    /// Completes the file. Returns the numbers of packets received and written, and the outcome of
    /// the file.
    pub fn finish(self) -> anyhow::Result<(u64, u64, spool::Outcome)> {
        Ok((self.watch.number, self.written, self.capture.finish()?))
    }

    fn write(&mut self, runner: &Runner) -> anyhow::Result<()> {
        let ports = &runner.assembly().ports;
        for TracedPacket { mut passage, has_waited } in self.watch.told.drain(..) {
            self.connections.iter_mut().for_each(|connections| connections.note(&mut passage));
            if self.written >= self.count || !self.selection.takes(&passage, runner) {
                continue;
            }
            self.written += 1;
            let comment = comment::of(&passage, &self.alerts.0, runner);
            let packet_id = passage.number.filter(|_| !passage.made);
            let notes = Notes { comment: Some(&comment), direction: None, packet_id };
            // A pending packet was written on arrival, and a generated one never arrived. A dropped
            // packet is always written.
            let has_come = !passage.made && !has_waited;
            let is_gone = matches!(passage.outcome, Outcome::Dropped(_));
            if (has_come || is_gone)
                && let Some(arrived) = passage.arrived.as_ref().or(passage.steps.first().map(|s| &s.before))
            {
                let notes = Notes { direction: (!passage.made).then_some(CaptureDirection::In), ..notes };
                self.capture.write(arrived.meta().transit.ingress, arrived, &notes);
            }
            if let Some(left) = &passage.left {
                self.capture.write(
                    ports.egress(left),
                    left,
                    &Notes { direction: Some(CaptureDirection::Out), ..notes },
                );
            }
        }
        self.alerts.0.clear();
        Ok(())
    }
}

/// Observer of each packet.
#[derive(Default)]
struct TraceObserver {
    witness: Tracer,
    /// Number of the latest packet.
    number: u64,
    /// Frames of the current round.
    received: Vec<ReceivedFrame>,
    /// Packets since the last write.
    told: Vec<TracedPacket>,
}

/// A received frame with its bytes.
struct ReceivedFrame {
    frame: Frame<'static>,
    ingress: Ingress,
    data: Box<[u8]>,
}

/// A packet and its fate.
struct TracedPacket {
    passage: PacketTrace,
    /// True if it arrived before the current packet.
    has_waited: bool,
}

impl TraceObserver {
    fn observe<O: Output>(
        &mut self,
        runner: &mut Runner,
        frame: Frame<'_>,
        from: Ingress,
        behind: Option<&str>,
        output: &mut O,
    ) -> Result<(), O::Error> {
        self.witness.expect(self.number, behind);
        runner.observe(frame, from, &mut self.witness, output)?;
        let passages = self.witness.take(&frame, from, runner).into_iter();
        self.told.extend(passages.map(|passage| TracedPacket {
            has_waited: !passage.made && passage.number != Some(self.number),
            passage,
        }));
        Ok(())
    }
}

impl Intake for TraceObserver {
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
pub struct Alerts(Vec<(String, Alert)>);

impl Output for Alerts {
    type Error = anyhow::Error;

    fn packet(&mut self, _port: u16, _packet: &Packet) -> anyhow::Result<()> {
        Ok(())
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> anyhow::Result<()> {
        self.0.push((function.to_owned(), alert.clone()));
        Ok(())
    }

    fn event(&mut self, _function: &str, _event: Event<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    fn flow(&mut self, _report: &FlowReport, _now_ns: u64) -> anyhow::Result<()> {
        Ok(())
    }
}
