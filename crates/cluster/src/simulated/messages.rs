//! Messages of the ownership protocol, as faults name them.

use protocol::message::{FromDispatcher, FromPeer, FromUnit, Handover};
use runtime::transport::ToUnit;

use super::faults::MessageKind;
use crate::wire::{ArrivedFrame, read_frame};

/// Returns true if a frame is, or carries, a message of this kind.
pub(super) fn carries(frame: &[u8], kind: MessageKind) -> bool {
    let Ok(frame) = read_frame(frame, 0, |_| 0) else { return false };
    match frame {
        ArrivedFrame::Packet(packet) => {
            kind == MessageKind::FirstPacket && packet.stamp.handover != Handover::None
        }
        ArrivedFrame::Input(ToUnit::Message(_, message)) => match message {
            FromDispatcher::Release { .. } => kind == MessageKind::Release,
            FromDispatcher::Adopt { .. } => kind == MessageKind::Adopt,
            FromDispatcher::Replicate { .. } => kind == MessageKind::Copy,
            FromDispatcher::End { .. } | FromDispatcher::Drain => false,
        },
        ArrivedFrame::Peer { message, .. } => match message {
            FromPeer::Pull { .. } => kind == MessageKind::Pull,
            FromPeer::State { .. } | FromPeer::Changes { .. } => kind == MessageKind::State,
            FromPeer::StateAck { .. } => kind == MessageKind::StateAck,
            FromPeer::Replicate { .. } => kind == MessageKind::Replicate,
            FromPeer::Delta { .. } => kind == MessageKind::Delta,
            FromPeer::NeedFull { .. } | FromPeer::End { .. } | FromPeer::Refuse { .. } => false,
        },
        ArrivedFrame::Report(report, ..) => {
            let has_arrived = || report.messages.iter().any(|said| matches!(said, FromUnit::Arrived { .. }));
            kind == MessageKind::Arrived && has_arrived()
        }
        _ => false,
    }
}
