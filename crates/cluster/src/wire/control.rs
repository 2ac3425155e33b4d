//! The first frames of a link: who is there, and whether both fit together.

use super::reader::{Reader, WireError, put, put_sized};
use super::{VERSION, VERSION_MIN};

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
    /// The unit's number, from the dispatcher to it; [`Hello::NO_UNIT`] from a unit.
    pub unit: u16,
    /// Seed of the graphs' hash tables, from the dispatcher; 0 from a unit.
    pub seed: u64,
    /// UDP port of the sender's links to other units.
    pub port: u16,
}

impl Hello {
    /// No unit has this number.
    pub const NO_UNIT: u16 = u16::MAX;

    /// Returns the newest version that both speak.
    pub fn common_version(&self) -> Option<u16> {
        let (newest, oldest) = self.versions;
        let common = newest.min(VERSION);
        (common >= oldest.max(VERSION_MIN)).then_some(common)
    }

    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        put!(out, self.versions.0, self.versions.1);
        put_sized(out, self.name.as_bytes());
        put!(out, self.incarnation);
        out.extend_from_slice(&self.policy);
        put!(out, self.unit, self.seed, self.port);
    }

    /// Reads one.
    ///
    /// # Errors
    /// If it is not one.
    pub fn read(from: &mut Reader<'_>) -> Result<Hello, WireError> {
        Ok(Hello {
            versions: (from.u16()?, from.u16()?),
            name: from.text()?.to_owned(),
            incarnation: from.u64()?,
            policy: from.array()?,
            unit: from.u16()?,
            seed: from.u64()?,
            port: from.u16()?,
        })
    }
}
