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
        ArrivedFrame::Input(ToUnit::Message(_, message)) => matches!(
            (kind, message),
            (MessageKind::Release, FromDispatcher::Release { .. })
                | (MessageKind::Adopt, FromDispatcher::Adopt { .. })
                | (MessageKind::Copy, FromDispatcher::Replicate { .. })
        ),
        ArrivedFrame::Peer { message, .. } => matches!(
            (kind, message),
            (MessageKind::Pull, FromPeer::Pull { .. })
                | (MessageKind::State, FromPeer::State { .. } | FromPeer::Changes { .. })
                | (MessageKind::StateAck, FromPeer::StateAck { .. })
                | (MessageKind::Replicate, FromPeer::Replicate { .. })
                | (MessageKind::Delta, FromPeer::Delta { .. })
        ),
        ArrivedFrame::Report(report, ..) => {
            let has_arrived = || report.messages.iter().any(|said| matches!(said, FromUnit::Arrived { .. }));
            kind == MessageKind::Arrived && has_arrived()
        }
        _ => false,
    }
}
