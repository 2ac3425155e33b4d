//! A second core for the thread that processes packets: it runs state functions in parallel with
//! that thread (B18).
//!
//! A thread of [`rayon_core`] polls for work while work arrives: a handover there and back takes a
//! fraction of a microsecond, without a system call. After a while without work it naps. Work that
//! arrives in the meantime runs on the first core, so that no packet waits for the second to wake.

use std::cell::RefCell;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use graph::{Beside, GROUP_NS, Graph, PACKET_NS, Piece, SideBySide};
use rayon_core::{FnContext, ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder, Yield};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use thiserror::Error;

/// Polls of the second core before it naps: about a millisecond.
const IDLE_LOOKS: u32 = 20_000;

/// Length of a nap.
const NAP: Duration = Duration::from_micros(200);

/// Polls of the first core for the second one's result before the pool takes over, which yields and
/// then sleeps: some milliseconds, longer than any work that was not interrupted.
const DONE_LOOKS: u32 = 1 << 20;

/// Attempts of [`TwoCores::wake`], a quarter of a nap each.
const WAKE_TRIES: u32 = 10_000;

/// A second core for the thread that created this.
#[derive(Clone)]
pub struct TwoCores {
    pool: Arc<ThreadPool>,
    /// Number of pieces of work that it ran.
    taken: Arc<AtomicU64>,
    /// The core of the thread that created this.
    here: usize,
    /// The second core polls for work until this is dropped.
    _watch: Arc<Watch>,
}

/// A guard that stops the second core's polling when it is dropped.
struct Watch(Arc<AtomicBool>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

thread_local! {
    /// A thread is in one pool only, and for as long as it lives.
    static POOL: RefCell<Option<Arc<ThreadPool>>> = const { RefCell::new(None) };
}

impl TwoCores {
    /// Starts a second core for this thread. It runs work of other threads, too, which takes longer
    /// to arrive.
    ///
    /// # Errors
    /// No thread can be started, or this thread is in another pool.
    pub fn new() -> Result<TwoCores, ThreadPoolBuildError> {
        let pool = POOL.with_borrow_mut(|pool| match pool {
            Some(pool) => Ok(Arc::clone(pool)),
            None => {
                let builder = ThreadPoolBuilder::new().num_threads(2).use_current_thread();
                let made = Arc::new(builder.thread_name(|_| "beside".to_owned()).build()?);
                *pool = Some(Arc::clone(&made));
                Ok(made)
            }
        })?;
        let (is_over, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let watch = Arc::new(Watch(Arc::clone(&is_over)));
        let (begun, here) = (Arc::clone(&waits), sched_getcpu());
        pool.spawn(move || {
            keep_off(here);
            begun.store(true, Ordering::Release);
            wait_for_work(&is_over);
        });
        // Only the second core may take this: the first one takes no work before it has begun.
        while !waits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(TwoCores { pool, taken: Arc::default(), here, _watch: watch })
    }

    /// Returns the number of pieces of work that the second core ran, for all clones together.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Wakes the second core from its nap. Returns false if it does not take work in time.
    pub fn wake(&mut self) -> bool {
        let before = self.taken();
        for _ in 0..WAKE_TRIES {
            self.run(&mut || std::thread::sleep(NAP / 4), &mut || {});
            if self.taken() > before {
                return true;
            }
        }
        false
    }

    /// Binds the calling thread to its core, which the second thread avoids, until the guard is
    /// dropped. Otherwise the kernel may place both on one core, where each waits for the other.
    pub fn bind(&self) -> Bound {
        let before = sched_getaffinity(None).ok().filter(|allowed| allowed.is_set(self.here));
        if before.is_some() {
            let mut only = CpuSet::new();
            only.set(self.here);
            let _ = sched_setaffinity(None, &only); // It is only slower without.
        }
        Bound { before, _stays: PhantomData }
    }

    /// Returns the use of this second core where the shorter side takes longer than a handover.
    pub fn when_worth_it(&self) -> SideBySide {
        let runner = Box::new(self.clone());
        SideBySide { runner, clock_ns: now_ns, group_ns: GROUP_NS, packet_ns: PACKET_NS }
    }

    /// Returns the use of this second core whenever that is allowed, to measure and to test.
    pub fn always(&self) -> SideBySide {
        SideBySide { group_ns: 0, packet_ns: 0, ..self.when_worth_it() }
    }
}

/// A guard that keeps the thread that created it bound to a core.
#[must_use]
pub struct Bound {
    before: Option<CpuSet>,
    _stays: PhantomData<*const ()>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before); // Otherwise it stays bound.
        }
    }
}

/// Keeps this thread off a core, if there is another one.
fn keep_off(cpu: usize) {
    let Ok(mut allowed) = sched_getaffinity(None) else { return };
    allowed.unset(cpu);
    if allowed.count() > 0 {
        let _ = sched_setaffinity(None, &allowed); // It is only slower without.
    }
}

