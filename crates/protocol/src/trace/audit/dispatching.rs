//! The dispatcher's lines.

use super::{Audit, Checked, FlowAudit, RuleViolation, flow::EpochAudit};
use crate::message::UnitId;
use crate::trace::event::TimelineEvent;
use crate::trace::line::TimelineLine;
use crate::trace::place::FlowPlace;
use crate::trace::summary::MessagePeer;

/// Flows of a unit that stand for all.
const FLOWS_SHOWN: usize = 2;

impl Audit {
    pub(super) fn take_of_dispatcher(&mut self, line: &TimelineLine) -> Checked {
        let place = line.place;
        let is_freed = matches!(line.event, TimelineEvent::AliasFreed {})
            && place.flow == self.must_free.map(|(_, id)| id);
        if is_freed {
            self.must_free = None;
        }
        self.check_freed()?;
        if !matches!(
            line.event,
            TimelineEvent::OwnerChanged { .. }
                | TimelineEvent::FlowEnded { .. }
                | TimelineEvent::AliasFreed {}
        ) {
            self.check_moved()?;
            self.must_move = None;
        }
        match line.event {
            TimelineEvent::FlowBegan { unit, key } => {
                self.check_key(place, &key)?;
                if let Some(id) = place.flow {
                    self.flows.insert(id, FlowAudit::new(unit, key));
                }
            }
            TimelineEvent::GroupJoined { group } => {
                self.flow(place).into_iter().for_each(|flow| flow.group = Some(group));
            }
            TimelineEvent::Dispatched { unit } => self.check_dispatched(place, unit)?,
            TimelineEvent::OwnerChanged { from, to } => self.check_owner(place, from, to)?,
            TimelineEvent::Sent { message, to } => {
                self.check_sent_by_dispatcher(place, message.name(), to)?
            }
            TimelineEvent::FlowEnded { .. } => {
                let number = self.number;
                if let Some((flow, id)) = self.flow(place).zip(place.flow) {
                    (flow.is_over, flow.due) = (true, None);
                    self.must_free = flow.alias.map(|_| (number, id));
                }
            }
            TimelineEvent::AliasReported { alias } => {
                let is_new =
                    |flow: &&mut FlowAudit| !flow.is_over && flow.key != alias && flow.alias != Some(alias);
                let live = self.flow(place).filter(is_new);
                live.into_iter().for_each(|flow| flow.due = Some(alias));
            }
            TimelineEvent::AliasSet { alias } => {
                // A flow's own key is none.
                self.flow(place).into_iter().for_each(|flow| {
                    (flow.alias, flow.due) = (Some(alias).filter(|alias| *alias != flow.key), None);
                });
            }
            TimelineEvent::AliasRefused { .. } => {
                self.flow(place).into_iter().for_each(|flow| flow.due = None);
            }
            TimelineEvent::AliasFreed {} => {
                self.flow(place).into_iter().for_each(|flow| flow.alias = None);
            }
            TimelineEvent::GroupMoved { group, to } => self.must_move = Some((self.number, group, to)),
            TimelineEvent::UnitChanged { unit, state } => {
                self.units.insert(unit, state);
                if matches!(state, "lost" | "off") {
                    self.processes.remove(&unit);
                }
            }
            TimelineEvent::UnitAssigned { unit, incarnation } => self.check_assigned(unit, incarnation)?,
            TimelineEvent::Awaited { packets, unit } => self.check_awaited(packets, unit)?,
            _ => {}
        }
        Ok(())
    }

    /// design.md 3.8: the alias of a flow is known before the packet that created it leaves.
    fn check_key(&self, place: FlowPlace, key: &packet::FlowKey) -> Checked {
        match self.flows.iter().find(|(_, flow)| flow.due == Some(*key)) {
            None => Ok(()),
            Some((other, _)) => self
                .broken(
                    "the dispatcher knows a flow's alias before the packet that created it leaves \
                 (design.md 3.8)",
                    place,
                    format!("{other} has the alias {key}, which its unit has reported: it gets this packet"),
                    "the alias is not set, and the packet began another flow".to_owned(),
                )
                .map_err(|mut violation| {
                    violation.flows.insert(*other);
                    violation
                }),
        }
    }

    fn check_dispatched(&mut self, place: FlowPlace, unit: UnitId) -> Checked {
        let Some(flow) = self.flow(place) else { return Ok(()) };
        let (epoch, owner) = flow.present();
        flow.last = flow.last.max(place.seq.unwrap_or(0));
        match () {
            () if flow.is_over => self.broken(
                "a flow ends once, and leaves nothing (design.md 3.9)",
                place,
                "a packet after a flow's end begins another flow".to_owned(),
                format!("it was sent to {unit} as one of the ended flow"),
            ),
            () if owner != unit || place.epoch != Some(epoch) => self.broken(
                "packets go to the flow's owner, in its epoch (design.md 3.1)",
                place,
                format!("{owner}, epoch {epoch}"),
                format!("sent to {unit}"),
            ),
            () => self.check_announced(place, "a packet"),
        }
    }

