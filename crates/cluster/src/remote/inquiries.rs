//! Questions to all units for the timeline of a flow.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::message::FlowId;
use protocol::trace::FlowTimeline;

use crate::peers::PeerId;

/// Limit on the time for the answers of units.
pub const INQUIRY_MAX: Duration = Duration::from_secs(1);
const LATE: &str = "no answer within 1 s";
/// Limit on questions that await answers. Further ones are answered at once, without lines.
pub const INQUIRIES_MAX: usize = 16;

/// The lines of units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitTimelines {
    /// The answers.
    pub timelines: Vec<FlowTimeline>,
    /// Nodes without an answer, by name, with the reasons.
    pub missing: Vec<(String, &'static str)>,
}

/// Takes the lines of all units.
pub type InquiryReply = Box<dyn FnOnce(UnitTimelines) + Send>;

/// A client's question.
pub(super) struct InquiryOrder {
    pub flow: FlowId,
    pub lines_max: u32,
    pub reply: InquiryReply,
}

/// A question that some units have not answered.
struct Inquiry {
    number: u64,
    due_ns: u64,
    awaited: Vec<(PeerId, String)>,
    found: UnitTimelines,
    reply: InquiryReply,
}

/// All questions that some units have not answered, the oldest first.
#[derive(Default)]
pub(super) struct Inquiries {
    /// The number of the latest.
    last: u64,
    open: VecDeque<Inquiry>,
}

impl Inquiries {
    /// Begins a question to these units. Returns its number, and the units to ask; `None` if it is
    /// answered already.
    pub fn begin(
        &mut self,
        now_ns: u64,
        awaited: Vec<(PeerId, String)>,
        reply: InquiryReply,
    ) -> Option<(u64, Vec<PeerId>)> {
        self.last += 1;
        let due_ns = now_ns.saturating_add(INQUIRY_MAX.as_nanos() as u64);
        let asked = awaited.iter().map(|(peer, _)| *peer).collect();
        let found = UnitTimelines::default();
        let inquiry = Inquiry { number: self.last, due_ns, awaited, found, reply };
        if self.open.len() >= INQUIRIES_MAX {
            inquiry.end("too many questions at a time");
            return None;
        }
        self.open.push_back(inquiry);
        self.reply_to_answered();
        Some((self.last, asked))
    }

    /// Takes the answer of a unit.
    pub fn take_answer(&mut self, peer: PeerId, number: u64, mut timeline: FlowTimeline) {
        let Some(inquiry) = self.open.iter_mut().find(|inquiry| inquiry.number == number) else { return };
        let Some(host) = inquiry.forget(peer) else { return };
        timeline.rows.iter_mut().for_each(|row| row.host.clone_from(&host));
        inquiry.found.timelines.push(timeline);
        self.reply_to_answered();
    }

    /// Stops waiting for a node, which is lost.
    pub fn lose(&mut self, peer: PeerId) {
        for inquiry in &mut self.open {
            let lost = inquiry.forget(peer).map(|host| (host, "its link has ended"));
            inquiry.found.missing.extend(lost);
        }
        self.reply_to_answered();
    }

    /// Ends questions that have waited for [`INQUIRY_MAX`].
    pub fn expire(&mut self, now_ns: u64) {
        while let Some(inquiry) = self.open.pop_front_if(|inquiry| inquiry.due_ns <= now_ns) {
            inquiry.end(LATE);
        }
    }

    fn reply_to_answered(&mut self) {
        while let Some(at) = self.open.iter().position(|inquiry| inquiry.awaited.is_empty()) {
            if let Some(inquiry) = self.open.remove(at) {
                inquiry.end("");
            }
        }
    }
}

impl Inquiry {
    /// Removes a node that is awaited. Returns its name.
    fn forget(&mut self, peer: PeerId) -> Option<String> {
        let at = self.awaited.iter().position(|(awaited, _)| *awaited == peer)?;
        Some(self.awaited.remove(at).1)
    }

    /// Replies; nodes that are still awaited are missing for this reason.
    fn end(mut self, reason: &'static str) {
        self.found.missing.extend(self.awaited.into_iter().map(|(_, host)| (host, reason)));
        (self.reply)(self.found);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test fails by panicking.
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use protocol::message::UnitId;
    use protocol::trace::{FlowPlace, Machine, TimelineRow};

    use super::*;

    const MAX_NS: u64 = INQUIRY_MAX.as_nanos() as u64;

    fn answer() -> FlowTimeline {
        let row = TimelineRow {
            at_ns: 1,
            host: String::new(),
            role: Machine::Unit(UnitId(0)),
            place: FlowPlace::NONE,
            pending: None,
            event: "reset".to_owned(),
            details: String::new(),
        };
        FlowTimeline { rows: vec![row], overwritten: 0 }
    }

    fn begin(inquiries: &mut Inquiries, now_ns: u64, count: usize) -> Receiver<UnitTimelines> {
        let (sender, replies) = channel();
        let asked = (0..count).map(|at| (PeerId::at(at), format!("unit-{at}"))).collect();
        inquiries.begin(now_ns, asked, Box::new(move |reply| sender.send(reply).unwrap()));
        replies
    }

    #[test]
    fn a_question_ends_once_all_units_have_answered_or_are_lost() {
        let mut inquiries = Inquiries::default();
        assert_eq!(begin(&mut inquiries, 0, 0).try_recv(), Ok(UnitTimelines::default()));
        let [first, second] = [3, 1].map(|count| begin(&mut inquiries, 5, count));
        inquiries.take_answer(PeerId::at(1), 2, answer());
        inquiries.take_answer(PeerId::at(1), 2, answer()); // Twice, and for a question that is over.
        inquiries.take_answer(PeerId::at(2), 1, answer());
        inquiries.lose(PeerId::at(0));
        let lost = vec![("unit-0".to_owned(), "its link has ended")];
        let reply = second.try_recv().unwrap();
        assert_eq!(reply, UnitTimelines { timelines: Vec::new(), missing: lost.clone() });
        assert!(first.try_recv().is_err());
        inquiries.expire(5 + MAX_NS - 1);
        inquiries.take_answer(PeerId::at(2), 2, answer());
        let reply = first.try_recv().unwrap();
        assert_eq!(reply.missing, lost);
        let hosts: Vec<&str> = reply.timelines.iter().map(|timeline| &*timeline.rows[0].host).collect();
        assert_eq!(hosts, ["unit-1", "unit-2"]);
    }

    #[test]
    fn a_silent_unit_is_named_in_time_and_questions_are_bounded() {
        let mut inquiries = Inquiries::default();
        let silent = begin(&mut inquiries, 5, 1);
        let others: Vec<_> = (1..INQUIRIES_MAX).map(|_| begin(&mut inquiries, 6, 1)).collect();
        let refused = begin(&mut inquiries, 6, 1).try_recv().unwrap();
        assert_eq!(refused.missing, [("unit-0".to_owned(), "too many questions at a time")]);
        inquiries.expire(5 + MAX_NS);
        let late = silent.try_recv().unwrap();
        assert_eq!(late.missing, [("unit-0".to_owned(), LATE)]);
        assert!(others.iter().all(|other| other.try_recv().is_err()));
        begin(&mut inquiries, 7, 1);
        assert_eq!(inquiries.open.len(), INQUIRIES_MAX);
    }
}
