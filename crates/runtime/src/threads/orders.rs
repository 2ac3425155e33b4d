//! What the router wants done: messages to units, and threads for them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use graph::Chain;
use protocol::dispatcher::Order;
use protocol::message::UnitId;
use protocol::unit::Unit;

use super::Threads;
use super::engine::ChainEngine;
use super::figures::FiguresBoard;
use super::lane::{Lane, RING, ToUnit};
use super::worker::{Worker, control, pin};
use crate::panics::Processing;

impl Threads {
    /// Carries out the router's orders.
    pub(super) fn carry_out(&mut self) {
        let mut orders = std::mem::take(&mut self.orders);
        for order in orders.drain(..) {
            let since_ns = self.since_ns(self.now_ns);
            match order {
                Order::Send { to, message } => {
                    if let Some(lane) = &mut self.lanes[to.index()] {
                        lane.has_messages = true;
                        lane.push(ToUnit::Message(self.now_ns, message));
                    }
                }
                Order::Start(unit) => self.start(unit),
                Order::Stop(unit) => {
                    self.epochs.set_ready(since_ns, unit, false);
                    self.epochs.set_on(since_ns, unit, false);
                }
            }
        }
        self.orders = orders;
    }

    /// Starts a unit. One that was stopped before still has its thread, which sleeps. If there can
    /// be no thread the others go on without it.
    fn start(&mut self, unit: UnitId) {
        let since_ns = self.since_ns(self.now_ns);
        match &mut self.lanes[unit.index()] {
            Some(lane) => {
                if lane.is_ready {
                    self.epochs.set_on(since_ns, unit, true);
                    self.set_ready(unit);
                }
            }
            None => {
                if self.spawn(unit, None).is_ok() {
                    self.epochs.set_on(since_ns, unit, true);
                }
            }
        }
    }

    pub(super) fn set_ready(&mut self, unit: UnitId) {
        let since_ns = self.since_ns(self.now_ns);
        self.epochs.set_ready(since_ns, unit, true);
        self.router.started(self.now_ns, unit);
    }

    /// Starts a unit's thread, which makes its chain if there is none yet.
    pub(super) fn spawn(&mut self, id: UnitId, chain: Option<Box<Chain>>) -> std::io::Result<()> {
        let (ring, inbox) = rtrb::RingBuffer::new(RING);
        let Some(mails) = self.mails[id.index()].take() else { return Ok(()) };
        let (mailboxes, returns) = (self.mailboxes.clone(), self.returns.clone());
        let (make, commons, commands) = (Arc::clone(&self.make), self.commons.clone(), self.commands.clone());
        let bell = Arc::clone(&self.mailboxes[id.index()].bell);
        let (config, rung, under_way) = (self.config, Arc::clone(&bell), Arc::clone(&self.mails_under_way));
        let figures = FiguresBoard::default();
        let board = Arc::clone(&figures);
        let work = move || {
            pin(id);
            let mut chain = match chain {
                Some(chain) => chain,
                None => {
                    let _processing = Processing::begin();
                    // A function that panics when it is made is one that cannot be made.
                    catch_unwind(AssertUnwindSafe(|| make().ok())).ok().flatten()?
                }
            };
            chain.join(commons);
            chain.let_no_fragments_wait();
            commands.iter().for_each(|(stage, command)| control(&mut chain, *stage, command));
            let slots = config.router_of_threads(chain.options()).flows_max;
            let unit = Unit::new(config.unit_on_thread(id), ChainEngine::new(chain, slots));
            Some(Worker { id, unit, inbox, mails, mailboxes, under_way, returns, bell: rung, board }.run())
        };
        let thread = std::thread::Builder::new().name(format!("unit-{}", id.0)).spawn(work)?;
        self.lanes[id.index()] = Some(Lane {
            ring,
            bell,
            thread: Some(thread),
            waiting: VecDeque::new(),
            is_used: false,
            is_behind: false,
            has_messages: false,
            due_ns: 0,
            ordered: Instant::now(),
            is_ready: false,
            through: 0,
            figures,
        });
        Ok(())
    }
}
