//! Frames about policies: how dispatchers agree on one, and how older nodes get it.

use protocol::wire::{FrameError, Reader, put_sized};

use super::{kind, put};
use crate::policies::{AppliedPolicy, NumberedDigest, PolicyTexts};

/// A frame about policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyFrame {
    /// To a dispatcher: it has its units read this policy, and answers.
    Propose(AppliedPolicy),
    /// The answer: with a text, the sender cannot run the policy, for this reason.
    Proposed(NumberedDigest, String),
    /// To a dispatcher: the policy that was proposed holds from now on.
    Commit(NumberedDigest),
    /// To a dispatcher: the policy that was proposed is void.
    Abort(NumberedDigest),
    /// The receiver sends the policy that it runs.
    Wanted,
    /// The policy that the sender runs.
    Present(AppliedPolicy),
    /// The policy that the sender runs, without its texts. A receiver that runs the same one
    /// takes its number over.
    Runs(NumberedDigest),
}

/// Appends a frame about policies.
pub fn write_policy_frame(out: &mut Vec<u8>, frame: &PolicyFrame) {
    match frame {
        PolicyFrame::Propose(policy) => {
            out.push(kind::PROPOSE);
            write_applied(out, policy);
        }
        PolicyFrame::Proposed(policy, reason) => {
            out.push(kind::PROPOSED);
            write_id(out, policy);
            put_sized(out, reason.as_bytes());
        }
        PolicyFrame::Commit(policy) => {
            out.push(kind::COMMIT);
            write_id(out, policy);
        }
        PolicyFrame::Abort(policy) => {
            out.push(kind::ABORT);
            write_id(out, policy);
        }
        PolicyFrame::Wanted => out.push(kind::WANTED),
        PolicyFrame::Present(policy) => {
            out.push(kind::PRESENT);
            write_applied(out, policy);
        }
        PolicyFrame::Runs(policy) => {
            out.push(kind::RUNS);
            write_id(out, policy);
        }
    }
}

/// Reads the rest of a frame of this kind; `None` if it is of another kind.
pub(super) fn read_policy_frame(
    frame_kind: u8,
    from: &mut Reader<'_>,
) -> Option<Result<PolicyFrame, FrameError>> {
    Some(match frame_kind {
        kind::PROPOSE => read_applied(from).map(PolicyFrame::Propose),
        kind::PROPOSED => read_answer(from),
        kind::COMMIT => read_id(from).map(PolicyFrame::Commit),
        kind::ABORT => read_id(from).map(PolicyFrame::Abort),
        kind::WANTED => Ok(PolicyFrame::Wanted),
        kind::PRESENT => read_applied(from).map(PolicyFrame::Present),
        kind::RUNS => read_id(from).map(PolicyFrame::Runs),
        _ => return None,
    })
}

fn read_answer(from: &mut Reader<'_>) -> Result<PolicyFrame, FrameError> {
    Ok(PolicyFrame::Proposed(read_id(from)?, from.text()?.to_owned()))
}

fn write_id(out: &mut Vec<u8>, NumberedDigest { number, digest }: &NumberedDigest) {
    put!(out, number);
    out.extend_from_slice(digest);
}

fn read_id(from: &mut Reader<'_>) -> Result<NumberedDigest, FrameError> {
    Ok(NumberedDigest { number: from.u64()?, digest: from.array()? })
}

fn write_applied(out: &mut Vec<u8>, AppliedPolicy { id, texts }: &AppliedPolicy) {
    write_id(out, id);
    write_texts(out, texts);
}

fn read_applied(from: &mut Reader<'_>) -> Result<AppliedPolicy, FrameError> {
    Ok(AppliedPolicy { id: read_id(from)?, texts: read_texts(from)? })
}

pub(super) fn write_texts(out: &mut Vec<u8>, policy: &PolicyTexts) {
    put_sized(out, policy.name.as_bytes());
    put_sized(out, policy.text.as_bytes());
    put!(out, policy.files.len() as u32);
    for (name, text) in &policy.files {
        put_sized(out, name.as_bytes());
        put_sized(out, text.as_bytes());
    }
}

pub(super) fn read_texts(from: &mut Reader<'_>) -> Result<PolicyTexts, FrameError> {
    let (name, text) = (from.text()?.to_owned(), from.text()?.to_owned());
    let files = (0..from.count(8)?).map(|_| Ok((from.text()?.to_owned(), from.text()?.to_owned())));
    Ok(PolicyTexts { name, text, files: files.collect::<Result<_, FrameError>>()? })
}
