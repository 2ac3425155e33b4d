//! The timeline in which dispatchers and units note what happens: that of the simulation that
//! creates them, or else the one that the process keeps for operators.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use protocol::trace::{EventSink, EventTimeline, Machine, TraceDetail};

/// Lines that a process keeps for operators: about 4 MiB. Later ones replace them, and are counted.
pub const LINES_KEPT: usize = 16_384;

/// The timeline of machines, and their host.
struct Recorder {
    timeline: Arc<EventTimeline>,
    host: String,
    detail: TraceDetail,
}

static KEPT: OnceLock<Recorder> = OnceLock::new();

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Keeps a timeline of dispatchers and units that are created from now on, under this name of their
/// host: their transitions, and no packet that continues a flow. It is kept once per process.
pub fn keep(host: &str) {
    KEPT.get_or_init(|| Recorder {
        timeline: EventTimeline::new(LINES_KEPT),
        host: host.to_owned(),
        detail: TraceDetail::Transitions,
    });
}

/// Returns the timeline that the process keeps.
pub fn kept() -> Option<Arc<EventTimeline>> {
    KEPT.get().map(|recorder| Arc::clone(&recorder.timeline))
}

/// Lets dispatchers and units that are created in this call note in a timeline, each packet, too.
pub fn recorded<R>(timeline: &Arc<EventTimeline>, host: &str, create: impl FnOnce() -> R) -> R {
    let recorder =
        Recorder { timeline: Arc::clone(timeline), host: host.to_owned(), detail: TraceDetail::Packets };
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

impl Recorder {
    fn trace(&self, role: Machine) -> EventSink {
        self.timeline.trace(&self.host, role, self.detail)
    }
}

/// Returns the trace of a machine that is created now.
pub fn trace(role: Machine) -> EventSink {
    RECORDER.with_borrow(|recorder| {
        let recorder = recorder.as_ref().or_else(|| KEPT.get());
        recorder.map(|recorder| recorder.trace(role)).unwrap_or_default()
    })
}
