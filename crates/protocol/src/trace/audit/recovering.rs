//! Lines about states that were lost with their unit, and recovered from replicas (design.md 3.13).

use std::collections::BTreeSet;

use super::{Audit, Checked, RuleViolation, flow::SearchAudit};
use crate::message::{Epoch, FlowId, UnitId, Version};
use crate::trace::line::TimelineLine;
use crate::trace::place::FlowPlace;

const ALL_ANSWER: &str = "a lost state is recovered from the newest replica: its new owner waits until all units \
                          that may have one have answered (design.md 3.13)";

/// An owner that has recovered a state, and must notify the units that it has asked.
pub(super) struct FenceAudit {
    /// The line that installed the state.
    number: usize,
    owner: UnitId,
    place: FlowPlace,
    /// Units without an acknowledgement.
    left: BTreeSet<UnitId>,
}

impl Audit {
    /// The dispatcher lets the owner of an epoch recover the state.
    pub(super) fn check_recover(&mut self, place: FlowPlace, to: UnitId) -> Checked {
        let (Some(epoch), Some(flow)) = (place.epoch, self.flow(place)) else { return Ok(()) };
        let Some(known) = flow.epochs.get_mut(&epoch) else { return Ok(()) };
        known.recovers = true;
        match known.owner {
            owner if owner == to => Ok(()),
            owner => self.broken(
                "a flow is recovered by its owner, in the owner's epoch (design.md 3.13)",
                place,
                format!("epoch {epoch} belongs to {owner}"),
                format!("{to} is to recover it"),
            ),
        }
    }

    /// Nobody has the state of an epoch after that of a lost owner, and nobody answers a release.
    pub(super) fn check_announced(&mut self, place: FlowPlace, name: &str) -> Checked {
        let (Some(epoch), Some(flow)) = (place.epoch, self.flow(place)) else { return Ok(()) };
        match flow.epochs.get(&epoch).and_then(|known| known.lost_owner) {
            Some(lost) if !flow.epochs[&epoch].recovers => self.broken(
                "a flow of a lost unit is recovered before its next packet (design.md 3.13)",
                place,
                format!("{lost}, the owner before epoch {epoch}, is lost: a Recover begins the epoch"),
                format!("it begins with {name}"),
            ),
            _ => Ok(()),
        }
    }

    /// A unit begins to seek replicas, unless it has the state of the epoch.
    pub(super) fn begin_search(&mut self, unit: UnitId, place: FlowPlace) {
        let (Some(epoch), Some(flow)) = (place.epoch, self.flow(place)) else { return };
        if flow.states.get(&unit).is_some_and(|state| state.epoch >= epoch) {
            return;
        }
        let search = flow.searches.entry(unit).or_default();
        if search.epoch != epoch || search.unanswered.is_empty() {
            *search = SearchAudit { epoch, ..SearchAudit::default() };
        }
    }

    /// A unit asks another one for a replica.
    pub(super) fn check_seek(&mut self, unit: UnitId, place: FlowPlace, asked: UnitId) -> Checked {
        let (Some(epoch), Some(flow)) = (place.epoch, self.flow(place)) else { return Ok(()) };
        if let Some(search) = flow.searches.get_mut(&unit).filter(|search| search.epoch == epoch) {
            search.asked.insert(asked);
            search.unanswered.insert(asked);
            return Ok(());
        }
        match flow.states.get(&unit).filter(|state| state.epoch >= epoch).map(|state| state.seq) {
            None => Ok(()),
            Some(seq) => self.broken(
                ALL_ANSWER,
                place,
                format!("{unit} waits for the answer of {asked}"),
                format!("it has begun epoch {epoch} before, with a state of the packets up to {seq}"),
            ),
        }
    }

    /// A unit answers with its replica, if it has a newer one.
    pub(super) fn note_found(
        &mut self,
        unit: UnitId,
        place: FlowPlace,
        from: UnitId,
        version: Option<Version>,
    ) {
        let (Some(epoch), Some(flow)) = (place.epoch, self.flow(place)) else { return };
        let search = flow.searches.get_mut(&unit).filter(|search| search.epoch == epoch);
        if let Some(search) = search.filter(|search| search.unanswered.contains(&from)) {
            search.unanswered.remove(&from);
            search.newest = search.newest.max(version.map(|version| (version, from)));
        }
    }

