//! Events with named fields, such as an HTTP transaction, for consumers such as EVE.
//!
//! Bounded and without an allocation per event: all texts share one buffer until the runner takes
//! them.

use packet::FlowKey;

use crate::alert::Alert;

/// Limit on the events held until the runner takes them. Further ones are counted as lost.
pub const EVENTS_MAX: usize = 65_536;
/// Limit on the fields of an event. Further ones are cut and counted.
pub const EVENT_FIELDS_MAX: usize = 32;
/// Limit on the bytes of all texts held. An event is counted as lost if its texts do not fit.
pub const EVENT_TEXTS_MAX: usize = 4 << 20;

/// An event in a flow, emitted by an NF. Becomes one EVE JSON line.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Arrival time of the packet, or time of the flow's end.
    pub timestamp_ns: u64,
    /// The packet's number; `None` at the flow's end.
    pub sequence: Option<u64>,
    /// The port that the packet arrived at; 0 without a packet.
    pub ingress: u16,
    /// Index of the NF.
    pub stage: u16,
    /// The flow's key.
    pub key: FlowKey,
    /// Set if it is about traffic from the key's second end to its first.
    pub reversed: bool,
    /// EVE's event type: `http`.
    pub kind: &'static str,
    /// Number of held alerts that precede it.
    pub alerts_before: usize,
    fields: &'a [Field],
    texts: &'a [u8],
}

/// The value of an event's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventValue<'a> {
    /// A number.
    Number(u64),
    /// Text of arbitrary bytes.
    Text(&'a [u8]),
    /// A boolean.
    Flag(bool),
    /// An array or object already in JSON.
    Json(&'a [u8]),
}

/// A field of an event: name and value.
pub type EventField<'a> = (&'static str, EventValue<'a>);

impl<'a> Event<'a> {
    /// Returns the fields, in the NF's order.
    pub fn fields(&self) -> impl Iterator<Item = EventField<'a>> + use<'a> {
        let texts = self.texts;
        self.fields.iter().map(move |field| (field.name, field.value.read(texts)))
    }
}

/// The held events.
#[derive(Debug, Default)]
pub struct Events {
    heads: Vec<EventHeader>,
    fields: Vec<Field>,
    texts: Vec<u8>,
    lost: u64,
    fields_cut: u64,
}

/// An event as stored, with its fields by position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventHeader {
    pub timestamp_ns: u64,
    pub sequence: u64,
    /// Unset if the event has no packet.
    pub packet: bool,
    pub stage: u16,
    pub reversed: bool,
    pub ingress: u16,
    pub key: FlowKey,
    pub kind: &'static str,
    pub alerts_before: u32,
    /// Position of the fields. `number`: position at which the event was emitted.
    pub first_field: u32,
    pub fields: u32,
    pub number: u32,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    value: StoredValue,
}

#[derive(Clone, Copy, Debug)]
enum StoredValue {
    Number(u64),
    Text { start: u32, len: u32 },
    Flag(bool),
    Json { start: u32, len: u32 },
}

impl StoredValue {
    fn text_len(self) -> usize {
        match self {
            StoredValue::Number(_) | StoredValue::Flag(_) => 0,
            StoredValue::Text { len, .. } | StoredValue::Json { len, .. } => len as usize,
        }
    }

    fn read(self, texts: &[u8]) -> EventValue<'_> {
        let text = |start: u32, len: u32| {
            let text = texts.get(start as usize..).and_then(|rest| rest.get(..len as usize));
            text.unwrap_or_default()
        };
        match self {
            StoredValue::Number(number) => EventValue::Number(number),
            StoredValue::Text { start, len } => EventValue::Text(text(start, len)),
            StoredValue::Flag(flag) => EventValue::Flag(flag),
            StoredValue::Json { start, len } => EventValue::Json(text(start, len)),
        }
    }
}

