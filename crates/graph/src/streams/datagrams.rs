//! Reassembly of datagrams from IP fragments (RFC 791 3.2, RFC 8200 4.5).
//!
//! In line, fragments that passed all functions are held back here until their datagram is whole
//! and was inspected. Then all leave in order, or none does. So no host has a part of a datagram
//! that was not inspected as a whole.
//!
//! If the table or the memory of held fragments is full, the oldest datagram gives way to a new
//! one; a source with a quarter of it displaces its own datagrams. Out of line, a dropped datagram
//! does not give way: its host has the other fragments, and the last one may be retransmitted.

use packet::memory::{OutOfMemory, Zeroed};
use packet::parse::FragmentPart;
use packet::{Packet, parse};

use crate::fragments::{Datagram, Displaced, Table, WAITING_MEMORY, weight};

mod moving;

/// Maximum number of incomplete datagrams of a graph.
pub const DATAGRAMS_MAX: usize = 1024;

/// Timeout of an IPv4 datagram in fragments, as in Linux.
pub const DATAGRAM_TIMEOUT_NS: u64 = 30_000_000_000;
/// Timeout of an IPv6 datagram in fragments (RFC 8200 4.5).
pub const DATAGRAM_TIMEOUT_V6_NS: u64 = 60_000_000_000;

/// Maximum number of held fragments of a datagram: 64 KiB over links of 576 bytes (RFC 791 3.1).
pub const HELD_BACK_MAX: usize = 128;

/// Maximum memory of held fragments, each counted with its whole buffer.
pub const HELD_BACK_MEMORY: usize = WAITING_MEMORY;

/// Room for the longest datagram, in bytes.
const DATAGRAM_ROOM: usize = 1 << 16;
pub(super) const DATAGRAM_MAX: usize = DATAGRAM_ROOM - 1;

/// Fragments begin at multiples of this.
const UNIT: usize = 8;
/// Words of a bitmap with a bit for each unit of a datagram.
const WORDS: usize = DATAGRAM_ROOM / UNIT / 64;

/// [`Datagrams::until_ns`] of a free slot, and of a slot with bytes in use until the group ends.
const FREE: u64 = 0;
const DELIVERED: u64 = u64::MAX;

/// The record in [`SlotFlows`] of a slot without a flow.
const NO_FLOW: u32 = u32::MAX;

/// The classes of slots in the table.
const LIVE: usize = 0;
const CONDEMNED: usize = 1;

/// The incomplete datagrams. Fragments that overlap and are not the same discard the whole datagram
/// (RFC 5722; Linux, also for IPv4).
pub struct Datagrams {
    /// By slot.
    table: Table<Slot>,
    bytes: Zeroed<u8>,
    /// The units of each slot that have arrived.
    here: Zeroed<u64>,
    /// The units that begin runs: fragments that arrived in order, without a gap.
    begins: Zeroed<u64>,
    /// True if fragments are held back, so that a lost one does not reach its host: then no part of
    /// a datagram is forgotten.
    inline: bool,
    /// The deadline of each slot's datagram.
    until_ns: Vec<u64>,
    /// The flow of each slot's datagram, which moves with it.
    flows: SlotFlows,
    /// No deadline is earlier.
    due_ns: u64,
    /// Slots with bytes in use until the group ends.
    delivered: Vec<u32>,
    /// The slot of the current packet, and true if the packet completes its datagram.
    noted: Option<(u32, bool)>,
    /// Number of held fragments.
    held: u64,
    /// Fragments that are no longer held, and were not sent.
    unheld: Vec<(Packet, Unheld)>,
    /// Number of held fragments that moved in with their flows, less the number that moved out.
    moved: i64,
    /// Restored datagrams with a deadline up to this time are discarded.
    gone_until_ns: u64,
}

/// The flows of slots.
struct SlotFlows {
    of: Vec<u32>,
    /// Number of slots with a flow. It is mostly 0 when a flow ends.
    count: usize,
}

