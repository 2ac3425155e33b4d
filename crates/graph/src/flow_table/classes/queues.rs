//! Queues of the flows of each class.

use super::FlowClass;

/// No record.
const NONE: u32 = u32::MAX;

/// One of the two queues of a class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueId(u8);

impl QueueId {
    /// The value for a record without a queue.
    const NONE: QueueId = QueueId(u8::MAX);

    /// Returns the queue of a class's conversations, or that of its other flows.
    pub const fn of(class: FlowClass, is_conversation: bool) -> QueueId {
        QueueId((class as u8) << 1 | is_conversation as u8)
    }
}

/// A flow's place in a queue.
#[derive(Clone, Copy)]
struct Place {
    next: u32,
    previous: u32,
    queued_ns: u64,
    queue: QueueId,
}

const NOWHERE: Place = Place { next: NONE, previous: NONE, queued_ns: 0, queue: QueueId::NONE };

/// First and last flow of a queue, and its length.
#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
    len: u32,
}

/// The queues of all classes. A record is in one of them, or in none.
pub(super) struct Queues {
    /// For each record; grows with the records in use.
    places: Vec<Place>,
    /// For each [`QueueId`].
    queues: [Queue; 2 * FlowClass::COUNT],
}

impl Queues {
    /// Creates empty queues with room for this many flows.
    pub fn new(flows_max: u32) -> Queues {
        Queues {
            places: Vec::with_capacity(flows_max as usize),
            queues: [Queue { first: NONE, last: NONE, len: 0 }; 2 * FlowClass::COUNT],
        }
    }

    /// Returns the number of flows in a queue.
    pub fn len(&self, queue: QueueId) -> u32 {
        self.queues[usize::from(queue.0)].len
    }

    /// Returns the first flow of a queue.
    pub fn first(&self, queue: QueueId) -> Option<u32> {
        Some(self.queues[usize::from(queue.0)].first).filter(|&record| record != NONE)
    }

    /// Returns true if a flow is in a queue of another class.
    pub fn is_of_other_class(&self, record: u32, class: FlowClass) -> bool {
        self.places.get(record as usize).is_some_and(|place| place.queue.0 >> 1 != class as u8)
    }

    /// Returns the time passed to [`push`](Queues::push).
    pub fn queued_ns(&self, record: u32) -> u64 {
        self.places.get(record as usize).map_or(0, |place| place.queued_ns)
    }

    /// Appends a flow that is in no queue.
    pub fn push(&mut self, record: u32, id: QueueId, queued_ns: u64) {
        let at = record as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, NOWHERE);
        }
        let queue = &mut self.queues[usize::from(id.0)];
        let previous = std::mem::replace(&mut queue.last, record);
        queue.len += 1;
        match previous {
            NONE => queue.first = record,
            previous => self.places[previous as usize].next = record,
        }
        self.places[at] = Place { next: NONE, previous, queued_ns, queue: id };
    }

    /// Takes a flow out of its queue. Returns true if it was in one.
    pub fn unlink(&mut self, record: u32) -> bool {
        let Some(place) = self.places.get_mut(record as usize) else { return false };
        let Place { next, previous, queue, .. } = std::mem::replace(place, NOWHERE);
        let Some(queue) = self.queues.get_mut(usize::from(queue.0)) else { return false };
        match previous {
            NONE => queue.first = next,
            previous => self.places[previous as usize].next = next,
        }
        match next {
            NONE => queue.last = previous,
            next => self.places[next as usize].previous = previous,
        }
        queue.len -= 1;
        true
    }
}
