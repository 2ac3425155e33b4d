//! Moves a flow's datagrams to another unit, with their held fragments.

use packet::{Direction, FlowKey, LinkType, Packet, PacketClass, Side};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::streams::saved::{Rest, StreamRestoreError};

impl Datagrams {
    /// Detaches a flow that has ended. Its datagrams stay: their hosts keep waiting.
    pub fn leave(&mut self, flow: u32) {
        while let Some(at) = self.flows.first(flow) {
            self.flows.set(at, NO_FLOW);
        }
    }

    /// Forgets the datagrams of a flow that moved to another unit.
    pub fn forget(&mut self, flow: u32) {
        while let Some(at) = self.flows.first(flow) {
            self.moved -= self.table.get(at as u32).held.len() as i64;
            self.release(at as u32, Unheld::Moved);
        }
    }

    /// Returns true if a flow has datagrams.
    pub fn has(&self, flow: u32) -> bool {
        self.flows.has(flow)
    }

    /// Adds a flow's datagrams to `out`.
    pub fn save(&self, flow: u32, out: &mut Vec<u8>) {
        for at in self.flows.slots(flow) {
            let (slot, datagram) = (self.table.get(at as u32), self.table.datagram(at as u32));
            let here = &self.here[at * WORDS..][..WORDS];
            let words = here.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            let words = if slot.condemned { 0 } else { words };
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
            out.push(slot.held.len() as u8); // Not above `HELD_BACK_MAX`.
            slot.held.iter().for_each(|packet| save_packet(packet, out));
        }
    }

    /// Sets the time up to which restored datagrams count as expired.
    pub fn set_gone_until(&mut self, time_ns: u64) {
        self.gone_until_ns = time_ns;
    }

    /// Restores a datagram saved by [`Datagrams::save`]. `lost` counts displaced datagrams, or this
    /// one if there is no room.
    pub(in crate::streams) fn restore(
        &mut self,
        flow: u32,
        rest: &mut Rest<'_>,
        lost: &mut u64,
    ) -> Result<(), StreamRestoreError> {
        let damaged = StreamRestoreError::Damaged(rest.at());
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
        let here = read_words(rest.take(words * 8)?);
        let begins = read_words(rest.take(words * 8)?);
        let (units, end) = (units_in(&here).count(), units_in(&here).last().map_or(0, |last| last + 1));
        let len = (len > 0).then_some(len);
        if len.is_some_and(|len| end > len.div_ceil(UNIT)) {
            return Err(damaged);
        }
        let bytes = rest.take(units * UNIT)?;
        let [count] = rest.array()?;
        let held = (0..count).map(|_| restore_packet(rest)).collect::<Result<Vec<Packet>, _>>()?;
        if until_ns <= self.gone_until_ns {
            return Ok(());
        }
        self.moved += i64::from(count);
        let mut condemned = condemned != 0;
        // Another flow has a datagram with this identity: the restored one replaces it.
        if let Some(other) = self.table.find(&datagram) {
            condemned |= self.table.get(other).condemned;
            self.give_up(other, lost);
        }
        let Some(number) = self.occupy(datagram, until_ns, lost) else {
            *lost += u64::from(!condemned);
            self.unheld.extend(held.into_iter().map(|packet| (packet, Unheld::Displaced)));
            return Ok(());
        };
        let at = number as usize;
        self.flows.set(at, flow);
        self.here[at * WORDS..][..words].copy_from_slice(&here);
        self.begins[at * WORDS..][..words].copy_from_slice(&begins);
        for (unit, bytes) in units_in(&here).zip(bytes.chunks(UNIT)) {
            self.bytes[at * DATAGRAM_ROOM..][unit * UNIT..][..UNIT].copy_from_slice(bytes);
        }
        *self.table.get_mut(number) = Slot { condemned, len, l4, protocol, units, marks, held: Vec::new() };
        if condemned {
            self.table.reclass(number, CONDEMNED);
        }
        self.hold_all(number, held, lost);
        Ok(())
    }

