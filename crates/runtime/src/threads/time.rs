//! What time it is: for the router, and for units, which have no clock.

use std::sync::atomic::Ordering;

use graph::Chain;
use packet::{Packet, PacketPool};

use super::lane::{Lane, ToUnit};
use super::{TIME_NS, Threads};

impl Threads {
    /// Does what is due by now.
    pub(super) fn pass_time(&mut self) {
        let began_ns = *self.began_ns.get_or_insert(self.now_ns);
        self.epochs.pass(self.now_ns - began_ns, self.router.counters().flowlets());
        self.router.advance(self.now_ns, &mut self.orders);
        self.carry_out();
    }

    /// Lets units know what time it is.
    pub(super) fn tell_time(&mut self) {
        if self.now_ns < self.told_ns.saturating_add(TIME_NS) {
            return;
        }
        self.told_ns = self.now_ns;
        for lane in self.lanes.iter_mut().flatten() {
            if std::mem::take(&mut lane.is_used) {
                lane.push(ToUnit::Time(self.now_ns));
            }
        }
    }

    /// Lets time go on for units that have something to do by now, when nothing is under way: no
    /// packet, no message, no state. A flow whose time is over ends where it is, then, and nowhere
    /// else.
    pub(super) fn step(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        self.settle(front, out, pool);
        self.stepped_ns = self.now_ns;
        self.ask(|lane| std::mem::take(&mut lane.has_messages).then_some(ToUnit::Answer));
        self.await_answers(front, out, pool);
        let now_ns = self.now_ns;
        self.ask(|lane| (lane.due_ns <= now_ns).then_some(ToUnit::Step(now_ns)));
        self.await_answers(front, out, pool);
    }

    /// A unit's thread has panicked. Whatever of its flows was lost, or was to go to others, nobody
    /// would ever wait for in vain: all flows of all units end, and packets that wait for states
    /// are dropped.
    #[cold]
    pub(super) fn start_over(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        self.is_starting_over = true;
        while std::mem::take(&mut self.has_failed) {
            self.ask_all(|_| Some(ToUnit::StartOver));
            self.await_answers(front, out, pool);
        }
        self.router.end_all();
        self.orders.clear();
        // Nobody may ask another one for something that still throws away what comes.
        self.ask_all(|_| Some(ToUnit::GoOn));
        self.await_answers(front, out, pool);
        self.is_starting_over = false;
    }

    /// Gives units something that they answer.
    fn ask(&mut self, question: impl Fn(&mut Lane) -> Option<ToUnit>) {
        self.ask_all(|lane| if lane.is_ready { question(lane) } else { None });
    }

    /// The same, and those that have not started yet, too.
    fn ask_all(&mut self, question: impl Fn(&mut Lane) -> Option<ToUnit>) {
        for lane in self.lanes.iter_mut().flatten() {
            if let Some(question) = question(lane) {
                lane.is_behind = true;
                lane.push(question);
            }
        }
    }

    /// Waits until units have answered, and until what they have for each other has come.
    fn await_answers(&mut self, front: &mut Chain, out: &mut Vec<Packet>, pool: &mut PacketPool) {
        let is_behind = |threads: &Threads| threads.lanes.iter().flatten().any(|lane| lane.is_behind);
        self.take_returns(front, out, pool);
        while is_behind(self) || self.mails_under_way.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
            self.take_returns(front, out, pool);
        }
        // What units sent before they had dealt with the last mail.
        self.take_returns(front, out, pool);
    }
}
