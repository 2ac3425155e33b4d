//! The pool: decides which processes run.

/// Limit on the delay before a process is started again, in nanoseconds.
pub const RESTART_MAX_NS: u64 = 60_000_000_000;
/// Run time after which a failure does not count as one in a row, in nanoseconds.
pub const STABLE_NS: u64 = 60_000_000_000;

/// Settings of a pool. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Limit on processes.
    pub size: usize,
    /// Idle and starting processes that are kept in addition to busy ones.
    pub spare: usize,
    /// Idle time after which a process above `spare` is stopped.
    pub idle_ns: u64,
    /// Time from the start of a process to its readiness, at most; then it is stopped.
    pub start_ns: u64,
    /// Time from SIGTERM to SIGKILL.
    pub stop_ns: u64,
    /// Delay before a failed process is started again. It doubles with each failure in a row, up to
    /// [`RESTART_MAX_NS`].
    pub restart_ns: u64,
}

/// A task for the owner of the processes: by number, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAction {
    /// Start it. If that fails, it has ended.
    Start(usize),
    /// Send it SIGTERM.
    Terminate(usize),
    /// Kill it.
    Kill(usize),
}

/// Processes by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Processes at work.
    pub busy: usize,
    /// Processes that are ready for work.
    pub spare: usize,
    /// Processes that start.
    pub starting: usize,
    /// Processes that end.
    pub stopping: usize,
}

/// A pool of processes, sans-IO.
///
/// Its owner reports what happens to processes, and does what [`poll`](Pool::poll) returns.
#[derive(Clone, Debug)]
pub struct Pool {
    config: PoolConfig,
    processes: Vec<Pooled>,
    is_ending: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pooled {
    state: State,
    started_ns: u64,
    /// Failures in a row.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Stopped; may be started from this time on.
    Down(u64),
    Starting,
    /// Idle since this time.
    Spare(u64),
    Busy,
    /// Terminated at this time.
    Stopping(u64),
    Killed,
}

impl Pool {
    /// Creates a pool without running processes.
    pub fn new(config: PoolConfig) -> Pool {
        let down = Pooled { state: State::Down(0), started_ns: 0, failures: 0 };
        Pool { config, processes: vec![down; config.size], is_ending: false }
    }

    /// Adopts a running process of an earlier owner.
    pub fn handle_adoption(&mut self, now_ns: u64, at: usize) {
        let process = &mut self.processes[at];
        (process.state, process.started_ns) = (State::Starting, now_ns);
    }

    /// Notes that a process is ready for work.
    pub fn handle_ready(&mut self, now_ns: u64, at: usize) {
        let process = &mut self.processes[at];
        if process.state == State::Starting {
            process.state = State::Spare(now_ns);
        }
    }

    /// Notes that a process has begun to work, or is idle again.
    pub fn handle_work(&mut self, now_ns: u64, at: usize, is_busy: bool) {
        let process = &mut self.processes[at];
        process.state = match (process.state, is_busy) {
            (State::Starting | State::Spare(_), true) => State::Busy,
            (State::Busy, false) => State::Spare(now_ns),
            (state, _) => state,
        };
    }

    /// Records the end of a process, in order or not. Returns the delay before its next start,
    /// unless the pool ended it.
    pub fn handle_exit(&mut self, now_ns: u64, at: usize, in_order: bool) -> Option<u64> {
        let process = &mut self.processes[at];
        if matches!(process.state, State::Stopping(_) | State::Killed) {
            process.state = State::Down(now_ns);
            return None;
        }
        if in_order || now_ns.saturating_sub(process.started_ns) >= STABLE_NS {
            process.failures = 0;
        }
        let delay_ns =
            self.config.restart_ns.saturating_mul(1 << process.failures.min(32)).min(RESTART_MAX_NS);
        process.failures += u32::from(!in_order);
        process.state = State::Down(now_ns.saturating_add(delay_ns));
        Some(delay_ns)
    }