/// Runs on the second core: executes work until the end.
fn wait_for_work(is_over: &AtomicBool) {
    let mut idle = 0;
    while !is_over.load(Ordering::Relaxed) {
        if rayon_core::yield_now() == Some(Yield::Executed) {
            idle = 0;
        } else if idle < IDLE_LOOKS {
            idle += 1;
            spin_loop();
        } else {
            std::thread::sleep(NAP);
        }
    }
}

impl Beside for TwoCores {
    fn run(&mut self, here: &mut Piece<'_>, there: &mut Piece<'_>) {
        let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let first = |_: FnContext| {
            here();
            // This thread runs next what the second core has not begun by now.
            let mut looks = 0;
            while begun.load(Ordering::Acquire) && !done.load(Ordering::Acquire) && looks < DONE_LOOKS {
                looks += 1;
                spin_loop();
            }
        };
        let second = |context: FnContext| {
            begun.store(true, Ordering::Release);
            there();
            self.taken.fetch_add(u64::from(context.migrated()), Ordering::Relaxed);
            done.store(true, Ordering::Release);
        };
        self.pool.install(|| rayon_core::join_context(first, second));
    }
}

/// Nanoseconds since the first call.
fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The second core of a [`Runner`](crate::Runner), and the binding of the runner's thread.
#[must_use]
pub struct SecondCore {
    cores: TwoCores,
    _bound: Bound,
}

impl SecondCore {
    /// Starts a second core for a graph of this thread.
    ///
    /// # Errors
    /// No thread can be started, or memory lacks for the copies of flow states.
    pub(crate) fn start(graph: &mut Graph) -> Result<SecondCore, SecondCoreError> {
        let cores = TwoCores::new()?;
        graph.run_side_by_side(cores.when_worth_it()).map_err(|_| SecondCoreError::OutOfMemory)?;
        let bound = cores.bind();
        Ok(SecondCore { cores, _bound: bound })
    }

    /// Returns the number of groups of packets with state functions that the second core ran.
    pub fn groups(&self) -> u64 {
        self.cores.taken()
    }
}

/// The reason why there is no second core.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecondCoreError {
    /// Its thread cannot be started.
    #[error("cannot start the thread of a second core")]
    Thread(#[from] ThreadPoolBuildError),
    /// Memory lacks for the copies of flow states.
    #[error("not enough memory for copies of flow states")]
    OutOfMemory,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_run_once_and_on_two_threads_as_a_rule() {
        let mut cores = TwoCores::new().unwrap();
        let me = std::thread::current().id();
        let (mut here, mut there, mut elsewhere) = (0, 0, 0);
        let free = sched_getaffinity(None).unwrap();
        let bound = cores.bind();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        assert!(cores.wake());
        let before = cores.taken();
        for _ in 0..1_000 {
            let long = Duration::from_micros(20);
            let until = Instant::now() + long;
            let wait = move || while Instant::now() < until {};
            cores.run(
                &mut || {
                    wait();
                    here += 1;
                },
                &mut || {
                    wait();
                    there += 1;
                    elsewhere += u64::from(std::thread::current().id() != me);
                },
            );
        }
        drop(bound);
        assert_eq!(sched_getaffinity(None).unwrap(), free);
        assert_eq!((here, there), (1_000, 1_000));
        assert_eq!(cores.taken() - before, elsewhere);
        assert!(elsewhere > 0, "the other core never had anything");
    }

    #[test]
    fn a_thread_may_have_several_one_after_the_other_and_at_once() {
        let mut first = TwoCores::new().unwrap();
        let mut second = TwoCores::new().unwrap();
        let mut sum = 0;
        for cores in [&mut first, &mut second] {
            let (mut a, mut b) = (0, 0);
            cores.run(&mut || a += 1, &mut || b += 2);
            sum += a + b;
        }
        drop(first);
        let (mut a, mut b) = (0, 0);
        second.run(&mut || a += 1, &mut || b += 2);
        drop(second);
        let (mut c, mut d) = (0, 0);
        TwoCores::new().unwrap().run(&mut || c += 1, &mut || d += 2);
        assert_eq!(sum + a + b + c + d, 12);
    }

    #[test]
    fn another_threads_work_is_done_too() {
        let mut cores = TwoCores::new().unwrap();
        let sum = std::thread::spawn(move || {
            let (mut a, mut b) = (0, 0);
            cores.run(&mut || a += 1, &mut || b += 2);
            a + b
        });
        assert_eq!(sum.join().unwrap(), 3);
    }

    #[test]
    fn a_panic_on_the_other_core_comes_back() {
        let mut cores = TwoCores::new().unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cores.run(&mut || {}, &mut || panic!("as it has to"));
        }));
        assert!(caught.is_err());
        let (mut a, mut b) = (0, 0);
        cores.run(&mut || a += 1, &mut || b += 2);
        assert_eq!(a + b, 3);
    }
}
