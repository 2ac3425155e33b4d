//! Why a packet was dropped: one closed list for the whole system.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a packet was dropped. Every drop anywhere has one of these reasons and is counted
        /// under it; the names are what reports, metrics and `rivulet explain` show.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $variant,)+ }

        impl DropReason {
            /// All reasons, in order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)+];

            /// The name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)+ }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

reasons! {
    /// The link-layer header is cut.
    LinkTruncated = "link-truncated",
    /// More VLAN tags or MPLS labels than we look through.
    LinkTooDeep = "link-too-deep",
    /// The link type is not one that we look into.
    LinkUnknown = "link-unknown",
    /// The link layer has no place for the VLAN tag or MPLS label that a function puts on: it is
    /// not Ethernet, or is PPPoE.
    LinkTags = "link-tags",
    /// Not IP, and the policy says to drop such frames.
    NotIp = "not-ip",
    /// IP behind MPLS labels, PPPoE or LLC/SNAP, which a firewall's default of deny covers unless
    /// the policy has it looked into.
    LinkEncapsulated = "link-encapsulated",
    /// The IP version is neither 4 nor 6, or not what the link layer announced.
    IpVersion = "ip-version",
    /// The IPv4 header is cut.
    Ipv4Truncated = "ipv4-truncated",
    /// The IPv4 header length is below 20 bytes or beyond the packet (RFC 791).
    Ipv4HeaderLength = "ipv4-header-length",
    /// The IPv4 total length is smaller than the header or larger than the packet (RFC 791).
    Ipv4TotalLength = "ipv4-total-length",
    /// The IPv4 header checksum is wrong, and the policy says to verify it.
    Ipv4Checksum = "ipv4-checksum",
    /// The IPv6 header is cut.
    Ipv6Truncated = "ipv6-truncated",
    /// The IPv6 payload length is larger than the packet (RFC 8200).
    Ipv6PayloadLength = "ipv6-payload-length",
    /// IPv6 extension headers are cut or malformed (RFC 8200 4).
    Ipv6Extension = "ipv6-extension",
    /// More IPv6 extension headers than we look through.
    Ipv6ExtensionChain = "ipv6-extension-chain",
    /// A source address that no host may send from, or a destination that must not be on a link:
    /// loopback, unspecified, reserved, a group or the broadcast address as the source, or the
    /// router's own address as the source (RFC 1812 5.3.7, RFC 1122 3.2.1.3, RFC 6890).
    Martian = "martian",
    /// Source and destination, address and port, are the same (a "LAND" packet, RFC 6274 3.14).
    Land = "land",
    /// A source route: the IPv4 options LSRR and SSRR (RFC 7126 4.3, 4.4), or an IPv6 routing
    /// header of type 0 (RFC 5095).
    SourceRoute = "source-route",
    /// The time to live, or hop limit, was 0 when the packet came: nobody may send such packets
    /// (RFC 1122 3.2.1.7).
    TtlZero = "ttl-zero",
    /// The TCP header is cut.
    TcpTruncated = "tcp-truncated",
    /// The TCP data offset is below 5 or beyond the packet (RFC 9293 3.1).
    TcpHeaderLength = "tcp-header-length",
    /// The UDP header is cut.
    UdpTruncated = "udp-truncated",
    /// The UDP length is below 8 or larger than the packet (RFC 768).
    UdpLength = "udp-length",
    /// The ICMP header is cut.
    IcmpTruncated = "icmp-truncated",
    /// The header of another transport protocol with ports (SCTP, DCCP, UDP-Lite) is cut.
    TransportTruncated = "transport-truncated",
    /// A fragment whose datagram's first fragment, or all of it where it must be inspected whole,
    /// did not come in time.
    FragmentTimeout = "fragment-timeout",
    /// The table of fragmented datagrams, or the share of the source, is full: the datagram gave
    /// way to a newer one.
    FragmentTableFull = "fragment-table-full",
    /// The datagram has more fragments waiting, or held back, than are kept.
    FragmentTooMany = "fragment-too-many",
    /// A fragment that overlaps its transport header or is too small to hold it (RFC 1858, RFC
    /// 3128, RFC 5722).
    FragmentIllegal = "fragment-illegal",
    /// The datagram's first fragment, or the datagram as a whole, was dropped, so its other
    /// fragments are.
    FragmentOfDropped = "fragment-of-dropped",
    /// The flow table is full and the policy says to refuse new flows.
    FlowTableFull = "flow-table-full",
    /// The flow ended, to make room for another, while the packet was on its way to the flow's
    /// unit.
    FlowEnded = "flow-ended",
    /// The worker that has the packet's flow, or its datagram, is behind: as many packets from the
    /// one that received it wait as may.
    WorkerBehind = "worker-behind",
    /// The rewritten packet's reverse 5-tuple belongs to another live flow.
    AliasConflict = "alias-conflict",
    /// An ICMP error that belongs to no known flow, where a function needs one (RFC 5508 REQ-4).
    IcmpErrorUnrelated = "icmp-error-unrelated",
    /// No buffer was free.
    NoBuffer = "no-buffer",
    /// A header did not fit into the room before the packet.
    NoHeadroom = "no-headroom",
    /// The packet is larger than a buffer or than the outgoing side can carry.
    TooBig = "too-big",
    /// The time to live ran out (RFC 1812 5.3.1).
    TtlExpired = "ttl-expired",
    /// A function failed on the packet: it panicked. Its flow ended, unless the policy says
    /// otherwise.
    FunctionPanic = "function-panic",
    /// A policy's filter or its `Drop` node.
    Policy = "policy",
    /// NAT: no mapping for a packet from outside, and no static forward.
    NatNoMapping = "nat-no-mapping",
    /// NAT: a mapping exists, but its filtering behaviour refuses this sender (RFC 4787 REQ-8).
    NatFiltered = "nat-filtered",
    /// NAT: a packet of a known flow that entered by the side where packets of its direction never
    /// do.
    NatWrongSide = "nat-wrong-side",
    /// NAT: no free external port for this subscriber.
    NatPortsExhausted = "nat-ports-exhausted",
    /// NAT: the subscriber's limit of ports or sessions is reached (RFC 6888 REQ-4).
    NatSubscriberLimit = "nat-subscriber-limit",
    /// NAT: a protocol that is not translated.
    NatProtocol = "nat-protocol",
    /// NAT: an address that is not translated, and the policy says to drop such packets.
    NatUntranslated = "nat-untranslated",
    /// NAT: hairpinning is off by policy.
    NatHairpin = "nat-hairpin",
    /// NAT: an ICMP error whose embedded packet cannot be translated.
    NatIcmpEmbedded = "nat-icmp-embedded",
    /// NAT: a packet of a new flow that may not open one (a TCP packet without SYN, RFC 7857 2).
    NatNotOpening = "nat-not-opening",
    /// Load balancer: no server is up.
    LbNoServer = "lb-no-server",
    /// Load balancer: the flow's server went down, and the policy says to end its flows.
    LbServerDown = "lb-server-down",
    /// Load balancer: a packet from a server that belongs to no known flow.
    LbNoFlow = "lb-no-flow",
    /// Load balancer: a fragment or protocol that the mode cannot carry.
    LbProtocol = "lb-protocol",
    /// Load balancer: an echo request to a service's address, which was answered in its place.
    LbAnswered = "lb-answered",
    /// Firewall: a rule denies it.
    FirewallDenied = "firewall-denied",
    /// Firewall: a rule rejects it, and an answer was sent.
    FirewallRejected = "firewall-rejected",
    /// Firewall: no rule matched and the default denies.
    FirewallDefault = "firewall-default",
    /// Firewall: the packet does not fit its connection's state.
    FirewallInvalid = "firewall-invalid",
    /// Policer: the packet exceeds its rate.
    PolicerRate = "policer-rate",
    /// Policer: all meters are in use, and the policy says to drop packets without one.
    PolicerNoMeter = "policer-no-meter",
    /// Whitelist: UDP that nobody asked for.
    WhitelistUnsolicited = "whitelist-unsolicited",
    /// Whitelist: a protocol other than UDP, and the policy says to drop such packets.
    WhitelistProtocol = "whitelist-protocol",
    /// Denial-of-service preventer: the flow went beyond a limit, and is blocked until it ends.
    DosFlow = "dos-flow",
    /// Denial-of-service preventer: the source begins flows faster than it may.
    DosSource = "dos-source",
    /// Denial-of-service preventer: all meters of sources are in use, and the policy says to drop
    /// what begins a flow without one.
    DosNoMeter = "dos-no-meter",
    /// Intrusion detection: a rule says to drop it.
    IdsRule = "ids-rule",
    /// Intrusion detection: a rule rejects it, and an answer was sent.
    IdsRejected = "ids-rejected",
    /// Intrusion detection: a rule dropped the flow before.
    IdsFlow = "ids-flow",
    /// HTTP: the connection's client and server may disagree about where messages end, and the
    /// policy says to drop its packets.
    HttpSmuggling = "http-smuggling",
    /// HTTP: a request's method is not allowed, and the policy says to drop its connection's
    /// packets.
    HttpMethod = "http-method",
    /// VPN: it names a security association that is not ours (RFC 4301 5.2).
    VpnNoSa = "vpn-no-sa",
    /// VPN: headers, lengths or padding of AH or ESP are not as they must be.
    VpnMalformed = "vpn-malformed",
    /// VPN: a fragment of a packet that must be verified whole (RFC 4302 3.4.1, RFC 4303 3.4.1).
    VpnFragment = "vpn-fragment",
    /// VPN: its sequence number was there before, or is too old to say (RFC 4303 3.4.3).
    VpnReplayed = "vpn-replayed",
    /// VPN: its integrity check value is wrong (RFC 4303 3.4.4).
    VpnIntegrity = "vpn-integrity",
    /// VPN: what came out of the tunnel is not from and for the networks at its ends (RFC 4301
    /// 5.2).
    VpnSelector = "vpn-selector",
    /// VPN: in the clear from outside, from and for networks between which there is a tunnel (RFC
    /// 4301 5.2).
    VpnClear = "vpn-clear",
    /// VPN: all sequence numbers of the security association are used up (RFC 4303 3.3.3).
    VpnExhausted = "vpn-exhausted",
    /// VPN: a dummy packet, which must be discarded (RFC 4303 2.6).
    VpnDummy = "vpn-dummy",
    /// VPN: the tunnel was congested, and the packet's transport would not learn it (RFC 6040 4.2).
    VpnCongestion = "vpn-congestion",
    /// VPN: an ICMP error in the clear that quotes, or goes between, what a tunnel protects (RFC
    /// 4301 6.2).
    VpnError = "vpn-error",
    /// VPN: it goes through no tunnel, and the policy says to drop such packets.
    VpnOther = "vpn-other",
    /// Tunnel: it comes from another address than the other end's.
    TunnelPeer = "tunnel-peer",
    /// Tunnel: it has another key or network identifier, or has one where none is expected.
    TunnelKey = "tunnel-key",
    /// Tunnel: what is in it is no IP packet that can be taken out: other headers than are known,
    /// or another protocol.
    TunnelMalformed = "tunnel-malformed",
    /// Tunnel: a fragment of an outer packet, which would have to be put together first.
    TunnelFragment = "tunnel-fragment",
    /// Tunnel: it is in a tunnel already, and another one around it is not made.
    TunnelNested = "tunnel-nested",
    /// Tunnel: the way was congested, and the packet's transport would not learn it (RFC 6040 4.2).
    TunnelCongestion = "tunnel-congestion",
    /// Tunnel: it came from outside through no tunnel, and the policy does not let such packets
    /// pass.
    TunnelOther = "tunnel-other",
    /// Redundancy elimination: what it is encoded with is not as it must be.
    ReMalformed = "re-malformed",
    /// Redundancy elimination: a fragment of an encoded packet, which can be decoded only whole.
    ReFragment = "re-fragment",
    /// Redundancy elimination: it refers to content that is not here; the other end is notified.
    ReMissing = "re-missing",
    /// Redundancy elimination: what was decoded is not what was encoded.
    ReChecksum = "re-checksum",
    /// Redundancy elimination: it came with the protocol number that marks encoded packets, but is
    /// none yet.
    ReClash = "re-clash",
    /// Redundancy elimination: a report of the other end, which goes no further.
    ReReport = "re-report",
    /// Streams: hosts may ignore it, or take it otherwise than it was inspected, and the policy
    /// prevents attacks: a wrong checksum, an old timestamp, a time to live that ends before the
    /// host, what is beyond the window, and the like.
    StreamIgnored = "stream-ignored",
    /// Streams: its bytes differ from those that were sent before for the same place, and the
    /// policy prevents attacks.
    StreamDiffers = "stream-differs",
    /// Streams: there is no memory to keep track of its bytes, and the policy says to drop them
    /// then.
    StreamMemory = "stream-memory",
    /// Intrusion detection: there is no memory to keep what is looked at, and the policy says to
    /// drop the flow then.
    IdsMemory = "ids-memory",
    /// A function's own decision, for functions outside this list.
    Function = "function",
    /// A broken invariant of ours: a bug. Never expected.
    Internal = "internal",
}

impl DropReason {
    /// How many reasons there are; their numbers are below this.
    pub const COUNT: usize = DropReason::ALL.len();

    /// The reason's number.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_distinct() {
        let names: std::collections::BTreeSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
            assert!(reason.meaning().ends_with('.'), "{reason}: {}", reason.meaning());
        }
    }
}
