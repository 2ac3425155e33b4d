//! The first frames of a link, with which two nodes check that they fit together.

use protocol::message::UnitId;
use protocol::wire::{FrameError, Reader, Wire, put_sized};

use super::{VERSION, VERSION_MIN, put};
use crate::policies::NumberedDigest;

/// The first frame of each end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Newest and oldest version of the wire format that the sender supports.
    pub versions: (u16, u16),
    /// Name of the node.
    pub name: String,
    /// Number of restarts of the process: the time of its start, in nanoseconds since 1970.
    pub incarnation: u64,
    /// Digest of the policy, and of the formats of its functions' state. Records are valid only
    /// between nodes with the same digest.
    pub policy: [u8; 32],
    /// The sender's role on this link.
    pub role: Role,
    /// UDP port of the sender's links.
    pub port: u16,
    /// `NAME/INCARNATION/FROM/TO` between units: their common dispatcher with its incarnation, the
    /// connecting unit, and the unit that it connects to. Between dispatchers, the names of all.
    /// Empty otherwise.
    pub scope: String,
    /// The policy that the sender runs, with its number; `None` in earlier versions. [`policy`] may
    /// be another one that it knows.
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

/// The assignment of a unit's number to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The unit's number. A node that was lost and reconnects gets another one.
    pub unit: UnitId,
    /// Seed of the graphs of all units.
    pub seed: u64,
    /// Gap between two flowlets, in nanoseconds.
    pub gap_ns: u64,
    /// Number of replicas of a flow's state, sent when the flow pauses.
    pub copies: u8,
    /// Replicas are sent as deltas.
    pub deltas: bool,
    /// The unit keeps its timeline for the dispatcher; false in earlier versions.
    pub keeps_timeline: bool,
}

impl Assignment {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put!(out, self.unit.0, self.seed, self.gap_ns);
        out.extend_from_slice(&[self.copies, self.deltas.into(), self.keeps_timeline.into()]);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Assignment, FrameError> {
        let (unit, seed, gap_ns) = (UnitId(from.u16()?), from.u64()?, from.u64()?);
        let (copies, deltas) = (from.u8()?, bool::read(from)?);
        let keeps_timeline = if from.is_empty() { false } else { bool::read(from)? };
        Ok(Assignment { unit, seed, gap_ns, copies, deltas, keeps_timeline })
    }
}

impl Hello {
    /// Returns true if two nodes fit: they run the same policy, or one of them has an older one,
    /// and gets the present one from the other. Nodes of earlier versions have no numbers, and need
    /// the same policy.
    pub fn fits(&self, other: &Hello) -> bool {
        match (self.runs, other.runs) {
            (Some(own), Some(other)) => own.digest == other.digest || own.number != other.number,
            _ => self.policy == other.policy,
        }
    }

    /// Returns the policy that the sender runs; in earlier versions, the policy that it has named.
    pub fn running(&self) -> NumberedDigest {
        self.runs.unwrap_or(NumberedDigest { number: 0, digest: self.policy })
    }

    /// Returns this description with another policy in use.
    #[must_use]
    pub fn with_policy(&self, own: NumberedDigest) -> Hello {
        Hello { policy: own.digest, runs: Some(own), ..self.clone() }
    }

    /// Returns the newest version that both support.
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