    /// design.md 3.1: the epoch rises with each change of the owner.
    fn check_owner(&mut self, place: FlowPlace, from: UnitId, to: UnitId) -> Checked {
        let is_lost = |unit: &UnitId| self.units.get(unit) == Some(&"lost");
        let (lost_owner, is_at_lost) = (Some(from).filter(is_lost), is_lost(&to));
        let (Some(epoch), Some(flow)) = (place.epoch, self.flow(place)) else { return Ok(()) };
        let (before, owner) = flow.present();
        if epoch != before + 1 {
            return self.broken(
                "the epoch rises by one whenever the owner changes: one writer in each (design.md 3.1)",
                place,
                format!("epoch {}, as {owner} owns epoch {before}", before + 1),
                format!("{to} owns epoch {epoch}, too"),
            );
        }
        let last_before = place.seq.unwrap_or(0);
        flow.epochs.insert(epoch, EpochAudit { lost_owner, ..EpochAudit::new(to, last_before) });
        match is_at_lost {
            false => Ok(()),
            true => self.broken(
                "a lost unit owns no flow: its flows continue elsewhere, or end (design.md 3.13)",
                place,
                format!("epoch {epoch} belongs to a unit that runs"),
                format!("it belongs to {to}, which is lost"),
            ),
        }
    }

    /// design.md 3.1: `Release`, `Adopt` and `Recover` name the last packet of the epoch before.
    fn check_sent_by_dispatcher(&mut self, place: FlowPlace, name: &'static str, to: MessagePeer) -> Checked {
        match (name, to) {
            ("Recover", MessagePeer::Unit(to)) => self.check_recover(place, to)?,
            ("Release" | "Adopt", _) => self.check_announced(place, name)?,
            _ => return Ok(()),
        }
        let Some((flow, epoch)) = self.flow(place).zip(place.epoch) else { return Ok(()) };
        let Some(known) = flow.epochs.get(&epoch) else { return Ok(()) };
        let (last, named) = (known.last_before, place.seq.unwrap_or(0));
        if named == last {
            return Ok(());
        }
        self.broken(
            "a release follows the last packet of its epoch, and names it (design.md 3.1)",
            place,
            format!("last packet {last} of epoch {}", epoch - 1),
            format!("{name} names packet {named} as the last one"),
        )
    }

    /// design.md 3.8: an ended flow has no alias.
    pub(super) fn check_freed(&self) -> Checked {
        let Some((number, id)) = self.must_free else { return Ok(()) };
        let Some(flow) = self.flows.get(&id) else { return Ok(()) };
        let alias = flow.alias.map(|alias| alias.to_string()).unwrap_or_default();
        self.broken(
            "a flow that ends loses its alias: the key is free for others (design.md 3.8, 3.9)",
            FlowPlace::of(id),
            format!("the dispatcher frees the alias {alias} when it ends the flow"),
            "it was not freed".to_owned(),
        )
        .map_err(|violation| Box::new(RuleViolation { line: number, ..*violation }))
    }

    /// design.md 3.7: a group moves as a whole.
    pub(super) fn check_moved(&self) -> Checked {
        let Some((number, group, to)) = self.must_move else { return Ok(()) };
        let is_left = |flow: &FlowAudit| !flow.is_over && flow.group == Some(group) && flow.present().1 != to;
        let mut left = self.flows.iter().filter(|(_, flow)| is_left(flow));
        let Some((first, flow)) = left.next() else { return Ok(()) };
        let of_group = |flow: &FlowAudit| !flow.is_over && flow.group == Some(group);
        let flows = self.flows.iter().filter(|(_, flow)| of_group(flow)).map(|(id, _)| *id).collect();
        self.broken(
            "an affinity group moves as a whole, and has one owner (design.md 3.7)",
            FlowPlace::of(*first),
            format!("all flows of group {group} move to {to}"),
            format!("{first} stays at {}, and {} more", flow.present().1, left.count()),
        )
        .map_err(|violation| Box::new(RuleViolation { line: number, flows, ..*violation }))
    }

    /// design.md 3.13: a process that comes back is another one.
    fn check_assigned(&mut self, unit: UnitId, incarnation: u64) -> Checked {
        let before = self.processes.insert(unit, incarnation);
        self.forget_states_at(unit);
        match before {
            None => Ok(()),
            Some(before) => self
                .broken(
                    "a unit that comes back is another process, without flows: the one before is lost \
                 (design.md 3.13)",
                    FlowPlace::NONE,
                    format!(
                        "{unit} is lost, with the flows of its process {before}, before it is another one"
                    ),
                    format!(
                        "process {incarnation} is {unit}, and the flows of process {before} count as its own"
                    ),
                )
                .map_err(|violation| self.with_flows_of(unit, *violation)),
        }
    }

    /// design.md 3.13: packets at a lost unit are lost with it.
    fn check_awaited(&self, packets: u64, unit: UnitId) -> Checked {
        match self.units.get(&unit) {
            Some(&"lost") => self
                .broken(
                    "every packet is accounted for: those in flight to a lost unit count as lost \
                 (design.md 3.13)",
                    FlowPlace::NONE,
                    format!("the dispatcher awaits nothing of {unit}, which is lost"),
                    format!("it awaits {packets} packets"),
                )
                .map_err(|violation| self.with_flows_of(unit, *violation)),
            _ => Ok(()),
        }
    }

    /// Returns the violation with some live flows of a unit.
    fn with_flows_of(&self, unit: UnitId, violation: RuleViolation) -> Box<RuleViolation> {
        let owned = self.flows.iter().filter(|(_, flow)| !flow.is_over && flow.present().1 == unit);
        let flows = owned.map(|(id, _)| *id).take(FLOWS_SHOWN).collect();
        Box::new(RuleViolation { flows, ..violation })
    }
}