impl SlotFlows {
    fn set(&mut self, slot: usize, flow: u32) {
        let before = std::mem::replace(&mut self.of[slot], flow);
        self.count += usize::from(flow != NO_FLOW);
        self.count -= usize::from(before != NO_FLOW);
    }

    /// Returns true if a slot is this flow's.
    fn has(&self, flow: u32) -> bool {
        self.count > 0 && self.of.contains(&flow)
    }

    /// Returns the first slot of a flow.
    fn first(&self, flow: u32) -> Option<usize> {
        self.slots(flow).next()
    }

    /// Returns the slots of a flow.
    fn slots(&self, flow: u32) -> impl Iterator<Item = usize> {
        let of = if self.has(flow) { &self.of[..] } else { &[] };
        (0..).zip(of).filter(move |(_, of)| **of == flow).map(|(slot, _)| slot)
    }
}

/// A place for a datagram.
#[derive(Default)]
struct Slot {
    /// A function dropped the fragment that completed it. All later ones are dropped, too, so that
    /// its host never has all of them.
    condemned: bool,
    /// Its length, once its last fragment is here.
    len: Option<usize>,
    /// The offset of its transport header, and its protocol.
    l4: usize,
    protocol: u8,
    /// Units that have arrived.
    units: usize,
    /// The congestion marks seen, a bit for each (RFC 3168 5.3).
    marks: u8,
    /// In line, its held fragments, in the order in which they will leave.
    held: Vec<Packet>,
}

/// The reason to release a held fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unheld {
    /// Its datagram has expired.
    Late,
    /// Its datagram gave way to another one.
    Displaced,
    /// Its datagram has too many fragments.
    TooMany,
    /// Its datagram moved to another unit.
    Moved,
}

/// The outcome for a fragment that passed all functions.
pub enum Passing {
    /// It leaves alone: no other fragment is held for it.
    Alone(Packet),
    /// It is held back.
    Held,
    /// Its datagram is complete: all fragments leave, this one last.
    Whole(Vec<Packet>, Packet),
    /// Its datagram has too many fragments.
    Refused(Packet),
}

/// The outcome of adding a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Others are missing.
    Waits,
    /// The datagram is complete: its bytes are in this slot, from `from` to `until`, until the
    /// group ends.
    Whole { slot: usize, from: usize, until: usize, protocol: u8 },
    /// The datagram is given up.
    Lost,
    /// It belongs to a datagram that was dropped.
    Condemned,
    /// There are too many dropped datagrams.
    Full,
}

impl Datagrams {
    pub fn new(inline: bool) -> Result<Datagrams, OutOfMemory> {
        Ok(Datagrams {
            table: Table::new(DATAGRAMS_MAX),
            bytes: Zeroed::new(DATAGRAMS_MAX * DATAGRAM_ROOM)?,
            here: Zeroed::new(DATAGRAMS_MAX * WORDS)?,
            begins: Zeroed::new(DATAGRAMS_MAX * WORDS)?,
            inline,
            until_ns: vec![FREE; DATAGRAMS_MAX],
            flows: SlotFlows { of: vec![NO_FLOW; DATAGRAMS_MAX], count: 0 },
            due_ns: u64::MAX,
            delivered: Vec::with_capacity(crate::GROUP_MAX),
            noted: None,
            held: 0,
            unheld: Vec::new(),
            moved: 0,
            gone_until_ns: 0,
        })
    }

    /// Begins a group of packets, and frees the slots of datagrams that were complete.
    #[inline]
    pub fn begin_group(&mut self) {
        while let Some(slot) = self.delivered.pop() {
            self.release(slot, Unheld::Displaced);
        }
    }

    /// Begins a packet.
    pub fn begin(&mut self) {
        self.noted = None;
    }

