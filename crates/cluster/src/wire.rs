//! The wire format: frames that dispatchers and units send to each other (S13, S19).
//!
//! A frame is a message of a reliable link, so it arrives whole or not at all. It begins with its
//! kind; numbers are big-endian. A receiver reads the fields that it knows and skips the rest of a
//! frame: a later version may add kinds, and fields at the end. Both ends state their [`VERSION`]
//! in the first frame of a link.
//!
//! [`FRAMES`] has all kinds, and `docs/protocol.md` their table; the messages of the ownership
//! protocol in them are declared in [`protocol::message`].
//!
//! A packet travels as in Geneve (RFC 8926): its header, one option with the stamp, and the frame
//! from the link layer on; see [`packets`].

mod control;
mod figures;
mod frames;
mod kind;
pub mod packets;
mod policies;
mod reports;
mod stamps;
mod timelines;

pub use control::{Assignment, Hello, Role};
pub use figures::{FIGURE_CHANGES_MAX, FigureChanges, UnitFigures};
pub use frames::{
    ArrivedFrame, ForwardCounts, KeyClaim, PriorReport, ReportContext, UnitAddress, begin_output,
    begin_relay, read_frame, write_assignment, write_claim, write_figure_changes, write_figures, write_gone,
    write_granted, write_hello, write_input, write_leave, write_mail, write_packet_input, write_part,
    write_passed, write_policy, write_policy_read, write_relayed, write_released, write_renew,
    write_report_frame, write_stopped, write_taken, write_timeline, write_timeline_asked, write_units,
};
pub use kind::{FRAMES, FrameInfo, frames_table};
pub use policies::{PolicyFrame, write_policy_frame};
pub use protocol::wire::{FrameError, Reader};
pub use reports::{read_output, write_output};
pub use timelines::TimelineQuestion;

/// The version of the format; `docs/protocol.md` says when it rises. From 0.1.0 on, a receiver
/// accepts this one and the one before.
pub const VERSION: u16 = 3;
/// The oldest version that is understood.
pub const VERSION_MIN: u16 = 3;

/// Appends numbers, big-endian.
macro_rules! put {
    ($out:expr, $($number:expr),+ $(,)?) => {
        { $($out.extend_from_slice(&$number.to_be_bytes());)+ }
    };
}
use put;
