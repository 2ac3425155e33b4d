//! The first frames of a link: who is there, and whether both fit together.

use protocol::message::UnitId;
use protocol::wire::{FrameError, Reader, Wire, put_sized};

use super::{VERSION, VERSION_MIN, put};
use crate::policies::NumberedDigest;

/// The first frame of each end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The newest version of the wire format that the sender speaks, and the oldest.
    pub versions: (u16, u16),
    /// Name of the node.
    pub name: String,
    /// Counts restarts of the process: the time of its start, in nanoseconds since 1970.
    pub incarnation: u64,
    /// Digest of the policy and of the formats of the states of its functions. Records make sense
    /// only between nodes with the same.
    pub policy: [u8; 32],
    /// The sender's role on this link.
    pub role: Role,
    /// UDP port of the sender's links.
    pub port: u16,
    /// `NAME/INCARNATION/FROM/TO`, if a unit meets another: the dispatcher's process for which they
    /// meet, the unit that connects, and the one that it means. Between dispatchers, the names of
    /// all. Empty otherwise.
    pub scope: String,
    /// The policy that the sender runs, with its number; none of a version before. [`policy`]
    /// may be one that it only knows.
    ///
    /// [`policy`]: Hello::policy
    pub runs: Option<NumberedDigest>,
}

/// The role of a node on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Numbers packets, and assigns them to units.
    Dispatcher = 0,
    /// Processes packets.
    Unit = 1,
}

/// The first message to a node that becomes a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The unit's number. A node that was lost and comes back gets another one.
    pub unit: UnitId,
    /// Seed of the graphs of all units.
    pub seed: u64,
    /// Gap between two flowlets, in nanoseconds.
    pub gap_ns: u64,
    /// Units that get a copy of a flow's state once it pauses.
    pub copies: u8,
    /// Copies are sent as deltas.
    pub deltas: bool,
}

impl Assignment {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put!(out, self.unit.0, self.seed, self.gap_ns);
        out.extend_from_slice(&[self.copies, self.deltas.into()]);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Assignment, FrameError> {
        let (unit, seed, gap_ns) = (UnitId(from.u16()?), from.u64()?, from.u64()?);
        Ok(Assignment { unit, seed, gap_ns, copies: from.u8()?, deltas: bool::read(from)? })
    }
}

impl Hello {
    /// Returns true if two nodes may meet: they run the same policy, or one of them has an older
    /// one, and gets the present one from the other. Nodes of a version before have no numbers, and
    /// need the same.
    pub fn fits(&self, other: &Hello) -> bool {
        match (self.runs, other.runs) {
            (Some(own), Some(other)) => own.digest == other.digest || own.number != other.number,
            _ => self.policy == other.policy,
        }
    }

    /// Returns the policy that the sender runs; of a version before, the one that it has named.
    pub fn running(&self) -> NumberedDigest {
        self.runs.unwrap_or(NumberedDigest { number: 0, digest: self.policy })
    }

    /// Returns the same description of a node that runs this policy now.
    #[must_use]
    pub fn with_policy(&self, own: NumberedDigest) -> Hello {
        Hello { policy: own.digest, runs: Some(own), ..self.clone() }
    }

    /// Returns the newest version that both speak.
    pub fn common_version(&self) -> Option<u16> {
        let (newest, oldest) = self.versions;
        let common = newest.min(VERSION);
        (common >= oldest.max(VERSION_MIN)).then_some(common)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put!(out, self.versions.0, self.versions.1);
        put_sized(out, self.name.as_bytes());
        put!(out, self.incarnation);
        out.extend_from_slice(&self.policy);
        out.push(self.role as u8);
        put!(out, self.port);
        put_sized(out, self.scope.as_bytes());
        if let Some(NumberedDigest { number, digest }) = self.runs {
            put!(out, number);
            out.extend_from_slice(&digest);
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Hello, FrameError> {
        Ok(Hello {
            versions: (from.u16()?, from.u16()?),
            name: from.text()?.to_owned(),
            incarnation: from.u64()?,
            policy: from.array()?,
            role: match from.u8()? {
                0 => Role::Dispatcher,
                1 => Role::Unit,
                _ => return Err(FrameError::Invalid("role")),
            },
            port: from.u16()?,
            scope: if from.is_empty() { String::new() } else { from.text()?.to_owned() },
            runs: match from.is_empty() {
                true => None,
                false => Some(NumberedDigest { number: from.u64()?, digest: from.array()? }),
            },
        })
    }
}
