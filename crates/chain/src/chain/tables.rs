//! Several tables of flows under the same functions: each that of a unit.
//!
//! Functions, with what they share among flows, are the machine's; flows are the units'. At any time one table is the
//! active one, of which packets are processed; a flow is in one table only, and whoever gives packets to the chain sees to it
//! that they find it there. All tables together hold as many flows as the options say. It numbers its flows, too: their numbers here are *homes*, by which it finds them again.
//! What it must know of flows comes out as [`Change`]s.

use nf::EndReason;
use packet::{Class, DropReason, FlowKey, Packet, Pool, parse};

use super::{Chain, ChainError, Run};
use crate::flows::Flows;
use crate::fragments::{Datagram, First};

/// Tables of flows beside the active one.
#[derive(Default)]
pub(super) struct Tables {
    active: u16,
    parked: Vec<Flows>,
    /// Flows in these.
    parked_flows: u64,
    /// By table: where it is parked; of no meaning for the active one.
    places: Vec<usize>,
}

/// Something that whoever numbers flows must know of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Packets with this key, too, are the flow's, and no other's, in place of the alias that it had before.
    Alias {
        /// The flow's home.
        home: u32,
        /// The key; if it is the flow's own, it has no alias any more.
        key: FlowKey,
        /// The key's hash.
        hash: u64,
    },
    /// What became of the first fragment of a datagram is known now, and so is whom the later ones follow.
    FirstFragment {
        /// The datagram.
        datagram: Datagram,
        /// The flow's key, and whether it is reversed; none: it was dropped.
        passed: Option<(FlowKey, bool)>,
        /// When that was.
        at_ns: u64,
    },
    /// A flow of this home ended, in this table.
    Ended {
        /// The table.
        table: u16,
        /// The flow's home.
        home: u32,
    },
}

/// Whose flow a packet goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// That with this key.
    Flow {
        /// The key.
        key: FlowKey,
        /// Its hash.
        hash: u64,
    },
    /// That with the key in its metadata, if it is known; else that with this one.
    Either {
        /// The key.
        key: FlowKey,
        /// Its hash.
        hash: u64,
    },
    /// None that is known: [`Chain::process_aside`] says what becomes of it.
    Aside,
}

/// A flow in a table.
#[derive(Clone, Copy)]
pub(super) struct Holder {
    table: u16,
    record: u32,
}

impl Tables {
    /// Which table is the active one.
    #[inline]
    pub fn active(&self) -> u16 {
        self.active
    }

    /// Whether there are others.
    pub fn is_several(&self) -> bool {
        !self.parked.is_empty()
    }

    /// The others.
    pub fn parked_mut(&mut self) -> &mut [Flows] {
        &mut self.parked
    }

    /// Flows in the others.
    pub fn parked_flows(&self) -> u64 {
        self.parked_flows
    }

    /// The other one with the most flows, if they have any.
    fn fullest(&self) -> Option<u16> {
        let live = |&table: &u16| self.parked[self.places[usize::from(table)]].records.live();
        let others = (0..self.places.len() as u16).filter(|&table| table != self.active);
        others.max_by_key(live).filter(|table| live(table) > 0)
    }
}