    /// A unit continues with a state that it has recovered.
    pub(super) fn check_recovered(
        &mut self,
        unit: UnitId,
        place: FlowPlace,
        search: SearchAudit,
        last: u64,
    ) -> Checked {
        let (Some(epoch), Some(seq), Some(flow)) = (place.epoch, place.seq, self.flow(place)) else {
            return Ok(());
        };
        flow.epochs.get_mut(&epoch).into_iter().for_each(|known| known.is_recovered = true);
        let covered = seq.saturating_sub(search.given_up);
        if let Some(silent) = search.unanswered.first() {
            return self.broken(
                ALL_ANSWER,
                place,
                format!("{unit} waits for the answer of {silent}"),
                format!("it continues with a state of the packets up to {covered}"),
            );
        }
        if let Some((version, holder)) = search.newest.filter(|(version, _)| version.seq > covered) {
            return self.broken(
                ALL_ANSWER,
                place,
                format!("{unit} continues with replica {version} of {holder}"),
                format!("it continues with a state of the packets up to {covered}"),
            );
        }
        if seq < last {
            return self.broken(
                "packets that a recovered state lacks are given up, up to the last one before its epoch \
                 (design.md 3.13)",
                place,
                format!("epoch {epoch} begins with a state that covers the packets up to {last}"),
                format!("a state of those up to {seq}"),
            );
        }
        let number = self.number;
        self.must_fence = Some(FenceAudit { number, owner: unit, place, left: search.asked });
        Ok(())
    }

    /// A unit acknowledges a state that it has recovered.
    pub(super) fn note_fence(&mut self, unit: UnitId, place: FlowPlace, to: UnitId) {
        let is_it = |fence: &&mut FenceAudit| fence.owner == unit && fence.place.flow == place.flow;
        self.must_fence.as_mut().filter(is_it).into_iter().for_each(|fence| _ = fence.left.remove(&to));
    }

    /// Earlier epochs end at all units that may have a state of them.
    pub(super) fn check_fence(&mut self, line: &TimelineLine) -> Checked {
        let Some(fence) = self.must_fence.take_if(|fence| !line.is_of_call(fence.owner)) else {
            return Ok(());
        };
        let Some(left) = fence.left.first() else { return Ok(()) };
        let FenceAudit { number, owner, place, .. } = fence;
        self.broken(
            "a state that was recovered ends the earlier epochs at all units that may have a state of them \
             (design.md 3.13)",
            place,
            format!("{owner} sends {left} a StateAck, as it has asked {left} for a replica"),
            "it sent none".to_owned(),
        )
        .map_err(|violation| Box::new(RuleViolation { line: number, ..*violation }))
    }

    /// A unit learns that a state was recovered elsewhere: what it has of earlier epochs has ended.
    pub(super) fn note_fenced(&mut self, unit: UnitId, place: FlowPlace) {
        let (Some(epoch), Some(flow)) = (place.epoch, self.flow(place)) else { return };
        if flow.epochs.get(&epoch).is_some_and(|known| known.is_recovered) {
            let fenced = flow.fenced.entry(unit).or_default();
            *fenced = epoch.max(*fenced);
        }
    }