    /// Adds a fragment. `lost` counts datagrams that are given up.
    pub fn add(&mut self, packet: &Packet, lost: &mut u64) -> Added {
        self.noted = None;
        let (meta, datagram) = (packet.meta(), Datagram::of(packet));
        let now_ns = meta.transit.timestamp_ns;
        self.expire(now_ns, lost);
        let part = parse::fragment_part(packet);
        let bytes = part.and_then(|part| packet.data().get(part.at..packet.flow_end()));
        let (Some(part), Some(bytes)) = (part, bytes) else { return Added::Lost };
        if meta.version == 6 && part.more && bytes.len() % UNIT != 0 {
            // Hosts report the error, and keep waiting.
            return if self.inline { Added::Condemned } else { Added::Waits };
        }
        let Some(number) = self.slot(packet, datagram, lost) else { return Added::Full };
        let slot = self.table.get_mut(number);
        if slot.condemned {
            return Added::Condemned;
        }
        slot.marks |= 1 << congestion(packet);
        if part.offset == 0 {
            slot.l4 = usize::from(meta.l4).saturating_sub(part.at);
            slot.protocol = meta.protocol;
        }
        let added = self.put(number, part, bytes);
        match added {
            Added::Lost if self.inline => {}
            Added::Lost => self.release(number, Unheld::Displaced),
            Added::Whole { .. } => {
                self.until_ns[number as usize] = DELIVERED;
                self.flows.set(number as usize, NO_FLOW);
                self.delivered.push(number);
            }
            _ => {}
        }
        if added != Added::Lost {
            self.noted = Some((number, matches!(added, Added::Whole { .. })));
        }
        added
    }

    /// Decides about the current packet, which passed all functions.
    pub fn pass(&mut self, packet: Packet, lost: &mut u64) -> Passing {
        let Some((number, is_whole)) = self.noted.take().filter(|_| self.inline) else {
            return Passing::Alone(packet);
        };
        if is_whole {
            let held = std::mem::take(&mut self.table.get_mut(number).held);
            self.held -= held.len() as u64;
            return Passing::Whole(held, packet);
        }
        let weight = weight(&packet);
        if self.table.get(number).held.len() >= HELD_BACK_MAX || !self.make_weight(number, weight, lost) {
            *lost += 1;
            self.condemn_slot(number, &packet, Unheld::TooMany);
            return Passing::Refused(packet);
        }
        self.table.add_weight(number, weight);
        self.table.get_mut(number).held.push(packet);
        self.held += 1;
        Passing::Held
    }

    /// Notes that a function dropped the current packet. If it completed its datagram, or in line
    /// belonged to one, no more fragments of the datagram may pass; otherwise its host can never
    /// complete it anyway. Returns the held fragments.
    pub fn drop_noted(&mut self, packet: &Packet) -> Vec<Packet> {
        let Some((number, is_whole)) = self.noted.take() else { return Vec::new() };
        if !is_whole && !self.inline {
            return Vec::new();
        }
        let held = std::mem::take(&mut self.table.get_mut(number).held);
        self.held -= held.len() as u64;
        self.condemn_slot(number, packet, Unheld::Displaced);
        held
    }

