//! The purpose of a link between two units.

use std::fmt;

use protocol::message::UnitId;

/// Two connected units, and the incarnation of their common dispatcher: see
/// [`Hello::scope`](crate::wire::Hello::scope). A restarted dispatcher numbers units and flows
/// again, so units of different incarnations have nothing to exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope<'a> {
    /// Name of the dispatcher.
    pub dispatcher: &'a str,
    /// Incarnation of the dispatcher.
    pub incarnation: u64,
    /// The unit that connects.
    pub from: UnitId,
    /// The unit that it connects to.
    pub to: UnitId,
}

impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scope { dispatcher, incarnation, from, to } = self;
        write!(f, "{dispatcher}/{incarnation}/{}/{}", from.0, to.0)
    }
}

impl<'a> Scope<'a> {
    /// Parses a scope that another unit has sent; `None` if it is malformed.
    pub fn read(text: &'a str) -> Option<Scope<'a>> {
        let (rest, to) = text.rsplit_once('/')?;
        let (rest, from) = rest.rsplit_once('/')?;
        let (dispatcher, incarnation) = rest.rsplit_once('/')?;
        let unit = |number: &str| Some(UnitId(number.parse().ok()?));
        let incarnation = incarnation.parse().ok()?;
        Some(Scope { dispatcher, incarnation, from: unit(from)?, to: unit(to)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_written() {
        let scope = Scope { dispatcher: "d1", incarnation: u64::MAX, from: UnitId(3), to: UnitId(0) };
        assert_eq!(Scope::read(&scope.to_string()), Some(scope));
        for damaged in ["", "d1", "d1/3/0", "d1/x/3/0", "d1/1/3/70000"] {
            assert_eq!(Scope::read(damaged), None, "{damaged}");
        }
    }
}
