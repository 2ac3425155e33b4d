//! Datagrams that came in IP fragments, put together before they are read (RFC 791 3.2, RFC 8200 4.5).

use std::collections::HashMap;

use packet::memory::{OutOfMemory, Zeroed};
use packet::parse::FragmentPart;
use packet::{FlowKey, Packet, parse};
use zerocopy::{FromBytes, IntoBytes};

use super::saved::{Rest, RestoreError};

/// Datagrams that may be under way at once, as many as a chain keeps track of: fragments of further ones are dropped, as nobody
/// could tell what their host makes of them.
pub const DATAGRAMS_MAX: usize = 1024;

/// How long a datagram of IPv4 is waited for: as long as Linux does.
pub const DATAGRAM_TIMEOUT_NS: u64 = 30_000_000_000;
/// The same of IPv6 (RFC 8200 4.5).
pub const DATAGRAM_TIMEOUT_V6_NS: u64 = 60_000_000_000;

/// Bytes of the longest datagram, and room for it.
const DATAGRAM_ROOM: usize = 1 << 16;
pub(super) const DATAGRAM_MAX: usize = DATAGRAM_ROOM - 1;

/// Fragments begin at multiples of this.
const UNIT: usize = 8;
/// Words of a bitmap with a bit for each unit of a datagram.
const WORDS: usize = DATAGRAM_ROOM / UNIT / 64;

/// [`Datagrams::until_ns`] of a free slot, and of one whose bytes are in use until the group is over.
const FREE: u64 = 0;
const DELIVERED: u64 = u64::MAX;

/// The record in [`Datagrams::flows`] of a slot that is no flow's.
const NO_FLOW: u32 = u32::MAX;

/// Which datagram a fragment is of, as [`crate::fragments::Datagram`] has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Datagram {
    key: FlowKey,
    reversed: bool,
    id: u32,
}

impl Datagram {
    fn of(packet: &Packet) -> Datagram {
        let (mut key, reversed) = parse::portless_key(packet);
        if key.version == 6 {
            key.protocol = 0;
        }
        Datagram { key, reversed, id: parse::fragment_id(packet) }
    }
}

/// The datagrams that are under way. Where fragments overlap that are not the same, all of them are forgotten (RFC 5722, and Linux in
/// IPv4, too).
pub(super) struct Datagrams {
    slots: Vec<Slot>,
    bytes: Zeroed<u8>,
    /// Which units of each slot are here.
    here: Zeroed<u64>,
    /// With which units runs begin: fragments that came one after the other, in order.
    begins: Zeroed<u64>,
    /// Whether fragments that are lost do not reach their host: then nothing of their datagram is forgotten.
    inline: bool,
    /// When each slot's datagram is given up.
    until_ns: Vec<u64>,
    /// Whose each slot's datagram is: it goes with the flow, if that goes elsewhere.
    flows: Vec<u32>,
    /// No datagram is given up before.
    due_ns: u64,
    by_datagram: HashMap<Datagram, u32>,
    free: Vec<u32>,
    /// Slots whose bytes are in use until the group is over.
    delivered: Vec<u32>,
}

/// A place for a datagram.
#[derive(Clone, Copy, Default)]
struct Slot {
    datagram: Option<Datagram>,
    /// It was whole, and a function dropped the fragment that made it so: so are all that follow, or its host would have it.
    condemned: bool,
    /// Its length, once its last fragment is here.
    len: Option<usize>,
    /// Where its transport header begins, and of which protocol that is.
    l4: usize,
    protocol: u8,
    /// How many units are here.
    units: usize,
    /// Congestion marks that were seen, a bit for each (RFC 3168 5.3).
    marks: u8,
}

/// What came of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// Others are missing.
    Waits,
    /// It was the last one: all are in this slot, from here to there, until the group is over.
    Whole { slot: usize, from: usize, until: usize, protocol: u8 },
    /// The datagram is given up.
    Lost,
    /// It belongs to a datagram that was dropped.
    Condemned,
    /// Too many are under way.
    Full,
}

impl Datagrams {
    pub fn new(inline: bool) -> Result<Datagrams, OutOfMemory> {
        Ok(Datagrams {
            slots: vec![Slot::default(); DATAGRAMS_MAX],
            bytes: Zeroed::new(DATAGRAMS_MAX * DATAGRAM_ROOM)?,
            here: Zeroed::new(DATAGRAMS_MAX * WORDS)?,
            begins: Zeroed::new(DATAGRAMS_MAX * WORDS)?,
            inline,
            until_ns: vec![FREE; DATAGRAMS_MAX],
            flows: vec![NO_FLOW; DATAGRAMS_MAX],
            due_ns: u64::MAX,
            by_datagram: HashMap::with_capacity(DATAGRAMS_MAX),
            free: (0..DATAGRAMS_MAX as u32).rev().collect(),
            delivered: Vec::with_capacity(crate::GROUP_MAX),
        })
    }

    /// A group of packets begins: bytes of datagrams that were whole are gone.
    pub fn begin_group(&mut self) {
        while let Some(slot) = self.delivered.pop() {
            self.release(slot);
        }
    }