impl Events {
    /// Returns the number of events held.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Checks if no event is held.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Returns the held events, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        self.heads.iter().map(|head| {
            let first = head.first_field as usize;
            Event {
                timestamp_ns: head.timestamp_ns,
                sequence: head.packet.then_some(head.sequence),
                ingress: head.ingress,
                stage: head.stage,
                key: head.key,
                reversed: head.reversed,
                kind: head.kind,
                alerts_before: head.alerts_before as usize,
                fields: self.fields.get(first..first + head.fields as usize).unwrap_or_default(),
                texts: &self.texts,
            }
        })
    }

    /// Discards the held events.
    pub fn clear(&mut self) {
        self.heads.clear();
        self.fields.clear();
        self.texts.clear();
    }

    /// Moves all events of `others` here, as if they had been emitted here after `alerts` alerts.
    pub(crate) fn append(&mut self, others: &mut Events, alerts: usize) {
        for at in 0..others.heads.len() {
            self.copy(others, at, alerts + others.heads[at].alerts_before as usize);
        }
        self.lost += std::mem::take(&mut others.lost);
        self.fields_cut += std::mem::take(&mut others.fields_cut);
        others.clear();
    }

    /// Copies one of `others`, to follow this many alerts.
    pub(crate) fn copy(&mut self, others: &Events, at: usize, alerts_before: usize) {
        let Some(&head) = others.heads.get(at) else { return };
        let first = head.first_field as usize;
        let fields = others.fields.get(first..first + head.fields as usize).unwrap_or_default();
        let texts_len: usize = fields.iter().map(|field| field.value.text_len()).sum();
        if !self.has_room(texts_len) {
            self.lost += 1;
            return;
        }
        let (number, first_field) = (self.heads.len() as u32, self.fields.len() as u32);
        for field in fields {
            let value = self.hold(field.value.read(&others.texts));
            self.fields.push(Field { value, ..*field });
        }
        self.heads.push(EventHeader { number, first_field, alerts_before: alerts_before as u32, ..head });
    }

    /// Checks if there is room for an event with this many bytes of text.
    fn has_room(&self, texts_len: usize) -> bool {
        self.heads.len() < EVENTS_MAX && texts_len <= EVENT_TEXTS_MAX - self.texts.len()
    }

    /// Stores a value, copying its text.
    fn hold(&mut self, value: EventValue<'_>) -> StoredValue {
        let mut keep = |text: &[u8]| {
            let start = self.texts.len() as u32;
            self.texts.extend_from_slice(text);
            (start, text.len() as u32)
        };
        match value {
            EventValue::Number(number) => StoredValue::Number(number),
            EventValue::Flag(flag) => StoredValue::Flag(flag),
            EventValue::Text(text) => {
                let (start, len) = keep(text);
                StoredValue::Text { start, len }
            }
            EventValue::Json(text) => {
                let (start, len) = keep(text);
                StoredValue::Json { start, len }
            }
        }
    }

    /// Takes all held events.
    pub(crate) fn take(&mut self) -> Events {
        Events {
            heads: std::mem::take(&mut self.heads),
            fields: std::mem::take(&mut self.fields),
            texts: std::mem::take(&mut self.texts),
            lost: 0,
            fields_cut: 0,
        }
    }

    /// Returns the number of events lost because the buffer was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of fields cut beyond [`EVENT_FIELDS_MAX`].
    pub fn fields_cut(&self) -> u64 {
        self.fields_cut
    }

    /// Checks if the events or the texts are more than half full.
    pub fn is_half_full(&self) -> bool {
        self.heads.len() > EVENTS_MAX / 2 || self.texts.len() > EVENT_TEXTS_MAX / 2
    }

    /// Adds an event with these fields.
    pub(crate) fn push(&mut self, head: EventHeader, fields: &[EventField<'_>]) {
        let kept = &fields[..fields.len().min(EVENT_FIELDS_MAX)];
        let texts_len: usize = kept.iter().map(|(_, value)| value.text_len()).sum();
        if !self.has_room(texts_len) {
            self.lost += 1;
            return;
        }
        self.fields_cut += (fields.len() - kept.len()) as u64;
        let (number, first_field) = (self.heads.len() as u32, self.fields.len() as u32);
        for &(name, value) in kept {
            let value = self.hold(value);
            self.fields.push(Field { name, value });
        }
        self.heads.push(EventHeader { number, first_field, fields: kept.len() as u32, ..head });
    }

    /// Sorts the events from number `first` on by packet and NF. `alerts`, from number
    /// `first_alert` on, must be sorted. An alert precedes the events of its packet and NF.
    pub(crate) fn put_in_order(&mut self, first: usize, alerts: &[Alert], first_alert: usize) {
        let heads = self.heads.get_mut(first..).unwrap_or_default();
        heads.sort_unstable_by_key(|head| (head.sequence, head.stage, head.number));
        let behind = alerts.get(first_alert..).unwrap_or_default();
        for head in heads {
            head.packet = true;
            let place = (head.sequence, head.stage);
            let before = behind.partition_point(|alert| (alert.sequence, alert.stage) <= place);
            head.alerts_before = (first_alert.min(alerts.len()) + before) as u32;
        }
    }
}