impl Chain {
    /// Adds a table without flows, as large as the first one, which is 0; its number is one above the last one's.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn add_table(&mut self) -> Result<u16, ChainError> {
        let tables = &mut self.tables;
        if tables.places.is_empty() {
            tables.places.push(0);
        }
        tables.parked.push(Flows::new(
            self.flows.records.capacity(),
            self.layout.clone(),
            self.parser.hasher,
            self.consolidation.as_ref().map(|consolidation| consolidation.scope()),
        )?);
        tables.places.push(tables.parked.len() - 1);
        Ok((tables.places.len() - 1) as u16)
    }

    /// Packets are processed with the flows of this table from now on. One that there is not changes nothing.
    #[inline]
    pub fn switch_to(&mut self, table: u16) {
        let Tables { active, parked, parked_flows, places } = &mut self.tables;
        if *active == table || usize::from(table) >= places.len() {
            return;
        }
        let place = places[usize::from(table)];
        let live = |flows: &Flows| u64::from(flows.records.live());
        *parked_flows = *parked_flows - live(&parked[place]) + live(&self.flows);
        std::mem::swap(&mut self.flows, &mut parked[place]);
        places[usize::from(*active)] = place;
        *active = table;
    }

    /// Parses and numbers packets, in the order in which they came: what [`Chain::process`] begins with. Each is then given to
    /// [`Chain::process_admitted`] or [`Chain::process_aside`].
    pub fn admit(&mut self, batch: &mut [Packet]) {
        self.parse(batch, |_, _| {});
    }

    /// Whether an admitted packet could not be parsed; to be asked in order.
    pub fn is_refused(&self, packet: &Packet) -> bool {
        self.refused.front().is_some_and(|&(sequence, _)| sequence == packet.meta().transit.sequence)
    }

    /// Which flow an admitted packet goes with. A later fragment has that flow's key from now on.
    pub fn way(&mut self, packet: &mut Packet, pool: &mut Pool) -> Way {
        let meta = packet.meta();
        if meta.class == Class::LaterFragment {
            self.now_ns = self.now_ns.max(meta.transit.timestamp_ns);
            self.expire_fragments(pool);
        }
        match meta.class {
            Class::Whole | Class::FirstFragment => Way::Flow { key: meta.key, hash: meta.hash },
            Class::IcmpError => {
                let (key, _) = parse::portless_key(packet);
                Way::Either { key, hash: self.parser.hasher.hash(&key) }
            }
            Class::LaterFragment => match self.fragments.get(&Datagram::of(packet)) {
                Some(&First::Passed { key, reversed }) => {
                    let (meta, hash) = (packet.meta_mut(), self.parser.hasher.hash(&key));
                    (meta.key, meta.reversed, meta.hash) = (key, reversed, hash);
                    Way::Flow { key, hash }
                }
                Some(First::Dropped | First::Missing(_)) | None => Way::Aside,
            },
            Class::NotIp => Way::Aside,
        }
    }

    /// Processes admitted packets of flows of the active table, in the order in which they came. `homes` has the homes of their
    /// flows, one for each.
    pub fn process_admitted(
        &mut self,
        batch: &mut Vec<Packet>,
        homes: &[u32],
        out: &mut Vec<Packet>,
        pool: &mut Pool,
    ) {
        if self.stages.is_empty() {
            let mut run = Run { out, pool, observer: None };
            return batch.drain(..).for_each(|packet| self.pass(packet, &mut run));
        }
        self.look_up_homes(batch, homes);
        self.run(batch, &mut Run { out, pool, observer: None });
    }

    /// Processes an admitted packet that goes with no flow that is known: one that could not be parsed, is not IP, or is a
    /// fragment whose first one has not come or was dropped. In their order, and behind all packets that came before.
    pub fn process_aside(&mut self, packet: Packet, out: &mut Vec<Packet>, pool: &mut Pool) {
        let parsed = self.parsed(&packet);
        let mut run = Run { out, pool, observer: None };
        if self.stages.is_empty() && parsed.is_ok() {
            return self.pass(packet, &mut run);
        }
        self.alone(packet, parsed, &mut run);
    }

    /// Drops an admitted packet; with a first fragment, those that wait for it.
    pub fn drop_admitted(&mut self, packet: Packet, reason: DropReason, pool: &mut Pool) {
        if packet.meta().class == Class::FirstFragment {
            let mut waited = Vec::new();
            self.learn_first(Datagram::of(&packet), None, self.now_ns, &mut waited);
            for packet in waited {
                self.drop_admitted(packet, DropReason::FragmentOfDropped, pool);
            }
        }
        self.counters.drops[reason.index()] += 1;
        pool.give(packet);
    }

    /// Whether what one flow's packet does may matter to another flow's, so that the order counts in which packets of different
    /// flows are processed.
    pub fn is_order_felt(&self) -> bool {
        self.stages.iter().any(|stage| stage.shared().is_order_felt())
    }

    /// When flows of the active table are to end.
    pub fn active_due_ns(&self) -> u64 {
        self.flows.due_ns()
    }

    /// When [`advance_all`](Chain::advance_all) has flows to end.
    pub fn due_ns(&self) -> u64 {
        let parked = self.tables.parked.iter().map(Flows::due_ns);
        parked.fold(self.flows.due_ns(), u64::min)
    }

    /// Lets time pass to `now_ns` in all tables.
    pub fn advance_all(&mut self, now_ns: u64, pool: &mut Pool) {
        let active = self.tables.active;
        for table in 0..self.tables.places.len() as u16 {
            let place = self.tables.places[usize::from(table)];
            if table != active && self.tables.parked[place].due_ns() <= now_ns {
                self.switch_to(table);
                self.advance(now_ns, pool);
                self.switch_to(active);
            }
        }
        self.advance(now_ns, pool);
    }

    /// Ends all flows of all tables; as [`finish`](Chain::finish), false if it is to be called again.
    pub fn finish_all(&mut self, pool: &mut Pool) -> bool {
        for table in 1..self.tables.places.len() as u16 {
            self.switch_to(table);
            if !self.finish(pool) {
                return false;
            }
        }
        self.switch_to(0);
        self.finish(pool)
    }

    /// How many tables there are.
    pub fn tables(&self) -> u16 {
        self.tables.places.len().max(1) as u16
    }

    /// What has become of flows that have homes, in order, since this was emptied last.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The same, to be emptied.
    pub fn changes_mut(&mut self) -> &mut Vec<Change> {
        &mut self.changes
    }

    /// The flows of the active table that have this home.
    pub fn flows_of(&self, home: u32) -> impl Iterator<Item = u32> + '_ {
        self.flows.homes.records(home)
    }

    /// A flow of the active table has this home; it has none yet.
    pub fn set_home(&mut self, record: u32, home: u32) {
        self.flows.homes.add(home, record);
    }

    /// The flows of the active table that had one home have another one, which no flow has.
    pub fn rehome(&mut self, home: u32, new: u32) {
        let records: Vec<u32> = self.flows_of(home).collect();
        for record in records {
            self.flows.homes.remove(record);
            self.flows.homes.add(new, record);
        }
    }

    /// Ends the flows of the active table that have this home.
    pub fn end_flows_of(&mut self, home: u32, pool: &mut Pool) {
        let newest = |chain: &Chain| chain.flows_of(home).next();
        while let Some(record) = newest(self) {
            self.end_flow(record, EndReason::Evicted, pool);
        }
    }

    /// Ends the flows of this home whose time is over, in whatever table they are. Time alone clears them away a little later, and
    /// until then nobody finds them.
    pub fn end_expired_of(&mut self, home: u32, now_ns: u64, pool: &mut Pool) {
        let active = self.tables.active;
        self.now_ns = self.now_ns.max(now_ns);
        for table in 0..self.tables() {
            self.switch_to(table);
            let is_over = |&record: &u32| self.flows.records.header(record).has_expired(self.now_ns);
            let over: Vec<u32> = self.flows_of(home).filter(is_over).collect();
            over.into_iter().for_each(|record| self.end_in_time(record, pool));
        }
        self.switch_to(active);
    }

    /// The home of the flow that this packet begins, if the chain was told.
    pub(super) fn home_of(&self, packet: &Packet) -> Option<u32> {
        let sequence = packet.meta().transit.sequence;
        self.homes.iter().find(|&&(of, _)| of == sequence).map(|&(_, home)| home)
    }

    /// Gives a flow of the active table an alias, or says which flow of any has it.
    pub(super) fn set_alias(&mut self, record: u32, key: FlowKey, reversed: bool) -> Result<(), Holder> {
        if let Some(holder) = self.holder_elsewhere(record, &key) {
            self.flows.forget_rules(record);
            self.flows.drop_alias(record);
            return Err(holder);
        }
        let here = |record| Holder { table: self.tables.active, record };
        self.flows.set_alias(record, key, reversed).map_err(here)?;
        if let Some(home) = self.flows.homes.of(record) {
            let hash = self.parser.hasher.hash(&key);
            self.changes.push(Change::Alias { home, key, hash });
        }
        Ok(())
    }

    /// Ends a flow of another table, to have room for one of the active table: of the table that has the most.
    pub(super) fn make_room_elsewhere(&mut self, pool: &mut Pool) -> bool {
        let Some(table) = self.tables.fullest() else { return false };
        let active = self.tables.active;
        self.switch_to(table);
        let victim = self.flows.victim();
        if let Some(victim) = victim {
            self.end_flow(victim, EndReason::Evicted, pool);
        }
        self.switch_to(active);
        victim.is_some()
    }

    /// The flow of another table that has this key, which that of `record` is to have as its alias.
    fn holder_elsewhere(&self, record: u32, key: &FlowKey) -> Option<Holder> {
        if !self.tables.is_several() || self.flows.records.header(record).key == *key {
            return None;
        }
        let hash = self.parser.hasher.hash(key);
        let tables = (0..self.tables.places.len() as u16).filter(|&table| table != self.tables.active);
        let mut found = tables.filter_map(|table| {
            let flows = &self.tables.parked[self.tables.places[usize::from(table)]];
            let (record, _) = flows.find(hash, key, false).filter(|_| flows.records.live() > 0)?;
            Some(Holder { table, record })
        });
        found.next()
    }

    /// Lets something be done to the flow that holds a key, in its table.
    pub(super) fn at_holder<R>(&mut self, holder: Holder, act: impl FnOnce(&mut Chain, u32) -> R) -> R {
        let active = self.tables.active;
        self.switch_to(holder.table);
        let done = act(self, holder.record);
        self.switch_to(active);
        done
    }
}
