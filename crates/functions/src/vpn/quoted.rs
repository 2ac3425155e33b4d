//! ICMP errors, by the packet that they quote (RFC 4301 6.2).
//!
//! An error tells of addresses, ports and first bytes of that packet: where a tunnel protects the
//! packet, it protects the error too. Its own source is that of any router on the way, so that its
//! addresses alone do not say which tunnel that is.

use packet::parse::{is_error, protocol};
use packet::{Addr, DropReason};

use super::tunnels::{OutboundTunnel, TunnelTable};
use crate::headers::{InnerHeader, OuterPayload};

/// Bytes of an ICMP header, before what an error quotes.
const ICMP_LEN: usize = 8;

/// The ends of a packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedEnds {
    source: Addr,
    destination: Addr,
}

impl QuotedEnds {
    /// The packet that the IP packet at the beginning of `network` quotes; none if it is no ICMP
    /// error, or its quotation is too short.
    pub fn of(network: &[u8]) -> Option<QuotedEnds> {
        let OuterPayload { protocol, at, .. } = OuterPayload::of(network)?;
        if !matches!(protocol, protocol::ICMP | protocol::ICMPV6) || !is_error(protocol, *network.get(at)?) {
            return None;
        }
        let InnerHeader { source, destination, .. } = InnerHeader::of(network.get(at + ICMP_LEN..)?)?;
        Some(QuotedEnds { source, destination })
    }

    /// The number of the tunnel that protects the packet, whichever way it goes.
    pub fn protected_by(&self, tunnels: &TunnelTable) -> Option<u16> {
        let forth = tunnels.between(self.source, self.destination);
        forth.or_else(|| tunnels.between(self.destination, self.source)).map(|(number, _)| number)
    }

    /// The tunnel for an error of these addresses that leaves this end: that of the error's own
    /// addresses, if it protects the quoted packet, too; else the one by which answers to the
    /// quoted packet would go, to whose sender the error goes. None: no tunnel protects either.
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

    /// Whether an error to this address, which came through this tunnel, may come out of it: it
    /// speaks of a packet that its receiver sent into the tunnel.
    pub fn comes_out(&self, tunnel: &OutboundTunnel, receiver: Addr) -> bool {
        self.source == receiver && tunnel.lets_out(self.destination, self.source)
    }
}
