//! Errors of outputs.

use std::io;

use ::io::capture::WriteError;
use ::io::ipfix::MessageLimitError;
use thiserror::Error;

use crate::port_file::UnknownPortError;

/// An output that cannot be opened, or a record that cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The file cannot be created or opened.
    #[error("cannot write {name}")]
    Open {
        /// The file.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file is for a port that the policy does not have.
    #[error(transparent)]
    UnknownPort(#[from] UnknownPortError),
    /// The text names no collector.
    #[error("`{collector}` is not a collector; expected udp:HOST:PORT")]
    NotACollector {
        /// The text.
        collector: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The name of the collector has no address.
    #[error("`{0}` has no address")]
    NoAddress(String),
    /// No socket to the collector can be opened.
    #[error("cannot send to {collector}")]
    Connect {
        /// The collector.
        collector: String,
        /// The system's error.
        source: io::Error,
    },
    /// The thread that writes cannot be started.
    #[error("cannot start the thread of an output")]
    Thread(#[source] io::Error),
    /// A packet or an interface cannot be written to a capture.
    #[error(transparent)]
    Capture(#[from] WriteError),
    /// The options of an exporter allow no message.
    #[error(transparent)]
    Ipfix(#[from] MessageLimitError),
    /// A record has no JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}