impl EventValue<'_> {
    fn text_len(&self) -> usize {
        match self {
            EventValue::Number(_) | EventValue::Flag(_) => 0,
            EventValue::Text(text) | EventValue::Json(text) => text.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(sequence: u64, stage: u16) -> EventHeader {
        EventHeader {
            timestamp_ns: 1,
            sequence,
            packet: true,
            stage,
            reversed: false,
            ingress: 0,
            key: FlowKey::default(),
            kind: "test",
            alerts_before: 0,
            first_field: 0,
            fields: 0,
            number: 0,
        }
    }

    fn told(events: &Events) -> Vec<(Option<u64>, Vec<EventField<'_>>)> {
        events.iter().map(|event| (event.sequence, event.fields().collect())).collect()
    }

    #[test]
    fn events_are_sorted_by_packet_and_nf() {
        let mut events = Events::default();
        let (word, number) = (EventValue::Text(b"word"), EventValue::Number(7));
        events.push(head(5, 1), &[("a", word)]);
        events.push(head(5, 0), &[("b", number), ("c", word)]);
        events.push(head(4, 1), &[]);
        events.push(head(5, 0), &[("d", number)]);
        events.put_in_order(0, &[], 0);
        let (b, d) = (vec![("b", number), ("c", word)], vec![("d", number)]);
        assert_eq!(
            told(&events),
            [(Some(4), vec![]), (Some(5), b), (Some(5), d), (Some(5), vec![("a", word)])]
        );
        events.clear();
        assert!(events.is_empty());
    }

    #[test]
    fn appended_events_equal_events_emitted_here() {
        let texts = [vec![7; 3], vec![8; EVENT_TEXTS_MAX - 5], vec![9; 2]];
        let tell = |events: &mut Events, i: usize| {
            let fields = [("text", EventValue::Text(&texts[i])), ("number", EventValue::Number(i as u64))];
            events.push(head(9 - i as u64, i as u16), &fields);
        };
        let (mut all, mut here, mut there) = (Events::default(), Events::default(), Events::default());
        tell(&mut all, 0);
        tell(&mut here, 0);
        for i in [2, 1, 1] {
            // The last one does not fit, in either place.
            tell(&mut all, i);
            tell(&mut there, i);
        }
        here.append(&mut there, 0);
        for events in [&mut all, &mut here] {
            events.put_in_order(0, &[], 0);
        }
        assert_eq!(told(&here), told(&all));
        assert_eq!((here.len(), here.lost(), there.len(), there.lost()), (3, 1, 0, 0));
        assert_eq!(all.lost(), 1);
    }

    #[test]
    fn events_are_bounded_and_losses_counted() {
        let mut events = Events::default();
        let long = vec![0; EVENT_TEXTS_MAX / 2 + 1];
        for _ in 0..2 {
            events.push(head(0, 0), &[("a", EventValue::Text(&long))]);
        }
        assert_eq!((events.len(), events.lost(), events.is_half_full()), (1, 1, true));
        let many = [("a", EventValue::Number(1)); EVENT_FIELDS_MAX + 3];
        events.push(head(0, 0), &many);
        assert_eq!((told(&events)[1].1.len(), events.fields_cut()), (EVENT_FIELDS_MAX, 3));
        events.clear();
        (0..EVENTS_MAX + 2).for_each(|_| events.push(head(0, 0), &[]));
        assert_eq!((events.len(), events.lost()), (EVENTS_MAX, 3));
    }
}
