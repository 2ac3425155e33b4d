//! The receiver of what leaves a graph.

use nf::{Alert, Effects, Event, EventValue, FlowReport};
use packet::Packet;

use crate::external::streams::FRAME_EVENT;

/// Receives what leaves a graph.
pub trait Output {
    /// Reason why it cannot take more.
    type Error;
    /// Takes a packet that leaves by a port.
    ///
    /// # Errors
    /// The output cannot take more.
    fn packet(&mut self, port: u16, packet: &Packet) -> Result<(), Self::Error>;
    /// Takes an alert of the NF with this name.
    ///
    /// # Errors
    /// The output cannot take more.
    fn alert(&mut self, function: &str, alert: &Alert) -> Result<(), Self::Error>;
    /// Takes an event of a flow, reported by the NF with this name.
    ///
    /// # Errors
    /// The output cannot take more.
    fn event(&mut self, function: &str, event: Event<'_>) -> Result<(), Self::Error>;
    /// Takes a monitor's report of a flow; `now_ns` is the time of the run.
    ///
    /// # Errors
    /// The output cannot take more.
    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> Result<(), Self::Error>;
    /// Takes a frame for the program of the native node with this name. It is lost where no program
    /// runs.
    fn stream_frame(&mut self, _node: &str, _frame: &[u8]) {}
}

/// Passes effects of NFs to an output, and counts them.
pub(super) struct EffectsWriter<'a> {
    /// Name of each NF of the graph.
    pub names: &'a [String],
    pub now_ns: u64,
    pub alerts: &'a mut u64,
    pub events: &'a mut u64,
}

/// Passes alerts, events and flow reports of NFs with these names to an output, in the order of
/// their occurrence. Returns the numbers of alerts and events.
///
/// # Errors
/// Those of `output`.
pub fn write_effects<O: Output>(
    effects: &mut Effects,
    names: &[String],
    now_ns: u64,
    output: &mut O,
) -> Result<(u64, u64), O::Error> {
    let (mut alerts, mut events) = (0, 0);
    let mut writer = EffectsWriter { names, now_ns, alerts: &mut alerts, events: &mut events };
    writer.write(effects, output)?;
    Ok((alerts, events))
}

/// Returns the numbers of alerts and of events.
pub fn raised(effects: &Effects) -> [u64; 2] {
    let events = effects.events.iter().filter(|event| event.kind != FRAME_EVENT);
    [effects.alerts.len() as u64, events.count() as u64]
}

impl EffectsWriter<'_> {
    /// Writes alerts and events in the order of their occurrence, then flow reports.
    pub fn write<O: Output>(&mut self, effects: &mut Effects, output: &mut O) -> Result<(), O::Error> {
        let name = |stage: u16| self.names.get(stage as usize).map_or("", String::as_str);
        let [alerts, events] = raised(effects);
        *self.alerts += alerts;
        *self.events += events;
        let mut alerts_written = 0;
        for event in effects.events.iter() {
            let before = effects.alerts.get(alerts_written..event.alerts_before).unwrap_or_default();
            before.iter().try_for_each(|alert| output.alert(name(alert.stage), alert))?;
            alerts_written = alerts_written.max(event.alerts_before);
            if event.kind == FRAME_EVENT {
                write_frame(name(event.stage), event, output);
                continue;
            }
            output.event(name(event.stage), event)?;
        }
        let rest = effects.alerts.get(alerts_written..).unwrap_or_default();
        rest.iter().try_for_each(|alert| output.alert(name(alert.stage), alert))?;
        effects.alerts.clear();
        effects.events.clear();
        effects.reports.drain(..).try_for_each(|report| output.flow(&report, self.now_ns))
    }
}

/// Passes the frame of an event to the output.
fn write_frame<O: Output>(node: &str, event: Event<'_>, output: &mut O) {
    for (_, value) in event.fields() {
        if let EventValue::Text(frame) = value {
            output.stream_frame(node, frame);
        }
    }
}