    /// Ends all processes.
    pub fn end(&mut self) {
        self.is_ending = true;
    }

    /// Returns true once the pool has ended, and nothing runs.
    pub fn has_ended(&self) -> bool {
        self.is_ending && self.processes.iter().all(|process| matches!(process.state, State::Down(_)))
    }

    /// Returns the numbers of processes by state.
    pub fn counts(&self) -> PoolCounts {
        let mut counts = PoolCounts::default();
        for process in &self.processes {
            match process.state {
                State::Down(_) => {}
                State::Starting => counts.starting += 1,
                State::Spare(_) => counts.spare += 1,
                State::Busy => counts.busy += 1,
                State::Stopping(_) | State::Killed => counts.stopping += 1,
            }
        }
        counts
    }

    /// Returns the next task, and takes it for done.
    pub fn poll(&mut self, now_ns: u64) -> Option<PoolAction> {
        let PoolConfig { spare, idle_ns, start_ns, stop_ns, .. } = self.config;
        let is_past = |since_ns: u64, wait_ns: u64| now_ns >= since_ns.saturating_add(wait_ns);
        let counts = self.counts();
        let (is_ending, ready) = (self.is_ending, counts.spare + counts.starting);
        let find = |is_it: &dyn Fn(&Pooled) -> bool| self.processes.iter().position(is_it);
        let find_last = |is_it: &dyn Fn(&Pooled) -> bool| self.processes.iter().rposition(is_it);
        if let Some(at) =
            find(&|process| matches!(process.state, State::Stopping(at_ns) if is_past(at_ns, stop_ns)))
        {
            self.processes[at].state = State::Killed;
            return Some(PoolAction::Kill(at));
        }
        let is_running =
            |process: &Pooled| matches!(process.state, State::Starting | State::Spare(_) | State::Busy);
        let is_late =
            |process: &Pooled| process.state == State::Starting && is_past(process.started_ns, start_ns);
        let is_idle =
            |process: &Pooled| matches!(process.state, State::Spare(since_ns) if is_past(since_ns, idle_ns));
        let stopped = match is_ending {
            true => find(&is_running),
            false => find(&is_late).or_else(|| find_last(&is_idle).filter(|_| ready > spare)),
        };
        if let Some(at) = stopped {
            self.processes[at].state = State::Stopping(now_ns);
            return Some(PoolAction::Terminate(at));
        }
        let may_start = |process: &Pooled| matches!(process.state, State::Down(from_ns) if from_ns <= now_ns);
        let at = find(&may_start).filter(|_| !is_ending && ready < spare)?;
        (self.processes[at].state, self.processes[at].started_ns) = (State::Starting, now_ns);
        Some(PoolAction::Start(at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: PoolConfig =
        PoolConfig { size: 3, spare: 1, idle_ns: 100, start_ns: 50, stop_ns: 30, restart_ns: 10 };

    fn polled(pool: &mut Pool, now_ns: u64) -> Vec<PoolAction> {
        std::iter::from_fn(|| pool.poll(now_ns)).collect()
    }

    #[test]
    fn one_is_always_ready_until_all_work() {
        let mut pool = Pool::new(CONFIG);
        for at in 0..3 {
            assert_eq!(polled(&mut pool, 0), [PoolAction::Start(at)]);
            assert_eq!(polled(&mut pool, 1), []);
            pool.handle_ready(1, at);
            pool.handle_work(2, at, true);
        }
        assert_eq!(polled(&mut pool, 3), []);
        assert_eq!(pool.counts(), PoolCounts { busy: 3, ..PoolCounts::default() });
        // Two processes are idle: one of them is enough.
        pool.handle_work(10, 0, false);
        pool.handle_work(20, 2, false);
        assert_eq!(polled(&mut pool, 119), [PoolAction::Terminate(0)]);
        assert_eq!(polled(&mut pool, 200), [PoolAction::Kill(0)]);
        assert_eq!(pool.handle_exit(201, 0, false), None);
        assert_eq!(polled(&mut pool, 300), []);
    }

    #[test]
    fn processes_that_run_already_are_not_started_again() {
        let mut pool = Pool::new(CONFIG);
        pool.handle_adoption(0, 1);
        pool.handle_adoption(0, 2);
        assert_eq!(polled(&mut pool, 0), []);
        pool.handle_work(1, 1, true);
        pool.handle_ready(1, 2);
        assert_eq!(pool.counts(), PoolCounts { busy: 1, spare: 1, ..PoolCounts::default() });
        pool.handle_work(2, 2, true);
        assert_eq!(polled(&mut pool, 2), [PoolAction::Start(0)]);
        // A silent adopted process is stopped like a process that does not start.
        let mut pool = Pool::new(CONFIG);
        pool.handle_adoption(0, 0);
        assert_eq!(polled(&mut pool, 50), [PoolAction::Terminate(0), PoolAction::Start(1)]);
    }

    #[test]
    fn failures_delay_the_next_start() {
        let mut pool = Pool::new(PoolConfig { size: 1, ..CONFIG });
        let mut now_ns = 0;
        for delay_ns in [10, 20, 40] {
            assert_eq!(polled(&mut pool, now_ns), [PoolAction::Start(0)]);
            assert_eq!(pool.handle_exit(now_ns, 0, false), Some(delay_ns));
            assert_eq!(polled(&mut pool, now_ns + delay_ns - 1), []);
            now_ns += delay_ns;
        }
        assert_eq!(polled(&mut pool, now_ns), [PoolAction::Start(0)]);
        pool.handle_ready(now_ns, 0);
        assert_eq!(pool.handle_exit(now_ns + STABLE_NS, 0, false), Some(10), "it was stable");
        // A process that is never ready is stopped.
        now_ns += 2 * STABLE_NS;
        assert_eq!(polled(&mut pool, now_ns), [PoolAction::Start(0)]);
        assert_eq!(polled(&mut pool, now_ns + 50), [PoolAction::Terminate(0)]);
    }

    proptest! {
        /// The pool never exceeds its size, and ends completely.
        #[test]
        fn pool_keeps_its_limits(
            spare in 0usize..4,
            steps in prop::collection::vec((0usize..3, 0u8..5, 0u64..40), 0..200),
        ) {
            let config = PoolConfig { spare, ..CONFIG };
            let mut pool = Pool::new(config);
            let (mut now_ns, mut runs) = (0, [false; 3]);
            let follow = |pool: &mut Pool, now_ns, runs: &mut [bool; 3]| {
                for action in polled(pool, now_ns) {
                    match action {
                        PoolAction::Start(at) => assert!(!std::mem::replace(&mut runs[at], true)),
                        PoolAction::Terminate(at) | PoolAction::Kill(at) => assert!(runs[at]),
                    }
                }
                let counts = pool.counts();
                assert!(counts.starting + counts.busy + counts.spare + counts.stopping <= config.size);
            };
            for (at, step, wait_ns) in steps {
                now_ns += wait_ns;
                match step {
                    0 => pool.handle_ready(now_ns, at),
                    1 | 2 => pool.handle_work(now_ns, at, step == 1),
                    3 if std::mem::take(&mut runs[at]) => {
                        pool.handle_exit(now_ns, at, wait_ns % 2 == 0);
                    }
                    _ => {}
                }
                follow(&mut pool, now_ns, &mut runs);
            }
            pool.end();
            follow(&mut pool, now_ns, &mut runs);
            for (at, runs) in runs.iter().enumerate() {
                if *runs {
                    prop_assert_eq!(pool.handle_exit(now_ns, at, true), None);
                }
            }
            prop_assert!(pool.has_ended());
            prop_assert_eq!(pool.poll(u64::MAX), None);
        }
    }
}
