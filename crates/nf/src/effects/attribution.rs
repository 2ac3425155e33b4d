//! Attribution: which packet, or which flow's end, brought an effect about.

use super::{Alert, Effects};

/// The cause of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectCause {
    /// The packet with this number in order of arrival.
    Packet(u64),
    /// A flow's end, by the number of its mark. Effects after the last mark have that one's number.
    End(usize),
}

/// A position in the output: the numbers of alerts, events and flow reports before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffectsMark {
    alerts: u32,
    events: u32,
    reports: u32,
}

/// The number of attributed effects of one kind, and the mark of the next end.
#[derive(Default)]
struct Progress {
    done: u32,
    end: usize,
}

impl Progress {
    /// Returns the cause of the next effect: its packet, or the first end with a later mark.
    fn next(
        &mut self,
        packet: Option<u64>,
        ends: &[EffectsMark],
        of: fn(&EffectsMark) -> u32,
    ) -> EffectCause {
        while self.end + 1 < ends.len() && of(&ends[self.end]) <= self.done {
            self.end += 1;
        }
        self.done += 1;
        packet.map_or(EffectCause::End(self.end), EffectCause::Packet)
    }
}

impl Effects {
    /// Returns the present position in the output.
    pub fn mark(&self) -> EffectsMark {
        // The numbers are bounded by `EFFECTS_MAX` and `EVENTS_MAX`.
        EffectsMark {
            alerts: self.alerts.len() as u32,
            events: self.events.len() as u32,
            reports: self.reports.len() as u32,
        }
    }

    /// Checks if there is no alert, event or flow report.
    pub fn is_empty(&self) -> bool {
        self.alerts.is_empty() && self.events.is_empty() && self.reports.is_empty()
    }

    /// Distributes the output over the parts that caused it, each in order. The counters of lost
    /// items stay here. `ends` are the [marks](Effects::mark) at which flows had ended. `part`
    /// returns the number of a cause's part, and `effects` the output of a part.
    pub fn distribute<T>(
        &mut self,
        ends: &[EffectsMark],
        parts: &mut [T],
        part: impl Fn(EffectCause) -> usize,
        effects: impl Fn(&mut T) -> &mut Option<Box<Effects>>,
    ) {
        let all = self.take();
        let mut give = |cause, act: &mut dyn FnMut(&mut Effects)| {
            if let Some(part) = parts.get_mut(part(cause)) {
                act(effects(part).get_or_insert_with(Box::default));
            }
        };
        let (mut of_alerts, mut of_events, mut of_reports) =
            (Progress::default(), Progress::default(), Progress::default());
        let mut alert_cause = |alert: &Alert| {
            of_alerts.next(alert.has_packet.then_some(alert.sequence), ends, |mark| mark.alerts)
        };
        let mut alerts = all.alerts.into_iter().enumerate().peekable();
        for (at, event) in all.events.iter().enumerate() {
            while let Some((_, alert)) = alerts.next_if(|&(at, _)| at < event.alerts_before) {
                let (cause, mut alert) = (alert_cause(&alert), Some(alert));
                give(cause, &mut |part| part.alerts.extend(alert.take()));
            }
            let cause = of_events.next(event.sequence, ends, |mark| mark.events);
            give(cause, &mut |part| part.events.copy(&all.events, at, part.alerts.len()));
        }
        for (_, alert) in alerts {
            let (cause, mut alert) = (alert_cause(&alert), Some(alert));
            give(cause, &mut |part| part.alerts.extend(alert.take()));
        }
        for (report, sequence) in all.reports.into_iter().zip(all.causes) {
            let cause = of_reports.next((sequence > 0).then_some(sequence), ends, |mark| mark.reports);
            give(cause, &mut |part| part.report(report, sequence));
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::FlowKey;

    use crate::FlowReport;
    use crate::event::{EventHeader, EventValue};

    use super::*;

    fn alert(sequence: u64, id: u32) -> Alert {
        Alert {
            timestamp_ns: 0,
            sequence,
            stage: 0,
            signature_id: id,
            signature: "test".into(),
            category: "test".into(),
            severity: 1,
            key: FlowKey::default(),
            reversed: false,
            blocked: false,
            has_packet: sequence > 0,
            ingress: 0,
            place: None,
            detail: None,
        }
    }

    fn event(effects: &mut Effects, sequence: u64, text: &str) {
        let head = EventHeader {
            timestamp_ns: 0,
            sequence,
            packet: sequence > 0,
            stage: 0,
            reversed: false,
            ingress: 0,
            key: FlowKey::default(),
            kind: "test",
            alerts_before: effects.alerts.len() as u32,
            first_field: 0,
            fields: 0,
            number: 0,
        };
        effects.events.push(head, &[("text", EventValue::Text(text.as_bytes()))]);
    }

    fn report(effects: &mut Effects, sequence: u64, vlan: u16) {
        effects.report(FlowReport { vlan, ..FlowReport::default() }, sequence);
    }

    /// A part's alerts, events with the alerts before each, and reports.
    type Seen = (Vec<u32>, Vec<(String, usize)>, Vec<u16>);

    fn seen(part: &Option<Box<Effects>>) -> Seen {
        let Some(part) = part else { return Seen::default() };
        let text = |event: crate::Event<'_>| match event.fields().next() {
            Some((_, EventValue::Text(text))) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        (
            part.alerts.iter().map(|alert| alert.signature_id).collect(),
            part.events.iter().map(|event| (text(event), event.alerts_before)).collect(),
            part.reports.iter().map(|report| report.vlan).collect(),
        )
    }

    #[test]
    fn each_packet_and_each_end_gets_its_own_effects() {
        let mut all = Effects::default();
        let mut ends = Vec::new();
        all.alert(alert(5, 1));
        event(&mut all, 5, "five");
        report(&mut all, 0, 10); // The first flow ends.
        ends.push(all.mark());
        all.alert(alert(0, 2)); // The second.
        event(&mut all, 0, "end");
        ends.push(all.mark());
        all.alert(alert(6, 3));
        all.alert(alert(6, 4));
        event(&mut all, 6, "six");
        report(&mut all, 6, 11);
        let mut parts: [Option<Box<Effects>>; 4] = Default::default();
        let part = |cause| match cause {
            EffectCause::Packet(sequence) => sequence as usize - 5,
            EffectCause::End(number) => 2 + number,
        };
        all.distribute(&ends, &mut parts, part, |part| part);
        assert!(all.is_empty());
        assert_eq!(seen(&parts[0]), (vec![1], vec![("five".to_owned(), 1)], vec![]));
        assert_eq!(seen(&parts[1]), (vec![3, 4], vec![("six".to_owned(), 2)], vec![11]));
        assert_eq!(seen(&parts[2]), (vec![], vec![], vec![10]));
        assert_eq!(seen(&parts[3]), (vec![2], vec![("end".to_owned(), 1)], vec![]));
        // Joined again, each event follows the alerts that it followed in its part.
        let mut joined = Effects::default();
        for part in &mut parts {
            joined.append(part.as_mut().unwrap());
        }
        let events = [("five", 1), ("six", 3), ("end", 4)].map(|(text, before)| (text.to_owned(), before));
        assert_eq!(seen(&Some(Box::new(joined))), (vec![1, 3, 4, 2], events.to_vec(), vec![11, 10]));
    }
}
