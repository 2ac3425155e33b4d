//! The units' lines.

use super::{Audit, Checked, flow::StateAudit};
use crate::message::UnitId;
use crate::trace::event::TimelineEvent;
use crate::trace::line::TimelineLine;
use crate::trace::place::FlowPlace;
use crate::trace::summary::MessagePeer;

/// One packet after the other.
const IN_ORDER: &str =
    "a unit processes packet n only with the state of all packets up to n-1 (design.md 3.2)";

impl Audit {
    pub(super) fn take_of_unit(&mut self, unit: UnitId, line: &TimelineLine) -> Checked {
        let place = line.place;
        let peer = match line.event {
            TimelineEvent::Sent { to: MessagePeer::Unit(peer), .. }
            | TimelineEvent::Received { from: MessagePeer::Unit(peer), .. } => Some(peer),
            _ => None,
        };
        match line.event {
            TimelineEvent::Fault { .. } | TimelineEvent::Reset {} => self.forget_states_at(unit),
            TimelineEvent::StateInstalled { source } => self.check_installed(unit, place, source)?,
            TimelineEvent::StateContinued {} => {
                let (Some(flow), Some(epoch), Some(seq)) = (self.flow(place), place.epoch, place.seq) else {
                    return Ok(());
                };
                flow.states.insert(unit, StateAudit { epoch, seq });
                flow.epochs.get_mut(&epoch).into_iter().for_each(|known| known.begun_at = Some(unit));
            }
            TimelineEvent::Processed {} => self.check_processed(unit, place)?,
            TimelineEvent::GivenUp { packets } => {
                let (Some(flow), Some(seq)) = (self.flow(place), place.seq) else { return Ok(()) };
                flow.close((1..=seq).rev().take(packets as usize));
                let search = flow.searches.get_mut(&unit);
                if let Some(search) = search.filter(|search| Some(search.epoch) == place.epoch) {
                    search.given_up = packets;
                } else if let Some(state) = flow.states.get_mut(&unit) {
                    // All up to this seq are processed or given up.
                    let from = state.seq;
                    state.seq = state.seq.max(seq);
                    flow.close(from + 1..=seq);
                }
            }
            TimelineEvent::Dropped { .. } => {
                self.flow(place).into_iter().for_each(|flow| flow.close(place.seq));
            }
            TimelineEvent::StateEnded {} => {
                self.flow(place).into_iter().for_each(|flow| _ = flow.states.remove(&unit));
            }
            TimelineEvent::StateReleased {} => {
                self.flow(place).into_iter().for_each(|flow| _ = flow.states.remove(&unit));
                self.must_bury = Some((self.number, unit, place));
            }
            TimelineEvent::Received { message, .. } => {
                match (message.name(), peer) {
                    ("Recover", None) => self.begin_search(unit, place),
                    ("Found", Some(from)) => self.note_found(unit, place, from, message.base()),
                    ("StateAck", Some(_)) => self.note_fenced(unit, place),
                    _ => {}
                }
                if let Some((flow, base)) = self.flow(place).zip(message.base()) {
                    flow.bases.insert(unit, base);
                }
            }
            TimelineEvent::ChangesApplied { base } => {
                let named = self.flow(place).and_then(|flow| flow.bases.get(&unit).copied());
                if let Some(named) = named.filter(|named| *named != base) {
                    return self.broken(
                        "changes apply to the replica that they name, and to no other (design.md 3.5)",
                        place,
                        format!("the changes are to replica {named}"),
                        format!("{unit} applied them to replica {base}"),
                    );
                }
            }
            TimelineEvent::Sent { message, .. } => match (message.name(), peer) {
                ("State" | "Changes", _) => self.check_sent_state(unit, place)?,
                ("Seek", Some(to)) => self.check_seek(unit, place, to)?,
                ("StateAck", Some(to)) => self.note_fence(unit, place, to),
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn check_installed(&mut self, unit: UnitId, place: FlowPlace, source: &'static str) -> Checked {
        let (Some(flow), Some(epoch), Some(seq)) = (self.flow(place), place.epoch, place.seq) else {
            return Ok(());
        };
        let before = flow.states.get(&unit).copied();
        let last = flow.epochs.get(&epoch).map_or(0, |known| known.last_before);
        flow.states.insert(unit, StateAudit { epoch, seq });
        let Some(known) = flow.epochs.get_mut(&epoch) else { return Ok(()) };
        match known.begun_at.replace(unit) {
            Some(other) if other == unit => {
                let had = before.map_or("nothing".to_owned(), |state| {
                    format!("the state of epoch {}, up to packet {}", state.epoch, state.seq)
                });
                return self.broken(
                    "each step is idempotent under (flow, epoch): an epoch begins once (design.md 3.3)",
                    place,
                    format!("epoch {epoch} has begun at {unit}, which has {had}: nothing changes"),
                    format!("it began again, with a state up to packet {seq} ({source})"),
                );
            }
            Some(other) => {
                return self.broken(
                    "one unit writes in each epoch (design.md 3.6)",
                    place,
                    format!("epoch {epoch} has begun at {other}"),
                    format!("it began at {unit}, too ({source})"),
                );
            }
            None if known.owner != unit => {
                let owner = known.owner;
                return self.broken(
                    "a unit processes packets only in an epoch that it owns (design.md 3.2)",
                    place,
                    format!("epoch {epoch} belongs to {owner}"),
                    format!("{unit} began it ({source})"),
                );
            }
            None => {}
        }
        self.check_fenced(unit, place, "installed a state")?;
        let search = self.flow(place).and_then(|flow| flow.searches.remove(&unit));
        if source == "recovered" {
            return self.check_recovered(unit, place, search.unwrap_or_default(), last);
        }
        if seq < last && source == "replica" {
            return self.broken(
                "a replica is the state only if it covers the last packet of the epoch before (design.md 3.5)",
                place,
                format!("a state that covers packet {last}, the last one of epoch {}", epoch - 1),
                format!("{unit} took a replica that covers the packets up to {seq}"),
            );
        }
        if seq < last && epoch > 1 {
            return self.broken(
                IN_ORDER,
                place,
                format!("epoch {epoch} begins with the state of all packets up to {last}"),
                format!("a state of those up to {seq} ({source})"),
            );
        }
        Ok(())
    }

    fn check_processed(&mut self, unit: UnitId, place: FlowPlace) -> Checked {
        self.check_fenced(unit, place, "processed a packet")?;
        let (Some(flow), Some(seq)) = (self.flow(place), place.seq) else { return Ok(()) };
        let first = flow.processed.insert(seq, unit);
        let holder = flow.states.keys().next_back().copied();
        match (flow.states.get(&unit).map(|state| state.seq), first) {
            (None, _) => {
                let holder = holder.map_or("no unit has it".to_owned(), |unit| format!("{unit} has it"));
                self.broken(
                    "a late packet is relayed to the owner, never processed where the state was (design.md 3.3)",
                    place,
                    format!("only a unit with the flow's state processes it; {holder}"),
                    format!("{unit} processed it without the state"),
                )
            }
            (Some(_), Some(first)) => self.broken(
                "each packet is processed at most once (design.md 3.10)",
                place,
                format!("packet {seq} was processed by {first}: {unit} drops or relays it"),
                format!("{unit} processed it again"),
            ),
            (Some(covered), None) if covered + 1 != seq => self.broken(
                IN_ORDER,
                place,
                format!("packet {} is next: the state covers those up to {covered}", covered + 1),
                format!("{unit} processed packet {seq}"),
            ),
            (Some(_), None) => {
                self.flow(place)
                    .and_then(|flow| flow.states.get_mut(&unit))
                    .into_iter()
                    .for_each(|state| state.seq = seq);
                Ok(())
            }
        }
    }

    /// design.md 3.3: a pull is answered with the state of all packets of the epoch.
    fn check_sent_state(&mut self, unit: UnitId, place: FlowPlace) -> Checked {
        let (Some(flow), Some(epoch), Some(seq)) = (self.flow(place), place.epoch, place.seq) else {
            return Ok(());
        };
        match flow.epochs.get(&epoch).map(|known| known.last_before) {
            Some(last) if seq < last => self.broken(
                "a pull is answered once the last packet of the epoch is processed or given up \
                 (design.md 3.3)",
                place,
                format!(
                    "{unit} answers with the state of all packets up to {last}, the last one of epoch {}",
                    epoch - 1
                ),
                format!("it sent the state of those up to {seq}"),
            ),
            _ => Ok(()),
        }
    }
}
