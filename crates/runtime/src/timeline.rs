//! The timeline in which dispatchers and units note what happens: that of the simulation that
//! creates them, or else the one that the process keeps for operators.

use std::cell::{OnceCell, RefCell};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use protocol::message::FlowId;
use protocol::trace::{EventSink, EventTimeline, FlowTimeline, Machine, TraceDetail};

/// Lines that each thread of dispatchers and units keeps for operators: about 4 MiB. Later ones
/// replace them, and are counted.
pub const LINES_KEPT: usize = 16_384;

/// The timeline of machines, and their host.
struct Recorder {
    timeline: Arc<EventTimeline>,
    host: String,
    detail: TraceDetail,
}

/// The timelines of a process: one per thread, so that no thread waits for another one, with one
/// order of all lines.
struct Kept {
    host: String,
    timelines: Mutex<Vec<Arc<EventTimeline>>>,
    next: Arc<AtomicU64>,
}

static KEPT: OnceLock<Kept> = OnceLock::new();

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
    /// The thread's timeline in `KEPT`.
    static OWN: OnceCell<Arc<EventTimeline>> = const { OnceCell::new() };
}

/// Keeps a timeline of dispatchers and units that are created from now on, under this name of their
/// host: their transitions, and no packet that continues a flow. It is kept once per process.
pub fn keep(host: &str) {
    KEPT.get_or_init(|| Kept { host: host.to_owned(), timelines: Mutex::default(), next: Arc::default() });
}

/// Returns true if the process keeps a timeline.
pub fn is_kept() -> bool {
    KEPT.get().is_some()
}

/// Returns up to `max` lines of a flow, the last ones, out of the timeline that the process keeps.
pub fn kept(flow: FlowId, max: usize) -> Option<FlowTimeline> {
    let kept = KEPT.get()?;
    // The list is whole whatever happened to its last user.
    let timelines = kept.timelines.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Some(FlowTimeline::of(&timelines, flow, max))
}

/// Lets dispatchers and units that are created in this call note in a timeline.
pub fn recorded<R>(
    timeline: &Arc<EventTimeline>,
    host: &str,
    detail: TraceDetail,
    create: impl FnOnce() -> R,
) -> R {
    let recorder = Recorder { timeline: Arc::clone(timeline), host: host.to_owned(), detail };
    let _guard = Guard(RECORDER.replace(Some(recorder)));
    create()
}

/// Puts the recorder of before back.
struct Guard(Option<Recorder>);

impl Drop for Guard {
    fn drop(&mut self) {
        RECORDER.set(self.0.take());
    }
}

impl Kept {
    fn of_thread(&self) -> Arc<EventTimeline> {
        let begin = || {
            let timeline = EventTimeline::numbered(LINES_KEPT, Arc::clone(&self.next));
            let mut timelines = self.timelines.lock().unwrap_or_else(PoisonError::into_inner);
            timelines.push(Arc::clone(&timeline));
            timeline
        };
        OWN.with(|own| Arc::clone(own.get_or_init(begin)))
    }
}

/// Returns the trace of a machine that this thread creates now, and will drive.
pub fn trace(role: Machine) -> EventSink {
    RECORDER.with_borrow(|recorder| match (recorder, KEPT.get()) {
        (Some(Recorder { timeline, host, detail }), _) => timeline.trace(host, role, *detail),
        (None, Some(kept)) => kept.of_thread().trace(&kept.host, role, TraceDetail::Transitions),
        (None, None) => EventSink::default(),
    })
}
