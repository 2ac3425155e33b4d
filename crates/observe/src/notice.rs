//! Notices of queued outputs to the operator.

use std::fmt;
use std::io;
use std::sync::Arc;

use telemetry::event;

/// A change in the state of an output.
#[derive(Debug)]
pub enum OutputNotice<'a> {
    /// A write failed, and will be retried.
    CannotWrite {
        /// The output.
        name: &'a str,
        /// The system's error.
        error: &'a io::Error,
    },
    /// Messages to a collector were lost; later ones are sent.
    CannotSend {
        /// The collector.
        name: &'a str,
        /// The error, as text.
        error: &'a str,
    },
    /// The file of this name could not be opened again; records go to the former one.
    CannotReopen {
        /// The output.
        name: &'a str,
        /// The system's error.
        error: &'a io::Error,
    },
    /// Writing works again.
    Recovered {
        /// The output.
        name: &'a str,
    },
}

/// The receiver of notices. Called on the thread of an output, which it must not block.
pub type Notices = Arc<dyn Fn(&OutputNotice<'_>) + Send + Sync>;

impl OutputNotice<'_> {
    /// Emits the notice as an event of the log.
    pub fn emit(&self) {
        match self {
            OutputNotice::CannotWrite { name, error } | OutputNotice::CannotReopen { name, error } => {
                event::output_failed(name, error);
            }
            OutputNotice::CannotSend { name, error } => event::output_failed(name, error),
            OutputNotice::Recovered { name } => event::output_recovered(name),
        }
    }
}

impl fmt::Display for OutputNotice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutputNotice::CannotWrite { name, error } => write!(f, "cannot write {name}: {error}; retrying"),
            OutputNotice::CannotSend { name, error } => write!(f, "cannot send to {name}: {error}; retrying"),
            OutputNotice::CannotReopen { name, error } => write!(f, "cannot reopen {name}: {error}"),
            OutputNotice::Recovered { name } => write!(f, "writing to {name} works again"),
        }
    }
}
