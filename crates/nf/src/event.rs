//! What functions tell those who listen: events with named fields, such as a transaction of HTTP.
//! Bounded, and without an allocation for each: their texts lie in one piece of memory until the
//! runner has taken them.

use packet::FlowKey;

/// Events that are held until the runner takes them; further ones are counted as lost.
pub const EVENTS_MAX: usize = 65_536;
/// Fields of an event at most; further ones are cut off and counted.
pub const EVENT_FIELDS_MAX: usize = 32;
/// Bytes of all held events' texts at most; an event whose texts find no room is counted as lost.
pub const EVENT_TEXTS_MAX: usize = 4 << 20;

/// Something that happened in a flow, as a function tells it. Becomes one EVE JSON line.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// When the packet came, or the flow ended.
    pub timestamp_ns: u64,
    /// The packet's number; none if the flow's end is the occasion.
    pub sequence: Option<u64>,
    /// The port that the packet came in by; 0 without a packet.
    pub ingress: u16,
    /// The function's place in the chain.
    pub stage: u16,
    /// The flow's key.
    pub key: FlowKey,
    /// Whether it is about what goes from the key's high end to its low end.
    pub reversed: bool,
    /// What it is about, in EVE's words: `http`.
    pub kind: &'static str,
    /// How many of the held alerts come before it.
    pub alerts_before: usize,
    fields: &'a [Field],
    texts: &'a [u8],
}

/// The value of an event's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventValue<'a> {
    /// A number.
    Number(u64),
    /// A text, of any bytes.
    Text(&'a [u8]),
    /// Yes or no.
    Flag(bool),
    /// A value that is written in JSON already: an array or an object.
    Json(&'a [u8]),
}

/// A field of an event: its name, and its value.
pub type EventField<'a> = (&'static str, EventValue<'a>);

impl<'a> Event<'a> {
    /// The fields, in the function's order.
    pub fn fields(&self) -> impl Iterator<Item = EventField<'a>> + use<'a> {
        let texts = self.texts;
        self.fields.iter().map(move |field| (field.name, field.value.read(texts)))
    }
}

/// The events that are held.
#[derive(Debug, Default)]
pub struct Events {
    heads: Vec<Head>,
    fields: Vec<Field>,
    texts: Vec<u8>,
    lost: u64,
    fields_cut: u64,
}

/// An event as it is held: its fields by their place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub timestamp_ns: u64,
    pub sequence: u64,
    /// Whether there is a packet.
    pub packet: bool,
    pub stage: u16,
    pub reversed: bool,
    pub ingress: u16,
    pub key: FlowKey,
    pub kind: &'static str,
    pub alerts_before: u32,
    /// Where its fields are; as a number, where it stood when it was told.
    pub first_field: u32,
    pub fields: u32,
    pub number: u32,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    value: Held,
}

#[derive(Clone, Copy, Debug)]
enum Held {
    Number(u64),
    Text { start: u32, len: u32 },
    Flag(bool),
    Json { start: u32, len: u32 },
}

impl Held {
    fn text_len(self) -> usize {
        match self {
            Held::Number(_) | Held::Flag(_) => 0,
            Held::Text { len, .. } | Held::Json { len, .. } => len as usize,
        }
    }

    fn read(self, texts: &[u8]) -> EventValue<'_> {
        let text = |start: u32, len: u32| {
            let text = texts.get(start as usize..).and_then(|rest| rest.get(..len as usize));
            text.unwrap_or_default()
        };
        match self {
            Held::Number(number) => EventValue::Number(number),
            Held::Text { start, len } => EventValue::Text(text(start, len)),
            Held::Flag(flag) => EventValue::Flag(flag),
            Held::Json { start, len } => EventValue::Json(text(start, len)),
        }
    }
}

impl Events {
    /// How many are held.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Those that are held, oldest first.
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

    /// Forgets those that are held: they were taken.
    pub fn clear(&mut self) {
        self.heads.clear();
        self.fields.clear();
        self.texts.clear();
    }

    /// Adds those that are held elsewhere, as if they had been told here, and leaves none there.
    pub(crate) fn append(&mut self, others: &mut Events) {
        for at in 0..others.heads.len() {
            let head = others.heads[at];
            let first = head.first_field as usize;
            let fields = others.fields.get(first..first + head.fields as usize).unwrap_or_default();
            let texts_len: usize = fields.iter().map(|field| field.value.text_len()).sum();
            if !self.has_room(texts_len) {
                self.lost += 1;
                continue;
            }
            let (number, first_field) = (self.heads.len() as u32, self.fields.len() as u32);
            for field in fields {
                let value = self.hold(field.value.read(&others.texts));
                self.fields.push(Field { value, ..*field });
            }
            self.heads.push(Head { number, first_field, ..head });
        }
        self.lost += std::mem::take(&mut others.lost);
        self.fields_cut += std::mem::take(&mut others.fields_cut);
        others.clear();
    }

