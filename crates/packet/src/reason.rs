//! Reasons for drops: one closed list for the whole system.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// The reason for a packet's drop. Every drop is counted under one of these; reports,
        /// metrics and `rivulet explain` show their names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $variant,)+ }

        impl DropReason {
            /// All reasons, in order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)+];

            /// Returns the name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)+ }
            }

            /// Returns an explanation in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

reasons! {
    /// The link-layer header is truncated.
    LinkTruncated = "link-truncated",
    /// There are more VLAN tags or MPLS labels than the parser follows.
    LinkTooDeep = "link-too-deep",
    /// The link type is not supported.
    LinkUnknown = "link-unknown",
    /// The link layer cannot carry the VLAN tag or MPLS label that an NF pushes: it is not
    /// Ethernet, or is PPPoE.
    LinkTags = "link-tags",
    /// Not IP, and the policy drops such frames.
    NotIp = "not-ip",
    /// IP after MPLS labels, PPPoE or LLC/SNAP, which a default-deny firewall does not see unless
    /// the policy enables it.
    LinkEncapsulated = "link-encapsulated",
    /// The IP version is neither 4 nor 6, or not the one announced by the link layer.
    IpVersion = "ip-version",
    /// The IPv4 header is truncated.
    Ipv4Truncated = "ipv4-truncated",
    /// The IPv4 header length is below 20 bytes or beyond the packet (RFC 791).
    Ipv4HeaderLength = "ipv4-header-length",
    /// The IPv4 total length is smaller than the header or larger than the packet (RFC 791).
    Ipv4TotalLength = "ipv4-total-length",
    /// The IPv4 header checksum is wrong, and the policy verifies it.
    Ipv4Checksum = "ipv4-checksum",
    /// The IPv6 header is truncated.
    Ipv6Truncated = "ipv6-truncated",
    /// The IPv6 payload length is larger than the packet (RFC 8200).
    Ipv6PayloadLength = "ipv6-payload-length",
    /// IPv6 extension headers are truncated or malformed (RFC 8200 4).
    Ipv6Extension = "ipv6-extension",
    /// There are more IPv6 extension headers than the parser follows.
    Ipv6ExtensionChain = "ipv6-extension-chain",
    /// A forbidden source address, or a destination that must not appear on a link: loopback,
    /// unspecified, reserved; a multicast or broadcast source; the router's own address as the
    /// source (RFC 1812 5.3.7, RFC 1122 3.2.1.3, RFC 6890).
    Martian = "martian",
    /// Source and destination, address and port, are identical (a "LAND" packet, RFC 6274 3.14).
    Land = "land",
    /// A source route: the IPv4 options LSRR and SSRR (RFC 7126 4.3, 4.4), or an IPv6 routing
    /// header of type 0 (RFC 5095).
    SourceRoute = "source-route",
    /// The packet arrived with a time to live or hop limit of 0, which must not be sent (RFC 1122
    /// 3.2.1.7).
    TtlZero = "ttl-zero",
    /// The TCP header is truncated.
    TcpTruncated = "tcp-truncated",
    /// The TCP data offset is below 5 or beyond the packet (RFC 9293 3.1).
    TcpHeaderLength = "tcp-header-length",
    /// The UDP header is truncated.
    UdpTruncated = "udp-truncated",
    /// The UDP length is below 8 or larger than the packet (RFC 768).
    UdpLength = "udp-length",
    /// The ICMP header is truncated.
    IcmpTruncated = "icmp-truncated",
    /// The header of another transport protocol with ports (SCTP, DCCP, UDP-Lite) is truncated.
    TransportTruncated = "transport-truncated",
    /// The datagram's first fragment, or the whole datagram if it must be inspected, did not arrive
    /// in time.
    FragmentTimeout = "fragment-timeout",
    /// The table of fragmented datagrams or the source's share of it is full: the datagram was
    /// evicted for a newer one.
    FragmentTableFull = "fragment-table-full",
    /// The datagram exceeds the limit on pending fragments.
    FragmentTooMany = "fragment-too-many",
    /// A fragment that overlaps its transport header or is too small to hold it (RFC 1858, RFC
    /// 3128, RFC 5722).
    FragmentIllegal = "fragment-illegal",
    /// The datagram's first fragment, or the datagram as a whole, was dropped, so its other
    /// fragments are too.
    FragmentOfDropped = "fragment-of-dropped",
    /// The flow table is full and the policy refuses new flows.
    FlowTableFull = "flow-table-full",
    /// The packet begins a flow, and the system has no memory left.
    NoMemory = "no-memory",
    /// The flow was evicted for another while the packet was on its way to the flow's unit.
    FlowEnded = "flow-ended",
    /// The queue to the worker that owns the packet's flow or datagram is full.
    WorkerBehind = "worker-behind",
    /// The rewritten packet's reverse 5-tuple belongs to another live flow.
    AliasConflict = "alias-conflict",
    /// An ICMP error that belongs to no known flow, although an NF requires one (RFC 5508 REQ-4).
    IcmpErrorUnrelated = "icmp-error-unrelated",
    /// No buffer was free.
    NoBuffer = "no-buffer",
    /// A header did not fit in front of the packet.
    NoHeadroom = "no-headroom",
    /// The packet is larger than a buffer, or than the outgoing link can carry.
    TooBig = "too-big",
    /// The time to live expired (RFC 1812 5.3.1).
    TtlExpired = "ttl-expired",
    /// An NF panicked on the packet. Its flow ended, unless the policy says otherwise.
    FunctionPanic = "function-panic",
    /// It reached the policy's `Drop`.
    Policy = "policy",
    /// No edge of the policy takes the packet, or its port has no edges back.
    PolicyUnmatched = "policy-unmatched",
    /// The external node on its path is down: its program does not run, or is not connected.
    NodeDown = "node-down",
    /// NAT: no mapping for a packet from outside, and no static forward.
    NatNoMapping = "nat-no-mapping",
    /// NAT: a mapping exists, but its filtering behaviour refuses this sender (RFC 4787 REQ-8).
    NatFiltered = "nat-filtered",
    /// NAT: a packet of a known flow entered by the wrong side for its direction.
    NatWrongSide = "nat-wrong-side",
    /// NAT: no free external port for this subscriber.
    NatPortsExhausted = "nat-ports-exhausted",
    /// NAT: the subscriber's limit of ports or sessions is reached (RFC 6888 REQ-4).
    NatSubscriberLimit = "nat-subscriber-limit",
    /// NAT: the protocol is not translated.
    NatProtocol = "nat-protocol",
    /// NAT: the address is not translated, and the policy drops such packets.
    NatUntranslated = "nat-untranslated",
    /// NAT: hairpinning is disabled by the policy.
    NatHairpin = "nat-hairpin",
    /// NAT: an ICMP error with an embedded packet that cannot be translated.
    NatIcmpEmbedded = "nat-icmp-embedded",
    /// NAT: the packet must not open a flow (a TCP packet without SYN, RFC 7857 2).
    NatNotOpening = "nat-not-opening",
    /// Load balancer: no server is up.
    LbNoServer = "lb-no-server",
    /// Load balancer: the flow's server went down, and the policy ends its flows.
    LbServerDown = "lb-server-down",
    /// Load balancer: a packet from a server that belongs to no known flow.
    LbNoFlow = "lb-no-flow",
    /// Load balancer: a fragment or protocol that the mode does not support.
    LbProtocol = "lb-protocol",
    /// Load balancer: an echo request to a service's address; the load balancer answered it.
    LbAnswered = "lb-answered",
    /// Firewall: denied by a rule.
    FirewallDenied = "firewall-denied",
    /// Firewall: rejected by a rule, and an answer was sent.
    FirewallRejected = "firewall-rejected",
    /// Firewall: no rule matched and the default denies.
    FirewallDefault = "firewall-default",
    /// Firewall: the packet does not match its connection's state.
    FirewallInvalid = "firewall-invalid",
    /// Policer: the packet exceeds its rate.
    PolicerRate = "policer-rate",
    /// Policer: all meters are in use, and the policy drops packets without one.
    PolicerNoMeter = "policer-no-meter",
    /// Mptcp: another sub-flow of the connection has carried the packet's data before.
    MptcpDuplicate = "mptcp-duplicate",
    /// Whitelist: unsolicited UDP.
    WhitelistUnsolicited = "whitelist-unsolicited",
    /// Whitelist: a protocol other than UDP, and the policy drops such packets.
    WhitelistProtocol = "whitelist-protocol",
    /// Denial-of-service preventer: the flow exceeded a limit, and is blocked until it ends.
    DosFlow = "dos-flow",
    /// Denial-of-service preventer: the source exceeds its rate of new flows.
    DosSource = "dos-source",
    /// Denial-of-service preventer: all meters of sources are in use, and the policy drops new
    /// flows without one.
    DosNoMeter = "dos-no-meter",
    /// Intrusion detection: dropped by a rule.
    IdsRule = "ids-rule",
    /// Intrusion detection: rejected by a rule, and an answer was sent.
    IdsRejected = "ids-rejected",
    /// Intrusion detection: a rule dropped the flow earlier.
    IdsFlow = "ids-flow",
    /// HTTP: client and server may disagree about where messages end, and the policy drops such
    /// connections.
    HttpSmuggling = "http-smuggling",
    /// HTTP: the request's method is not allowed, and the policy drops such connections.
    HttpMethod = "http-method",
    /// VPN: the packet names an unknown security association (RFC 4301 5.2).
    VpnNoSa = "vpn-no-sa",
    /// VPN: headers, lengths or padding of AH or ESP are malformed.
    VpnMalformed = "vpn-malformed",
    /// VPN: a fragment of a packet that must be verified whole (RFC 4302 3.4.1, RFC 4303 3.4.1).
    VpnFragment = "vpn-fragment",
    /// VPN: the sequence number was seen before, or is older than the window (RFC 4303 3.4.3).
    VpnReplayed = "vpn-replayed",
    /// VPN: the integrity check value is wrong (RFC 4303 3.4.4).
    VpnIntegrity = "vpn-integrity",
    /// VPN: the inner packet does not match the networks of the tunnel (RFC 4301 5.2).
    VpnSelector = "vpn-selector",
    /// VPN: an unencrypted packet from outside between networks that a tunnel connects (RFC 4301
    /// 5.2).
    VpnClear = "vpn-clear",
    /// VPN: all sequence numbers of the security association are used up (RFC 4303 3.3.3).
    VpnExhausted = "vpn-exhausted",
    /// VPN: a dummy packet, which must be discarded (RFC 4303 2.6).
    VpnDummy = "vpn-dummy",
    /// VPN: the tunnel was congested, and the packet cannot carry the congestion mark (RFC 6040
    /// 4.2).
    VpnCongestion = "vpn-congestion",
    /// VPN: an unencrypted ICMP error that quotes or concerns traffic protected by a tunnel (RFC
    /// 4301 6.2).
    VpnError = "vpn-error",
    /// VPN: the packet matches no tunnel, and the policy drops such packets.
    VpnOther = "vpn-other",
    /// Tunnel: the source is not the address of the other end.
    TunnelPeer = "tunnel-peer",
    /// Tunnel: the key or network identifier is wrong, or unexpected.
    TunnelKey = "tunnel-key",
    /// Tunnel: the content is not an IP packet that can be decapsulated: unknown headers, or
    /// another protocol.
    TunnelMalformed = "tunnel-malformed",
    /// Tunnel: a fragment of an outer packet, which is not reassembled.
    TunnelFragment = "tunnel-fragment",
    /// Tunnel: the packet is already in a tunnel, and nesting is not supported.
    TunnelNested = "tunnel-nested",
    /// Tunnel: the path was congested, and the packet cannot carry the congestion mark (RFC 6040
    /// 4.2).
    TunnelCongestion = "tunnel-congestion",
    /// Tunnel: a packet from outside without a tunnel, which the policy does not forward.
    TunnelOther = "tunnel-other",
    /// Tunnel: a keepalive of the other end; the tunnel answered it.
    TunnelAnswered = "tunnel-answered",
    /// Redundancy elimination: the encoding is malformed.
    ReMalformed = "re-malformed",
    /// Redundancy elimination: a fragment of an encoded packet, which can be decoded only whole.
    ReFragment = "re-fragment",
    /// Redundancy elimination: the packet refers to missing content; the other end is notified.
    ReMissing = "re-missing",
    /// Redundancy elimination: the decoded content fails its checksum.
    ReChecksum = "re-checksum",
    /// Redundancy elimination: an unencoded packet arrived with the protocol number that marks
    /// encoded ones.
    ReClash = "re-clash",
    /// Redundancy elimination: a report from the other end, consumed here.
    ReReport = "re-report",
    /// Streams: hosts may ignore the segment or read it differently than it was inspected, and the
    /// policy prevents attacks: a wrong checksum, an old timestamp, a time to live that expires
    /// before the host, data beyond the window, and the like.
    StreamIgnored = "stream-ignored",
    /// Streams: the bytes differ from those sent earlier for the same position, and the policy
    /// prevents attacks.
    StreamDiffers = "stream-differs",
    /// Streams: no memory is left to track the bytes, and the policy drops them.
    StreamMemory = "stream-memory",
    /// Intrusion detection: no memory is left for inspection, and the policy drops the flow.
    IdsMemory = "ids-memory",
    /// Intrusion detection: a message is longer than what is inspected of it, and the policy drops
    /// its flow.
    IdsBeyond = "ids-beyond",
    /// The packet was at a unit that was lost, on its way there, or waited for a state that was
    /// lost with it.
    UnitLost = "unit-lost",
    /// The packet begins a flow, and there is no unit for it: all are lost, or give their flows
    /// away.
    NoUnit = "no-unit",
    /// The packet's unit has as many packets in flight as it may. Only packets of interfaces are
    /// dropped for that; those of captures wait.
    UnitBehind = "unit-behind",
    /// The process did not run for so long that other nodes may have given it up, and the packet
    /// had waited in the meantime.
    ProcessStalled = "process-stalled",
    /// The packet begins a flow of an affinity group that is moving to another unit, and too many
    /// such packets wait.
    GroupMoving = "group-moving",
    /// The packet's flow belongs to another dispatcher, which cannot be reached.
    DispatcherLost = "dispatcher-lost",
    /// The packet's flow belongs to another dispatcher, which does not take packets fast enough.
    DispatcherBehind = "dispatcher-behind",
    /// The decision of an NF outside this list.
    Function = "function",
    /// An internal invariant is violated: a bug.
    Internal = "internal",
}

impl DropReason {
    /// Number of reasons; their numbers are below this.
    pub const COUNT: usize = DropReason::ALL.len();

    /// Returns the reason's number.
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
