//! The text form of a flow's identity: `INDEX.GENERATION`.

use protocol::message::FlowId;

/// The text is no flow's identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no flow; expected INDEX.GENERATION, such as 17.0")]
pub struct FlowIdError(String);

/// Writes a flow's identity.
pub(crate) fn to_text(flow: FlowId) -> String {
    format!("{}.{}", flow.index, flow.generation)
}

/// Reads a flow's identity.
pub(crate) fn from_text(text: &str) -> Result<FlowId, FlowIdError> {
    let number = |digits: &str| digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    let parts = text.split_once('.').and_then(|(index, generation)| {
        Some(FlowId { index: number(index)?, generation: number(generation)? })
    });
    // A long text is not repeated whole.
    parts.ok_or_else(|| FlowIdError(text.chars().take(40).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_identities_are_the_same() {
        for flow in [FlowId { index: 0, generation: 0 }, FlowId { index: u32::MAX, generation: 7 }] {
            assert_eq!(from_text(&to_text(flow)), Ok(flow));
        }
        for wrong in ["", "1", "1.", ".1", "+1.2", "1.2.3", "-1.0", "4294967296.0", "a.b", "1. 2"] {
            assert!(from_text(wrong).is_err(), "{wrong}");
        }
    }
}
