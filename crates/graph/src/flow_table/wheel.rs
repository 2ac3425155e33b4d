//! Timers of flows: a hierarchical timing wheel (Varghese and Lauck, 1987), one timer per record.
//!
//! Setting, moving and removing a timer has constant cost. Time may jump by years, as in captures,
//! without a step for each tick.

/// No record.
const NONE: u32 = u32::MAX;

/// Nanoseconds per tick, as a power of two: 16.8 ms. A timer fires at most this much late.
const TICK_BITS: u32 = 24;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 4;

/// Ticks that the wheel spans. Later timers are checked again once per round.
const SPAN: u64 = 1 << (SLOT_BITS * LEVELS as u32);

/// The timers of a table of records.
pub(crate) struct Wheel {
    heads: Box<[[u32; SLOTS]; LEVELS]>,
    occupied: [u64; LEVELS],
    /// Grows with the records in use.
    links: Vec<Link>,
    now: u64,
    /// No timer fires before this tick.
    earliest: u64,
    started: bool,
}

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    previous: u32,
    /// The deadline, in ticks.
    due: u64,
    /// The level and slot with this timer; `level == LEVELS` for none.
    level: u8,
    slot: u8,
}

const IDLE: Link = Link { next: NONE, previous: NONE, due: 0, level: LEVELS as u8, slot: 0 };

impl Wheel {
    /// Creates a wheel for records `0..records`.
    pub fn new(records: u32) -> Wheel {
        Wheel {
            heads: Box::new([[NONE; SLOTS]; LEVELS]),
            occupied: [0; LEVELS],
            links: Vec::with_capacity(records as usize),
            now: 0,
            earliest: u64::MAX,
            started: false,
        }
    }

    /// Returns the tick of a time. Timers fire when the tick of their deadline has passed.
    #[inline]
    pub fn tick(time_ns: u64) -> u64 {
        time_ns >> TICK_BITS
    }