    /// Whether there is room for one more event, with so many bytes of text.
    fn has_room(&self, texts_len: usize) -> bool {
        self.heads.len() < EVENTS_MAX && texts_len <= EVENT_TEXTS_MAX - self.texts.len()
    }

    /// Takes a value, with its text, if it is one.
    fn hold(&mut self, value: EventValue<'_>) -> Held {
        let mut keep = |text: &[u8]| {
            let start = self.texts.len() as u32;
            self.texts.extend_from_slice(text);
            (start, text.len() as u32)
        };
        match value {
            EventValue::Number(number) => Held::Number(number),
            EventValue::Flag(flag) => Held::Flag(flag),
            EventValue::Text(text) => {
                let (start, len) = keep(text);
                Held::Text { start, len }
            }
            EventValue::Json(text) => {
                let (start, len) = keep(text);
                Held::Json { start, len }
            }
        }
    }

    /// Takes those that are held.
    pub(crate) fn take(&mut self) -> Events {
        Events {
            heads: std::mem::take(&mut self.heads),
            fields: std::mem::take(&mut self.fields),
            texts: std::mem::take(&mut self.texts),
            lost: 0,
            fields_cut: 0,
        }
    }

    /// Events that found no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Fields beyond [`EVENT_FIELDS_MAX`].
    pub fn fields_cut(&self) -> u64 {
        self.fields_cut
    }

    /// Whether less than half of what can be held is left, of whatever kind.
    pub fn is_half_full(&self) -> bool {
        self.heads.len() > EVENTS_MAX / 2 || self.texts.len() > EVENT_TEXTS_MAX / 2
    }

    /// Adds an event with these fields.
    pub(crate) fn tell(&mut self, head: Head, fields: &[EventField<'_>]) {
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
        self.heads.push(Head { number, first_field, fields: kept.len() as u32, ..head });
    }

    /// Puts the events from number `first` on in the order of packets and functions; `alerts`, from
    /// number `first_alert` on, are in that order. An alert comes before the events of its packet
    /// and function.
    pub(crate) fn put_in_order(&mut self, first: usize, alerts: &[crate::Alert], first_alert: usize) {
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

    fn head(sequence: u64, stage: u16) -> Head {
        Head {
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
    fn events_come_out_in_the_order_of_packets_and_functions() {
        let mut events = Events::default();
        let (word, number) = (EventValue::Text(b"word"), EventValue::Number(7));
        events.tell(head(5, 1), &[("a", word)]);
        events.tell(head(5, 0), &[("b", number), ("c", word)]);
        events.tell(head(4, 1), &[]);
        events.tell(head(5, 0), &[("d", number)]);
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
    fn what_was_told_elsewhere_is_as_if_it_had_been_told_here() {
        let texts = [vec![7; 3], vec![8; EVENT_TEXTS_MAX - 5], vec![9; 2]];
        let tell = |events: &mut Events, i: usize| {
            let fields = [("text", EventValue::Text(&texts[i])), ("number", EventValue::Number(i as u64))];
            events.tell(head(9 - i as u64, i as u16), &fields);
        };
        let (mut all, mut here, mut there) = (Events::default(), Events::default(), Events::default());
        tell(&mut all, 0);
        tell(&mut here, 0);
        for i in [2, 1, 1] {
            // The last one finds no room, here or there.
            tell(&mut all, i);
            tell(&mut there, i);
        }
        here.append(&mut there);
        for events in [&mut all, &mut here] {
            events.put_in_order(0, &[], 0);
        }
        assert_eq!(told(&here), told(&all));
        assert_eq!((here.len(), here.lost(), there.len(), there.lost()), (3, 1, 0, 0));
        assert_eq!(all.lost(), 1);
    }

    #[test]
    fn what_is_held_is_bounded_and_what_is_lost_counted() {
        let mut events = Events::default();
        let long = vec![0; EVENT_TEXTS_MAX / 2 + 1];
        for _ in 0..2 {
            events.tell(head(0, 0), &[("a", EventValue::Text(&long))]);
        }
        assert_eq!((events.len(), events.lost(), events.is_half_full()), (1, 1, true));
        let many = [("a", EventValue::Number(1)); EVENT_FIELDS_MAX + 3];
        events.tell(head(0, 0), &many);
        assert_eq!((told(&events)[1].1.len(), events.fields_cut()), (EVENT_FIELDS_MAX, 3));
        events.clear();
        (0..EVENTS_MAX + 2).for_each(|_| events.tell(head(0, 0), &[]));
        assert_eq!((events.len(), events.lost()), (EVENTS_MAX, 3));
    }
}
