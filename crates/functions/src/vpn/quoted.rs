//! ICMP errors, matched by the packet that they quote (RFC 4301 6.2).
//!
//! An error reveals addresses, ports and first bytes of the quoted packet, so a tunnel that
//! protects the packet protects the error too. The error's source is any router on the path, so its
//! own addresses do not determine the tunnel.

use packet::parse::{is_error, protocol};
use packet::{Addr, DropReason};

use super::tunnels::{OutboundTunnel, TunnelTable};
use crate::headers::{InnerHeader, OuterPayload};

/// Length of an ICMP header, before the quotation.
const ICMP_LEN: usize = 8;

/// Addresses of the packet quoted by an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedEnds {
    source: Addr,
    destination: Addr,
}

impl QuotedEnds {
    /// Reads the packet quoted by the IP packet at the beginning of `network`; none if it is no
    /// ICMP error, or its quotation is too short.
    pub fn of(network: &[u8]) -> Option<QuotedEnds> {
        let OuterPayload { protocol, at, .. } = OuterPayload::of(network)?;
        if !matches!(protocol, protocol::ICMP | protocol::ICMPV6) || !is_error(protocol, *network.get(at)?) {
            return None;
        }
        let InnerHeader { source, destination, .. } = InnerHeader::of(network.get(at + ICMP_LEN..)?)?;
        Some(QuotedEnds { source, destination })
    }

    /// Returns the number of the tunnel that protects the packet, in either direction.
    pub fn protected_by(&self, tunnels: &TunnelTable) -> Option<u16> {
        let forth = tunnels.between(self.source, self.destination);
        forth.or_else(|| tunnels.between(self.destination, self.source)).map(|(number, _)| number)
    }

    /// Returns the tunnel for an outgoing error with the addresses of `inner`. It is the tunnel of
    /// the error's own addresses, if that protects the quoted packet too; otherwise the tunnel for
    /// answers to the quoted packet's sender, which is the error's destination. None: no tunnel
    /// protects either.
    ///
    /// # Errors
    /// [`DropReason::VpnError`]: a tunnel protects the quoted packet, but the error would not go
    /// through it.
    pub fn tunnel_for<'t>(
        &self,
        error: &InnerHeader,
        tunnels: &'t TunnelTable,
    ) -> Result<Option<(u16, &'t OutboundTunnel)>, DropReason> {
        let protected = self.protected_by(tunnels);
        match tunnels.between(error.source, error.destination) {
            Some((number, tunnel)) if protected.is_none_or(|other| other == number) => {
                Ok(Some((number, tunnel)))
            }
            None if protected.is_none() => Ok(None),
            None if error.destination == self.source => {
                let back = tunnels.between(self.destination, self.source);
                back.map(Some).ok_or(DropReason::VpnError)
            }
            Some(_) | None => Err(DropReason::VpnError),
        }
    }

    /// Returns whether an error to this address may leave the tunnel that it came through: its
    /// receiver must have sent the quoted packet into the tunnel.
    pub fn comes_out(&self, tunnel: &OutboundTunnel, receiver: Addr) -> bool {
        self.source == receiver && tunnel.lets_out(self.destination, self.source)
    }
}