    /// Returns the earliest time at which a timer may fire. Until then [`Wheel::advance`] has no
    /// effect.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.earliest.saturating_mul(1 << TICK_BITS)
    }

    /// Sets the record's timer, moving it if it was set.
    pub fn set(&mut self, record: u32, deadline_ns: u64) {
        self.cancel(record);
        let at = record as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, IDLE);
        }
        let due = (Wheel::tick(deadline_ns) + 1).max(self.now + 1);
        self.links[at].due = due;
        self.earliest = self.earliest.min(due);
        self.link(record);
    }

    /// Sets the record's timer to an earlier time; a later one leaves it.
    pub fn bring_forward(&mut self, record: u32, deadline_ns: u64) {
        if self.links.get(record as usize).is_some_and(|link| Wheel::tick(deadline_ns) + 1 < link.due) {
            self.set(record, deadline_ns);
        }
    }

    /// Removes the record's timer, if it is set.
    pub fn cancel(&mut self, record: u32) {
        let Some(&link) = self.links.get(record as usize) else { return };
        let (level, slot) = (link.level as usize, link.slot as usize);
        if level == LEVELS {
            return;
        }
        match link.previous {
            NONE => self.heads[level][slot] = link.next,
            previous => self.links[previous as usize].next = link.next,
        }
        if link.next != NONE {
            self.links[link.next as usize].previous = link.previous;
        }
        if self.heads[level][slot] == NONE {
            self.occupied[level] &= !(1 << slot);
        }
        self.links[record as usize] = IDLE;
    }

    /// Advances the time to `now_ns`. Removes the expired timers, and adds their records to `fired`
    /// in order of their ticks.
    pub fn advance(&mut self, now_ns: u64, fired: &mut Vec<u32>) {
        let to = Wheel::tick(now_ns);
        if self.started && to < self.earliest {
            return;
        }
        if !self.started {
            // The first call sets the clock. Timers set before it do not matter.
            self.started = true;
            if self.occupied == [0; LEVELS] {
                self.now = to;
            }
        }
        while self.now < to {
            self.now = self.next_stop().min(to);
            self.cascade();
            self.fire(fired);
        }
        self.earliest = self.next_stop();
    }

    /// Returns the next tick that begins a nonempty slot.
    fn next_stop(&self) -> u64 {
        let stop = |level: usize| {
            let shift = SLOT_BITS * level as u32;
            let next = (self.now >> shift) + 1;
            let slots = self.occupied[level].rotate_right(next as u32 % SLOTS as u32);
            (slots != 0).then(|| (next + u64::from(slots.trailing_zeros())) << shift)
        };
        (0..LEVELS).filter_map(stop).min().unwrap_or(u64::MAX)
    }

    /// Moves timers from coarser slots that begin now to finer ones.
    fn cascade(&mut self) {
        for level in (1..LEVELS).rev() {
            let shift = SLOT_BITS * level as u32;
            if self.now & ((1 << shift) - 1) != 0 {
                continue;
            }
            let slot = (self.now >> shift) as usize % SLOTS;
            let mut record = std::mem::replace(&mut self.heads[level][slot], NONE);
            self.occupied[level] &= !(1 << slot);
            while record != NONE {
                let next = self.links[record as usize].next;
                self.link(record);
                record = next;
            }
        }
    }

    fn fire(&mut self, fired: &mut Vec<u32>) {
        let slot = self.now as usize % SLOTS;
        let mut record = std::mem::replace(&mut self.heads[0][slot], NONE);
        self.occupied[0] &= !(1 << slot);
        while record != NONE {
            let next = self.links[record as usize].next;
            self.links[record as usize] = IDLE;
            fired.push(record);
            record = next;
        }
    }

    /// Links the record's timer into the slot of its deadline.
    fn link(&mut self, record: u32) {
        let due = self.links[record as usize].due;
        let ahead = due.saturating_sub(self.now).min(SPAN - 1);
        let at = self.now + ahead;
        let mut level = 0;
        while level + 1 < LEVELS && ahead >> (SLOT_BITS * (level as u32 + 1)) != 0 {
            level += 1;
        }
        let slot = (at >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        let next = std::mem::replace(&mut self.heads[level][slot], record);
        if next != NONE {
            self.links[next as usize].previous = record;
        }
        self.occupied[level] |= 1 << slot;
        self.links[record as usize] =
            Link { next, previous: NONE, due, level: level as u8, slot: slot as u8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Forward(u32, u64),
        Cancel(u32),
        Advance(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let record = 0u32..20;
        let ahead = prop_oneof![0u64..1 << 26, 0u64..1 << 34, 0u64..1 << 44, 0u64..1 << 50];
        prop::collection::vec(
            prop_oneof![
                (record.clone(), ahead.clone()).prop_map(|(r, a)| Step::Set(r, a)),
                (record.clone(), ahead.clone()).prop_map(|(r, a)| Step::Forward(r, a)),
                record.prop_map(Step::Cancel),
                ahead.prop_map(Step::Advance),
            ],
            1..120,
        )
    }

    proptest! {
        /// Compares with a list: a timer fires once, when its tick has come.
        #[test]
        fn fires_like_a_list(start in 0u64..1 << 60, steps in steps()) {
            let mut wheel = Wheel::new(20);
            let mut list = [None::<u64>; 20];
            let mut now = start;
            wheel.advance(now, &mut Vec::new());
            for step in steps {
                match step {
                    Step::Set(r, ahead) => {
                        wheel.set(r, now + ahead);
                        list[r as usize] = Some(Wheel::tick(now + ahead) + 1);
                    }
                    Step::Forward(r, ahead) if list[r as usize].is_some() => {
                        wheel.bring_forward(r, now + ahead);
                        list[r as usize] = list[r as usize].map(|due| due.min(Wheel::tick(now + ahead) + 1));
                    }
                    Step::Forward(..) => {}
                    Step::Cancel(r) => {
                        wheel.cancel(r);
                        list[r as usize] = None;
                    }
                    Step::Advance(by) => {
                        now += by;
                        let mut fired = Vec::new();
                        let is_due = now >= wheel.due_ns();
                        wheel.advance(now, &mut fired);
                        prop_assert!(is_due || fired.is_empty());
                        // Beyond the wheel's span a timer may fire early, to be checked again.
                        fired.sort();
                        let expected: Vec<u32> = (0..20)
                            .filter(|&r| list[r as usize].is_some_and(|due| due <= now >> TICK_BITS))
                            .collect();
                        for &r in &expected {
                            prop_assert!(fired.contains(&r), "{r} did not fire");
                        }
                        for &r in &fired {
                            list[r as usize] = None;
                        }
                        let mut once = fired.clone();
                        once.dedup();
                        prop_assert_eq!(once, fired);
                    }
                }
            }
        }
    }

    #[test]
    fn jumps_of_years_take_no_time() {
        let mut wheel = Wheel::new(1);
        let mut fired = Vec::new();
        wheel.advance(1 << 60, &mut fired);
        wheel.set(0, (1 << 60) + 1_000_000_000);
        wheel.advance((1 << 60) + 900_000_000, &mut fired);
        assert!(fired.is_empty());
        wheel.advance((1 << 60) + 8 * 31_536_000_000_000_000, &mut fired);
        assert_eq!(fired, [0]);
    }
}