    /// Returns the bytes of all datagrams, slot by slot.
    pub fn memory(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the offset of a slot's bytes.
    pub fn place(slot: usize) -> usize {
        slot * DATAGRAM_ROOM
    }

    /// Number of held fragments.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Number of held fragments that moved in with their flows, less the number that moved out.
    pub fn moved(&self) -> i64 {
        self.moved
    }

    /// Returns the numbers of displaced datagrams.
    pub fn displaced(&self) -> Displaced {
        self.table.displaced()
    }

    /// Returns the earliest time at which a datagram may expire.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Takes a fragment that is no longer held, and was not sent.
    #[inline]
    pub fn take_unheld(&mut self) -> Option<(Packet, Unheld)> {
        self.unheld.pop()
    }

    /// Takes all held fragments.
    pub fn take_all(&mut self) -> Vec<Packet> {
        let mut all = Vec::new();
        for number in 0..DATAGRAMS_MAX {
            if self.until_ns[number] != FREE {
                all.append(&mut self.table.get_mut(number as u32).held);
            }
        }
        self.held = 0;
        all
    }

    /// Discards expired datagrams, counted in `lost`.
    pub fn expire(&mut self, now_ns: u64, lost: &mut u64) {
        if now_ns < self.due_ns {
            return;
        }
        self.due_ns = u64::MAX;
        for number in 0..DATAGRAMS_MAX {
            match self.until_ns[number] {
                FREE | DELIVERED => {}
                until_ns if until_ns <= now_ns => {
                    *lost += u64::from(!self.table.get(number as u32).condemned);
                    self.release(number as u32, Unheld::Late);
                }
                until_ns => self.due_ns = self.due_ns.min(until_ns),
            }
        }
    }

    /// Frees a slot. Its held fragments are released for this reason.
    fn release(&mut self, number: u32, why: Unheld) {
        let slot = self.table.remove(number);
        self.held -= slot.held.len() as u64;
        self.unheld.extend(slot.held.into_iter().map(|packet| (packet, why)));
        self.until_ns[number as usize] = FREE;
        self.flows.set(number as usize, NO_FLOW);
    }

    /// Blocks all further fragments of a slot's datagram until it expires.
    fn condemn_slot(&mut self, number: u32, packet: &Packet, why: Unheld) {
        let transit = &packet.meta().transit;
        self.delivered.retain(|delivered| *delivered != number);
        self.flows.set(number as usize, transit.flow);
        let until_ns = self.deadline(&self.table.datagram(number), transit.timestamp_ns);
        self.set_deadline(number, until_ns);
        let slot = self.table.get_mut(number);
        let held = std::mem::take(&mut slot.held);
        *slot = Slot { condemned: true, ..Slot::default() };
        self.held -= held.len() as u64;
        self.unheld.extend(held.into_iter().map(|packet| (packet, why)));
        self.table.reclass(number, CONDEMNED);
    }

    /// Returns the datagram's slot, or a new one, and gives it to this packet's flow.
    fn slot(&mut self, packet: &Packet, datagram: Datagram, lost: &mut u64) -> Option<u32> {
        let transit = &packet.meta().transit;
        let number = match self.table.find(&datagram) {
            Some(known) => known,
            None => self.occupy(datagram, self.deadline(&datagram, transit.timestamp_ns), lost)?,
        };
        self.flows.set(number as usize, transit.flow);
        Some(number)
    }

    /// Returns the deadline of a datagram with a first arrival at `now_ns`.
    fn deadline(&self, datagram: &Datagram, now_ns: u64) -> u64 {
        let is_v4 = datagram.key.version == 4;
        let timeout_ns = if is_v4 { DATAGRAM_TIMEOUT_NS } else { DATAGRAM_TIMEOUT_V6_NS };
        now_ns.saturating_add(timeout_ns).min(DELIVERED - 1)
    }

    fn set_deadline(&mut self, number: u32, until_ns: u64) {
        self.until_ns[number as usize] = until_ns;
        self.due_ns = self.due_ns.min(until_ns);
    }

    /// Returns a slot for a datagram without one; another datagram may give way.
    fn occupy(&mut self, datagram: Datagram, until_ns: u64, lost: &mut u64) -> Option<u32> {
        if !self.table.has_room(&datagram) {
            let inline = self.inline;
            let oldest = |table: &Table<Slot>| {
                let [live, condemned] = [LIVE, CONDEMNED].map(|class| table.oldest(class));
                let are_many = table.class_len(CONDEMNED) > DATAGRAMS_MAX / 2;
                match inline {
                    true if are_many => condemned,
                    true => live.or(condemned),
                    false => live,
                }
            };
            let victim = self.table.victim(&datagram, |slot| inline || !slot.condemned, oldest)?;
            self.give_up(victim, lost);
        }
        let number = self.table.insert(datagram, LIVE, Slot::default());
        let at = number as usize;
        self.here[at * WORDS..][..WORDS].fill(0);
        self.begins[at * WORDS..][..WORDS].fill(0);
        self.flows.set(at, NO_FLOW);
        self.set_deadline(number, until_ns);
        Some(number)
    }

    /// Makes room for more bytes in a slot; other datagrams may give way. Returns false if there is
    /// still no room.
    fn make_weight(&mut self, number: u32, more: usize, lost: &mut u64) -> bool {
        while !self.table.has_weight(number, more, HELD_BACK_MEMORY) {
            let Some(victim) = self.table.heavy_victim(number, more, HELD_BACK_MEMORY) else { return false };
            self.give_up(victim, lost);
        }
        true
    }

    /// Displaces a datagram.
    fn give_up(&mut self, number: u32, lost: &mut u64) {
        self.delivered.retain(|delivered| *delivered != number);
        *lost += u64::from(!self.table.get(number).condemned);
        self.release(number, Unheld::Displaced);
    }

    fn put(&mut self, number: u32, part: FragmentPart, bytes: &[u8]) -> Added {
        let slot = self.table.get_mut(number);
        let number = number as usize;
        let here = &mut self.here[number * WORDS..][..WORDS];
        let begins = &mut self.begins[number * WORDS..][..WORDS];
        let start = usize::from(part.offset);
        // Fragments before the last one end at a whole unit.
        let len = if part.more { bytes.len() & !(UNIT - 1) } else { bytes.len() };
        let end = start + len;
        let units = start / UNIT..end.div_ceil(UNIT);
        let is_here = |unit: &usize| here[unit / 64] & 1 << (unit % 64) != 0;
        if len == 0 || end > DATAGRAM_MAX {
            return Added::Lost;
        }
        let known = units.clone().filter(is_here).count();
        let last = here.iter().rposition(|word| *word != 0);
        let before = last.map_or(0, |word| word * 64 + 64 - here[word].leading_zeros() as usize);
        let contradicts = match slot.len {
            Some(len) => end > len || !part.more && end != len,
            None => !part.more && before > units.end,
        };
        // Repeated bytes are ignored if they lie within one run.
        let begins_run = |unit: usize| begins[unit / 64] & 1 << (unit % 64) != 0;
        let is_across = known > 0 && units.clone().skip(1).any(begins_run);
        // In line, it is not known which of two copies a host takes.
        let place = number * DATAGRAM_ROOM;
        let differs =
            || self.bytes.get(place + start..place + end).is_none_or(|there| there != &bytes[..len]);
        if contradicts
            || (1..units.len()).contains(&known)
            || is_across
            || self.inline && known > 0 && differs()
        {
            return Added::Lost;
        }
        if known == 0 {
            if before != units.start || before == 0 {
                begins[units.start / 64] |= 1 << (units.start % 64);
            }
            units.for_each(|unit| here[unit / 64] |= 1 << (unit % 64));
            slot.units += end.div_ceil(UNIT) - start / UNIT;
            self.bytes[number * DATAGRAM_ROOM..][start..end].copy_from_slice(&bytes[..len]);
        }
        if !part.more {
            slot.len = Some(end);
        }
        match slot.len {
            Some(until) if slot.units == until.div_ceil(UNIT) && is_mixture(slot.marks) => Added::Lost,
            Some(until) if slot.units == until.div_ceil(UNIT) => {
                Added::Whole { slot: number, from: slot.l4, until, protocol: slot.protocol }
            }
            _ => Added::Waits,
        }
    }
}

/// Returns the units of a bitmap, in order.
fn units_in(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    (0..words.len() * 64).filter(|unit| words[unit / 64] & 1 << (unit % 64) != 0)
}

/// Returns the congestion mark of a packet.
fn congestion(packet: &Packet) -> u8 {
    let (meta, data) = (packet.meta(), packet.data());
    let byte = data.get(usize::from(meta.l3) + 1).copied().unwrap_or(0);
    if meta.version == 4 { byte & 3 } else { byte >> 4 & 3 }
}

/// Returns true if hosts do not reassemble fragments with these marks: some are capable of marks,
/// and some are not (RFC 3168 5.3, and Linux).
fn is_mixture(marks: u8) -> bool {
    marks & 1 != 0 && marks != 1
}
