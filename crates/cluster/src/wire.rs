//! The wire format: frames that dispatchers and units send to each other (S13, S19).
//!
//! A frame is a message of a reliable link, so it arrives whole or not at all. It begins with its
//! kind; numbers are big-endian. A receiver reads the fields that it knows and skips the rest of a
//! frame: a later version may add fields at the end, and kinds. Both ends of a link say which
//! [`VERSION`] they speak when they meet.
//!
//! | kind | frame | sender |
//! |---|---|---|
//! | 0x01 | [`Hello`] | both, first |
//! | 0x10 to 0x19 | [`ToUnit`](runtime::transport::ToUnit) | dispatcher |
//! | 0x1a | the addresses of all units | dispatcher |
//! | 0x1b | [`Assignment`]: the receiver becomes a unit | dispatcher |
//! | 0x1c | the receiver was drained, and is no unit any more | dispatcher |
//! | 0x1d | a policy, as texts, that the receiver reads | dispatcher |
//! | 0x1e | the receiver gives its flows away, and then runs the policy of a digest | dispatcher |
//! | 0x1f | a frame of a unit (0x30, 0x31) that cannot reach the receiver | dispatcher |
//! | 0x20 | a report of a unit | unit |
//! | 0x21 | a packet of its output, after the report that it depends on | unit |
//! | 0x23 | a unit is to end, and gives its flows away before | unit |
//! | 0x22 | [`UnitFigures`] | unit |
//! | 0x24 | a policy was read, or why it cannot be run | unit |
//! | 0x25 | the unit has given its flows away, and the link ends | unit |
//! | 0x26 | a frame (0x30, 0x31) for a unit that the sender cannot reach | unit |
//! | 0x30 | a message of the ownership protocol | unit, to a unit |
//! | 0x31 | a late packet, forwarded | unit, to a unit |
//! | 0x40 | a packet of a flow that belongs to the receiver | dispatcher, to a dispatcher |
//! | 0x41 | a claim of a key: a flow of the sender has it | dispatcher, to a dispatcher |
//! | 0x42 | claims are known, up to a number | dispatcher, to a dispatcher |
//! | 0x43 | the release of a key | dispatcher, to a dispatcher |
//! | 0x60 to 0x63 | a policy is proposed; the answer; it holds, or is void: see [`PolicyFrame`] | dispatcher, to a dispatcher |
//! | 0x64 to 0x66 | the policy that the sender runs is asked for, sent, named | dispatcher, unit |
//! | 0x6d | figures of functions that have changed | unit |
//! | 0x6c | how many packets were taken over | dispatcher, to a dispatcher |
//! | 0x70 | the receiver was drained, ends the link, and waits for the next one | dispatcher |
//!
//! A packet travels as in Geneve (RFC 8926): its header, one option with the stamp, and the frame
//! from the link layer on; see [`packets`].

mod control;
mod figures;
mod frames;
mod messages;
pub mod packets;
mod policies;
mod reader;
mod reports;
mod stamps;

pub use control::{Assignment, Hello, Role};
pub use figures::{FIGURE_CHANGES_MAX, FigureChanges, UnitFigures};
pub use frames::{
    ArrivedFrame, ForwardCounts, KeyClaim, PriorReport, ReportContext, UnitAddress, begin_output,
    begin_relay, read_frame, write_assignment, write_claim, write_figure_changes, write_figures, write_gone,
    write_granted, write_hello, write_input, write_leave, write_mail, write_packet_input, write_part,
    write_passed, write_policy, write_policy_read, write_relayed, write_released, write_renew,
    write_report_frame, write_stopped, write_taken, write_units,
};
pub use policies::{PolicyFrame, write_policy_frame};
pub use reader::{FrameError, Reader};
pub use reports::{read_output, write_output};

/// The version of the format. From 0.1.0 on, a receiver accepts this one and the one before.
pub const VERSION: u16 = 2;
/// The oldest version that is understood.
pub const VERSION_MIN: u16 = 2;