    /// Holds fragments that another unit held.
    fn hold_all(&mut self, number: u32, held: Vec<Packet>, lost: &mut u64) {
        let more = held.iter().map(weight).sum();
        if !held.is_empty() && (!self.inline || !self.make_weight(number, more, lost)) {
            self.unheld.extend(held.into_iter().map(|packet| (packet, Unheld::Displaced)));
            return self.give_up(number, lost);
        }
        self.table.add_weight(number, more);
        self.held += held.len() as u64;
        self.table.get_mut(number).held = held;
    }
}

fn read_words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
    words.map(u64::from_le_bytes).collect()
}

/// Adds a fragment and its metadata after the functions to `out`.
fn save_packet(packet: &Packet, out: &mut Vec<u8>) {
    let meta = packet.meta();
    let transit = &meta.transit;
    out.extend_from_slice(meta.key.as_bytes());
    for number in [meta.hash, transit.timestamp_ns, transit.sequence, transit.seq] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [meta.wire_len, packet.len() as u32] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let offsets = [meta.outer_l3, meta.l3, meta.l4, meta.outer_udp, meta.payload];
    for number in [transit.ingress, transit.egress, meta.link.number()].into_iter().chain(offsets) {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let is = [
        meta.reversed,
        meta.class == PacketClass::FirstFragment,
        transit.direction == Direction::Reply,
        transit.side == Side::Outside,
    ];
    out.extend_from_slice(&is.map(u8::from));
    out.extend_from_slice(&[meta.protocol, meta.tcp_flags, meta.version]);
    out.extend_from_slice(packet.data());
}

/// Restores a fragment written by [`save_packet`].
fn restore_packet(rest: &mut Rest<'_>) -> Result<Packet, StreamRestoreError> {
    let damaged = StreamRestoreError::Damaged(rest.at());
    let key = FlowKey::read_from_bytes(rest.take(size_of::<FlowKey>())?).map_err(|_| damaged)?;
    let [mut hash, mut timestamp_ns, mut sequence, mut clock] = [0; 4];
    for number in [&mut hash, &mut timestamp_ns, &mut sequence, &mut clock] {
        *number = u64::from_le_bytes(rest.array()?);
    }
    let wire_len = u32::from_le_bytes(rest.array()?);
    let len = u32::from_le_bytes(rest.array()?) as usize;
    let mut numbers = [0; 8];
    for number in &mut numbers {
        *number = u16::from_le_bytes(rest.array()?);
    }
    let [reversed, is_first, is_reply, is_outside, protocol, tcp_flags, version] = rest.array()?;
    let data = rest.take(len)?;
    let [ingress, egress, link, outer_l3, l3, l4, outer_udp, payload] = numbers;
    if [outer_l3, l3].iter().any(|at| usize::from(*at) > len) {
        return Err(damaged);
    }
    let mut packet = Packet::from_bytes(data);
    let meta = packet.meta_mut();
    (meta.key, meta.hash, meta.wire_len) = (key, hash, wire_len);
    (meta.outer_l3, meta.l3, meta.l4, meta.outer_udp, meta.payload) = (outer_l3, l3, l4, outer_udp, payload);
    (meta.protocol, meta.tcp_flags, meta.version) = (protocol, tcp_flags, version);
    meta.reversed = reversed != 0;
    meta.class = if is_first != 0 { PacketClass::FirstFragment } else { PacketClass::LaterFragment };
    meta.link = LinkType::from_number(link);
    let transit = &mut meta.transit;
    (transit.timestamp_ns, transit.sequence, transit.seq) = (timestamp_ns, sequence, clock);
    (transit.ingress, transit.egress) = (ingress, egress);
    transit.direction = if is_reply != 0 { Direction::Reply } else { Direction::Original };
    transit.side = if is_outside != 0 { Side::Outside } else { Side::Inside };
    Ok(packet)
}