    /// Adds a fragment. `lost` is how many datagrams ran out of time.
    pub fn add(&mut self, packet: &Packet, lost: &mut u64) -> Added {
        let (meta, datagram) = (packet.meta(), Datagram::of(packet));
        let now_ns = meta.transit.timestamp_ns;
        if self.due_ns <= now_ns {
            self.expire(now_ns, lost);
        }
        let part = parse::fragment_part(packet);
        let bytes = part.and_then(|part| packet.data().get(part.at..packet.flow_end()));
        let (Some(part), Some(bytes)) = (part, bytes) else { return Added::Lost };
        if meta.version == 6 && part.more && bytes.len() % UNIT != 0 {
            // Hosts say that this is wrong, and wait on.
            return if self.inline { Added::Condemned } else { Added::Waits };
        }
        let Some(number) = self.slot(packet, now_ns) else { return Added::Full };
        let slot = &mut self.slots[number];
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
            Added::Lost => self.release(number as u32),
            Added::Whole { .. } => {
                self.by_datagram.remove(&datagram);
                self.slots[number].datagram = None;
                self.until_ns[number] = DELIVERED;
                self.flows[number] = NO_FLOW;
                self.delivered.push(number as u32);
            }
            _ => {}
        }
        added
    }

    /// A function dropped this fragment: if its datagram was whole with it, no more of that may pass. If not, its host waits for this
    /// one in vain, whatever else comes.
    pub fn condemn(&mut self, packet: &Packet) {
        if self.delivered.is_empty() {
            return;
        }
        self.begin_group();
        if let Some(slot) = self.slot(packet, packet.meta().transit.timestamp_ns) {
            self.slots[slot].condemned = true;
        }
    }

    /// The same of one that does not pass while its group is under way.
    pub fn keep_out(&mut self, packet: &Packet) {
        if let Some(slot) = self.slot(packet, packet.meta().transit.timestamp_ns) {
            self.slots[slot].condemned = true;
        }
    }

    /// The bytes of all datagrams, one slot after the other.
    pub fn memory(&self) -> &[u8] {
        &self.bytes
    }

    /// Where in them those of a slot begin.
    pub fn place(slot: usize) -> usize {
        slot * DATAGRAM_ROOM
    }

    fn expire(&mut self, now_ns: u64, lost: &mut u64) {
        self.due_ns = u64::MAX;
        for number in 0..DATAGRAMS_MAX {
            match self.until_ns[number] {
                FREE | DELIVERED => {}
                until_ns if until_ns <= now_ns => {
                    *lost += u64::from(!self.slots[number].condemned);
                    self.release(number as u32);
                }
                until_ns => self.due_ns = self.due_ns.min(until_ns),
            }
        }
    }

    fn release(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if let Some(datagram) = slot.datagram.take() {
            self.by_datagram.remove(&datagram);
        }
        self.until_ns[number as usize] = FREE;
        self.flows[number as usize] = NO_FLOW;
        self.free.push(number);
    }

    /// The slot of a datagram; if it has none, a free one. It is of this packet's flow now.
    fn slot(&mut self, packet: &Packet, now_ns: u64) -> Option<usize> {
        let datagram = Datagram::of(packet);
        let flow = packet.meta().transit.flow;
        if let Some(&known) = self.by_datagram.get(&datagram) {
            self.flows[known as usize] = flow;
            return Some(known as usize);
        }
        let is_v4 = packet.meta().version == 4;
        let timeout_ns = if is_v4 { DATAGRAM_TIMEOUT_NS } else { DATAGRAM_TIMEOUT_V6_NS };
        let until_ns = now_ns.saturating_add(timeout_ns).min(DELIVERED - 1);
        self.occupy(datagram, until_ns, flow)
    }

    /// A free slot for a datagram that has none.
    fn occupy(&mut self, datagram: Datagram, until_ns: u64, flow: u32) -> Option<usize> {
        let number = self.free.pop()?;
        let at = number as usize;
        self.slots[at] = Slot { datagram: Some(datagram), ..Slot::default() };
        self.here[at * WORDS..][..WORDS].fill(0);
        self.begins[at * WORDS..][..WORDS].fill(0);
        self.until_ns[at] = until_ns;
        self.flows[at] = flow;
        self.due_ns = self.due_ns.min(until_ns);
        self.by_datagram.insert(datagram, number);
        Some(at)
    }

    /// Where to look for a flow's datagrams.
    fn in_use(&self) -> std::ops::Range<usize> {
        if self.by_datagram.is_empty() { 0..0 } else { 0..DATAGRAMS_MAX }
    }

    /// The flow is over. Its datagrams stay: their hosts wait on.
    pub fn leave(&mut self, flow: u32) {
        let in_use = self.in_use();
        self.flows[in_use].iter_mut().filter(|of| **of == flow).for_each(|of| *of = NO_FLOW);
    }

    /// The flow is elsewhere, and so are its datagrams.
    pub fn forget(&mut self, flow: u32) {
        for at in self.in_use() {
            if self.flows[at] == flow {
                self.release(at as u32);
            }
        }
    }

    /// Adds a flow's datagrams to `out`.
    pub fn save(&self, flow: u32, out: &mut Vec<u8>) {
        for at in self.in_use().filter(|&at| self.flows[at] == flow) {
            let slot = &self.slots[at];
            let Some(datagram) = slot.datagram else { continue };
            let here = &self.here[at * WORDS..][..WORDS];
            let words = here.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            out.extend_from_slice(datagram.key.as_bytes());
            out.extend_from_slice(&datagram.id.to_le_bytes());
            out.extend_from_slice(&self.until_ns[at].to_le_bytes());
            out.extend_from_slice(&(slot.len.unwrap_or(0) as u16).to_le_bytes());
            out.extend_from_slice(&(slot.l4 as u16).to_le_bytes());
            let flags = [u8::from(datagram.reversed), u8::from(slot.condemned)];
            out.extend_from_slice(&[flags[0], flags[1], slot.protocol, slot.marks, words as u8]);
            for words in [&here[..words], &self.begins[at * WORDS..][..words]] {
                words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
            }
            let len = slot.len.unwrap_or(DATAGRAM_ROOM);
            for unit in units_in(&here[..words]) {
                let bytes = &self.bytes[at * DATAGRAM_ROOM..][unit * UNIT..len.min((unit + 1) * UNIT)];
                out.extend_from_slice(bytes);
                out.resize(out.len() + UNIT - bytes.len(), 0);
            }
        }
    }

    /// Takes over what [`Datagrams::save`] wrote of one datagram. `lost` is how many others are given up for it.
    pub fn restore(&mut self, flow: u32, rest: &mut Rest<'_>, lost: &mut u64) -> Result<(), RestoreError> {
        let damaged = RestoreError::Damaged(rest.at());
        let key = FlowKey::read_from_bytes(rest.take(size_of::<FlowKey>())?).map_err(|_| damaged)?;
        let id = u32::from_le_bytes(rest.array()?);
        let until_ns = u64::from_le_bytes(rest.array()?);
        let len = usize::from(u16::from_le_bytes(rest.array()?));
        let l4 = usize::from(u16::from_le_bytes(rest.array()?));
        let [reversed, condemned, protocol, marks, words] = rest.array()?;
        let words = usize::from(words);
        if until_ns == FREE || until_ns == DELIVERED || words > WORDS {
            return Err(damaged);
        }
        let datagram = Datagram { key, reversed: reversed != 0, id };
        let mut condemned = condemned != 0;
        // Another flow's of the same name: this one's is going on.
        if let Some(&other) = self.by_datagram.get(&datagram) {
            let other_condemned = self.slots[other as usize].condemned;
            *lost += u64::from(!other_condemned);
            condemned |= other_condemned;
            self.release(other);
        }
        let at = self.occupy(datagram, until_ns, flow).ok_or(RestoreError::NoMemory)?;
        for words in [&mut self.here[at * WORDS..][..words], &mut self.begins[at * WORDS..][..words]] {
            for word in words {
                *word = u64::from_le_bytes(rest.array()?);
            }
        }
        let here = &self.here[at * WORDS..][..words];
        for unit in units_in(here) {
            self.bytes[at * DATAGRAM_ROOM..][unit * UNIT..][..UNIT].copy_from_slice(rest.take(UNIT)?);
        }
        let (units, end) = (units_in(here).count(), units_in(here).last().map_or(0, |last| last + 1));
        let len = (len > 0).then_some(len);
        if len.is_some_and(|len| end > len.div_ceil(UNIT)) {
            return Err(damaged);
        }
        self.slots[at] = Slot { datagram: Some(datagram), condemned, len, l4, protocol, units, marks };
        Ok(())
    }

    fn put(&mut self, number: usize, part: FragmentPart, bytes: &[u8]) -> Added {
        let slot = &mut self.slots[number];
        let here = &mut self.here[number * WORDS..][..WORDS];
        let begins = &mut self.begins[number * WORDS..][..WORDS];
        let start = usize::from(part.offset);
        // What goes on, goes on at a whole unit.
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
        // What is there already is ignored, if it lies within one run.
        let begins_run = |unit: usize| begins[unit / 64] & 1 << (unit % 64) != 0;
        let is_across = known > 0 && units.clone().skip(1).any(begins_run);
        if contradicts || (1..units.len()).contains(&known) || is_across {
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

/// Which units a bitmap has, in order.
fn units_in(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    (0..words.len() * 64).filter(|unit| words[unit / 64] & 1 << (unit % 64) != 0)
}

/// The congestion mark of a packet.
fn congestion(packet: &Packet) -> u8 {
    let (meta, data) = (packet.meta(), packet.data());
    let byte = data.get(usize::from(meta.l3) + 1).copied().unwrap_or(0);
    if meta.version == 4 { byte & 3 } else { byte >> 4 & 3 }
}

/// Whether fragments with these marks are of no datagram that hosts put together: some are capable of marks, and some are not (RFC 3168
/// 5.3, and Linux).
fn is_mixture(marks: u8) -> bool {
    marks & 1 != 0 && marks != 1
}
