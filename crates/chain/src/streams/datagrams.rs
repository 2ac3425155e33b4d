//! Segments that came in IP fragments, put together before they are read (RFC 791 3.2, RFC 8200 4.5).

use packet::memory::{OutOfMemory, Zeroed};
use packet::parse::FragmentPart;
use packet::{Packet, parse};

use crate::fragments::Datagram;

/// Datagrams with segments in them that may be under way at once; for another one, the oldest is given up.
pub const DATAGRAMS_MAX: usize = 64;

/// How long a datagram is waited for: as long as Linux does.
pub const DATAGRAM_TIMEOUT_NS: u64 = 30_000_000_000;

/// Bytes of the longest datagram, and room for it.
const DATAGRAM_ROOM: usize = 1 << 16;
pub(super) const DATAGRAM_MAX: usize = DATAGRAM_ROOM - 1;

/// Fragments begin at multiples of this.
const UNIT: usize = 8;

/// The datagrams that are under way. Where fragments overlap that are not the same, all of them are forgotten (RFC 5722, and Linux in
/// IPv4, too).
pub(super) struct Datagrams {
    slots: Vec<Slot>,
    bytes: Zeroed<u8>,
}

/// A place for a datagram.
#[derive(Clone)]
struct Slot {
    /// Free, if none.
    datagram: Option<Datagram>,
    until_ns: u64,
    /// Its length, once its last fragment is here.
    len: Option<usize>,
    /// Where its transport header begins.
    l4: usize,
    /// How many units are here, and which.
    units: usize,
    here: Box<[u64]>,
}

/// What came of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// Others are missing.
    Waits,
    /// It was the last one: all are in this slot, from here to there, until another fragment comes.
    Whole { slot: usize, from: usize, until: usize },
    /// The datagram is given up.
    Lost,
}

impl Datagrams {
    pub fn new() -> Result<Datagrams, OutOfMemory> {
        let units = DATAGRAM_ROOM / UNIT;
        let free = Slot {
            datagram: None,
            until_ns: 0,
            len: None,
            l4: 0,
            units: 0,
            here: vec![0; units / 64].into(),
        };
        Ok(Datagrams { slots: vec![free; DATAGRAMS_MAX], bytes: Zeroed::new(DATAGRAMS_MAX * DATAGRAM_ROOM)? })
    }

    /// Adds a fragment. `lost` is how many datagrams were given up for it.
    pub fn add(&mut self, packet: &Packet, lost: &mut u64) -> Added {
        let (meta, datagram) = (packet.meta(), Datagram::of(packet));
        let part = parse::fragment_part(packet);
        let bytes = part.and_then(|part| packet.data().get(part.at..packet.flow_end()));
        let (Some(part), Some(bytes)) = (part, bytes) else { return Added::Lost };
        let slot = self.slot(datagram, meta.transit.timestamp_ns, lost);
        if part.offset == 0 {
            self.slots[slot].l4 = usize::from(meta.l4).saturating_sub(part.at);
        }
        let added = self.put(slot, part, bytes);
        if added != Added::Waits {
            self.slots[slot].datagram = None;
        }
        added
    }

    /// The bytes of a datagram that is whole.
    pub fn bytes(&self, slot: usize, from: usize, until: usize) -> &[u8] {
        &self.bytes[slot * DATAGRAM_ROOM..][from..until]
    }

    /// The slot of a datagram; if it has none, a free one, or that of the oldest.
    fn slot(&mut self, datagram: Datagram, now_ns: u64, lost: &mut u64) -> usize {
        for slot in &mut self.slots {
            if slot.datagram.is_some() && slot.until_ns <= now_ns {
                slot.datagram = None;
                *lost += 1;
            }
        }
        if let Some(known) = self.slots.iter().position(|slot| slot.datagram == Some(datagram)) {
            return known;
        }
        let age = |slot: &Slot| if slot.datagram.is_some() { slot.until_ns } else { 0 };
        let oldest = (0..DATAGRAMS_MAX).min_by_key(|slot| age(&self.slots[*slot])).unwrap_or(0);
        let slot = &mut self.slots[oldest];
        *lost += u64::from(slot.datagram.is_some());
        (slot.datagram, slot.until_ns) = (Some(datagram), now_ns.saturating_add(DATAGRAM_TIMEOUT_NS));
        (slot.len, slot.l4, slot.units) = (None, 0, 0);
        slot.here.fill(0);
        oldest
    }

    fn put(&mut self, number: usize, part: FragmentPart, bytes: &[u8]) -> Added {
        let slot = &mut self.slots[number];
        let start = usize::from(part.offset);
        // What goes on, goes on at a whole unit.
        let len = if part.more { bytes.len() & !(UNIT - 1) } else { bytes.len() };
        let end = start + len;
        let units = start / UNIT..end.div_ceil(UNIT);
        let is_here = |unit: &usize| slot.here[unit / 64] & 1 << (unit % 64) != 0;
        if len == 0 || end > DATAGRAM_MAX {
            return Added::Lost;
        }
        let known = units.clone().filter(is_here).count();
        let last = slot.here.iter().rposition(|word| *word != 0);
        let before = last.map_or(0, |word| word * 64 + 64 - slot.here[word].leading_zeros() as usize);
        let contradicts = match slot.len {
            Some(len) => end > len || !part.more && end != len,
            None => !part.more && before > units.end,
        };
        if contradicts || (1..units.len()).contains(&known) {
            return Added::Lost;
        }
        if known == 0 {
            units.for_each(|unit| slot.here[unit / 64] |= 1 << (unit % 64));
            slot.units += end.div_ceil(UNIT) - start / UNIT;
            self.bytes[number * DATAGRAM_ROOM..][start..end].copy_from_slice(&bytes[..len]);
        }
        if !part.more {
            slot.len = Some(end);
        }
        match slot.len {
            Some(until) if slot.units == until.div_ceil(UNIT) => {
                Added::Whole { slot: number, from: slot.l4, until }
            }
            _ => Added::Waits,
        }
    }
}
