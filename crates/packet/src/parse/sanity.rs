//! The selection of packets to drop.

/// The well-formed packets to drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sanity {
    /// With an address that must not appear on a link ([`Martian`](crate::DropReason::Martian)).
    pub martians: bool,
    /// From an address to itself ([`Land`](crate::DropReason::Land)).
    pub land: bool,
    /// With a source route ([`SourceRoute`](crate::DropReason::SourceRoute)).
    pub source_routes: bool,
    /// With a time to live of 0 ([`TtlZero`](crate::DropReason::TtlZero)).
    pub ttl_zero: bool,
    /// IP in MPLS, PPPoE or LLC/SNAP ([`LinkEncapsulated`](crate::DropReason::LinkEncapsulated)).
    pub encapsulated: bool,
}

impl Sanity {
    /// All of them.
    pub const STRICT: Sanity =
        Sanity { martians: true, land: true, source_routes: true, ttl_zero: true, encapsulated: true };
}