    /// A unit begins an epoch, or processes a packet in it.
    pub(super) fn check_fenced(&self, unit: UnitId, place: FlowPlace, seen: &str) -> Checked {
        let fenced = |(id, epoch): (FlowId, Epoch)| {
            let fenced = *self.flows.get(&id)?.fenced.get(&unit)?;
            Some((epoch, fenced)).filter(|(epoch, fenced)| epoch <= fenced)
        };
        match place.flow.zip(place.epoch).and_then(fenced) {
            None => Ok(()),
            Some((epoch, fenced)) => self.broken(
                "epochs before that of a recovered state are over: no late owner begins or continues one \
                 (design.md 3.13)",
                place,
                format!("{unit} has no part in epochs up to {fenced}, which another unit has recovered"),
                format!("{unit} {seen} in epoch {epoch}"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::FlowKey;

    use super::*;
    use crate::message::{FlowRecord, FromDispatcher, FromPeer, Watermark};
    use crate::trace::audit::{endless_wait, first_violation, unfinished};
    use crate::trace::{Machine, MessagePeer, MessageSummary, TimelineEvent};

    const FLOW: FlowId = FlowId { index: 0, generation: 1 };
    /// The lost owner, the one after it, and a unit with a replica.
    const LOST: UnitId = UnitId(0);
    const NEXT: UnitId = UnitId(1);
    const HOLDER: UnitId = UnitId(2);

    fn line(role: Machine, place: FlowPlace, event: TimelineEvent) -> TimelineLine {
        let host = "test".to_owned();
        TimelineLine { at_ns: 0, host, role, place, pending: None, in_flight: None, event }
    }

    fn at(epoch: Epoch, seq: u64) -> FlowPlace {
        FlowPlace::new(FLOW, epoch, seq)
    }

    fn by_dispatcher(place: FlowPlace, event: TimelineEvent) -> TimelineLine {
        line(Machine::Dispatcher, place, event)
    }

    fn at_unit(unit: UnitId, place: FlowPlace, event: TimelineEvent) -> TimelineLine {
        line(Machine::Unit(unit), place, event)
    }

    /// A message between units, as it is sent and as it arrives.
    fn between(from: UnitId, to: UnitId, message: &FromPeer) -> [TimelineLine; 2] {
        let message = MessageSummary::from(message);
        let sent = TimelineEvent::Sent { message, to: MessagePeer::Unit(to) };
        let received = TimelineEvent::Received { message, from: MessagePeer::Unit(from) };
        [at_unit(from, message.place(), sent), at_unit(to, message.place(), received)]
    }

    fn seek() -> FromPeer {
        FromPeer::Seek { flow: FLOW, epoch: 2, has: None }
    }

    fn fence() -> FromPeer {
        FromPeer::StateAck { flow: FLOW, epoch: 2 }
    }

    fn found(seq: u64) -> FromPeer {
        let record = FlowRecord { watermark: Watermark::up_to(seq), bytes: Vec::new() };
        FromPeer::found(FLOW, 2, Some((Version { epoch: 1, seq }, record)))
    }

    /// A unit processes three packets and is lost; another one has a replica up to the first two,
    /// with which the flow continues at a third one.
    fn a_recovery() -> Vec<TimelineLine> {
        let recover =
            FromDispatcher::Recover { flow: FLOW, epoch: 2, last: 3, holders: vec![], targets: vec![] };
        let recover = MessageSummary::from(&recover);
        let [seek_sent, seek_came] = between(NEXT, HOLDER, &seek());
        let [found_sent, found_came] = between(HOLDER, NEXT, &found(2));
        let [fence_sent, fence_came] = between(NEXT, HOLDER, &fence());
        let began = TimelineEvent::FlowBegan { unit: LOST, key: FlowKey::default() };
        let gone = TimelineEvent::UnitChanged { unit: LOST, state: "lost" };
        let to = MessagePeer::Unit(NEXT);
        let from = MessagePeer::Dispatcher;
        let mut lines = vec![by_dispatcher(FlowPlace::of(FLOW), began)];
        lines.extend((1..=3).map(|seq| by_dispatcher(at(1, seq), TimelineEvent::Dispatched { unit: LOST })));
        lines.push(at_unit(LOST, at(1, 0), TimelineEvent::StateInstalled { source: "new flow" }));
        lines.extend((1..=3).map(|seq| at_unit(LOST, at(1, seq), TimelineEvent::Processed {})));
        lines.extend([
            /*  8 */ at_unit(LOST, FlowPlace::NONE, TimelineEvent::Fault { kind: "crash" }),
            /*  9 */ by_dispatcher(FlowPlace::NONE, gone),
            /* 10 */ by_dispatcher(at(2, 3), TimelineEvent::OwnerChanged { from: LOST, to: NEXT }),
            /* 11 */ by_dispatcher(at(2, 3), TimelineEvent::Sent { message: recover, to }),
            /* 12 */ by_dispatcher(at(2, 4), TimelineEvent::Dispatched { unit: NEXT }),
            /* 13 */ at_unit(NEXT, at(2, 3), TimelineEvent::Received { message: recover, from }),
            /* 14 */ seek_sent,
            /* 15 */ seek_came,
            /* 16 */ found_sent,
            /* 17 */ found_came,
            /* 18 */ at_unit(NEXT, at(2, 3), TimelineEvent::GivenUp { packets: 1 }),
            /* 19 */ at_unit(NEXT, at(2, 3), TimelineEvent::StateInstalled { source: "recovered" }),
            /* 20 */ at_unit(NEXT, at(2, 4), TimelineEvent::Processed {}),
            /* 21 */ fence_sent,
            /* 22 */ fence_came,
        ]);
        lines
    }

    /// Asserts that lines break a rule at this number.
    fn is_broken(lines: &[TimelineLine], number: usize, part: &str) {
        let (line, rule) = first_violation(lines).map_or((0, ""), |found| (found.line, found.rule));
        assert!(line == number && rule.contains(part), "line {line}: {rule}");
    }

    /// Asserts that a recovery breaks a rule at this number without one of its lines.
    fn is_broken_without(left_out: usize, number: usize, part: &str) {
        let mut lines = a_recovery();
        lines.remove(left_out);
        is_broken(&lines, number, part);
    }

    /// The same with another line in the place of one.
    fn is_broken_with(number: usize, place: FlowPlace, event: TimelineEvent, at: usize, part: &str) {
        let mut lines = a_recovery();
        lines[number] = TimelineLine { place, event, ..lines[number].clone() };
        is_broken(&lines, at, part);
    }

    #[test]
    fn a_recovery_breaks_no_rule() {
        assert_eq!(first_violation(&a_recovery()), None);
        assert_eq!(unfinished(&a_recovery()), []);
        assert_eq!(unfinished(&a_recovery()[..20]), [FLOW], "packet 4 waits");
    }

    #[test]
    fn an_owner_waits_for_all_answers_and_takes_the_newest() {
        is_broken_without(17, 18, "until all units");
        is_broken_with(18, at(2, 3), TimelineEvent::GivenUp { packets: 2 }, 19, "newest");
        let mut lines = a_recovery();
        lines.swap(14, 19); // It asks after it has begun.
        is_broken(&lines, 19, "until all units");
    }

    #[test]
    fn a_recovered_state_gives_up_what_it_lacks() {
        let recovered = TimelineEvent::StateInstalled { source: "recovered" };
        let mut lines = a_recovery();
        lines.remove(18);
        lines[18] = at_unit(NEXT, at(2, 2), recovered);
        is_broken(&lines, 18, "are given up");
    }

    #[test]
    fn earlier_epochs_are_over() {
        is_broken_without(21, 19, "ends the earlier epochs");
        let processed = at_unit(HOLDER, at(1, 3), TimelineEvent::Processed {});
        let mut lines = a_recovery();
        lines.push(processed);
        is_broken(&lines, 23, "are over");
    }

    #[test]
    fn a_flow_of_a_lost_unit_is_recovered_at_once() {
        is_broken_without(11, 11, "before its next packet");
        let changed = TimelineEvent::OwnerChanged { from: LOST, to: NEXT };
        is_broken_with(10, at(1, 3), changed, 10, "epoch rises");
        let stays = TimelineEvent::OwnerChanged { from: LOST, to: LOST };
        is_broken_with(10, at(2, 3), stays, 10, "owns no flow");
        let mut lines = a_recovery();
        let TimelineEvent::Sent { message, .. } = lines[11].event else { return };
        lines[11].event = TimelineEvent::Sent { message, to: MessagePeer::Unit(HOLDER) };
        is_broken(&lines, 11, "by its owner");
    }

    #[test]
    fn a_search_at_a_lost_unit_ends() {
        let mut lines = a_recovery();
        lines.truncate(15);
        let lost = TimelineEvent::UnitChanged { unit: HOLDER, state: "lost" };
        lines.push(by_dispatcher(FlowPlace::NONE, lost));
        let [again, _] = between(NEXT, HOLDER, &seek());
        lines.extend([again.clone(), again.clone()]);
        assert_eq!(endless_wait(&lines), None);
        lines.push(again);
        assert_eq!(endless_wait(&lines).map(|wait| wait.line), Some(18));
    }
}
