//! Assigned numbers: newtypes over the value on the wire, with constants for the numbers that the
//! program uses.

use super::bytes::Field;

/// A newtype over an assigned number, with named constants; it prints as the constant's name, or
/// else as its value.
macro_rules! numbers {
    (
        $(#[$doc:meta])*
        pub struct $name:ident($integer:ty);
        $($(#[$const_doc:meta])* $constant:ident = $value:expr;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $integer);

        impl $name {
            $($(#[$const_doc])* pub const $constant: $name = $name($value);)*
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $($name::$constant => f.write_str(stringify!($constant)),)*
                    $name(other) => write!(f, concat!(stringify!($name), "({:#x})"), other),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(self, f)
            }
        }

        impl $crate::wire::bytes::Field for $name {
            #[inline]
            fn read(bytes: &[u8]) -> Self {
                $name(<$integer as $crate::wire::bytes::Field>::read(bytes))
            }

            #[inline]
            fn write(self, bytes: &mut [u8]) {
                $crate::wire::bytes::Field::write(self.0, bytes);
            }
        }
    };
}
pub(super) use numbers;

numbers! {
    /// Protocol of a frame's payload. IEEE 802 numbers, RFC 9542 appendix B.
    pub struct EtherType(u16);
    /// Internet protocol, version 4.
    IPV4 = 0x0800;
    /// Address resolution.
    ARP = 0x0806;
    /// Transparent Ethernet bridging: an Ethernet frame (in GRE, Geneve).
    ETHERNET = 0x6558;
    /// Reverse address resolution.
    RARP = 0x8035;
    /// An IEEE 802.1Q customer tag.
    VLAN = 0x8100;
    /// Internet protocol, version 6.
    IPV6 = 0x86dd;
    /// Ethernet flow control and other IEEE 802.3 control frames.
    MAC_CONTROL = 0x8808;
    /// The Point-to-Point Protocol (in GRE version 1).
    PPP = 0x880b;
    /// MPLS, labels assigned downstream (and unicast).
    MPLS = 0x8847;
    /// MPLS, labels assigned upstream (and multicast).
    MPLS_UPSTREAM = 0x8848;
    /// PPPoE, discovery stage.
    PPPOE_DISCOVERY = 0x8863;
    /// PPPoE, session stage.
    PPPOE_SESSION = 0x8864;
    /// An IEEE 802.1ad service tag.
    QINQ = 0x88a8;
    /// ERSPAN, version 1 (in GRE).
    ERSPAN = 0x88be;
    /// Link layer discovery.
    LLDP = 0x88cc;
    /// An IEEE 802.1ah backbone service tag.
    PBB = 0x88e7;
    /// A service tag as sent before 802.1ad.
    QINQ_OLD = 0x9100;
}

impl EtherType {
    /// Checks if a VLAN tag follows.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::QINQ | EtherType::QINQ_OLD)
    }

    /// Checks if the number is in truth the length of an 802.3 frame, in bytes. IEEE 802.3 clause
    /// 3.2.6.
    #[inline]
    pub const fn is_length(self) -> bool {
        self.0 <= 1500
    }
}

numbers! {
    /// Protocol of an IP packet's payload: the Protocol field of IPv4, the Next Header field of
    /// IPv6. IANA protocol numbers.
    pub struct IpProtocol(u8);
    /// IPv6 hop-by-hop options.
    HOP_BY_HOP = 0;
    /// ICMP for IPv4.
    ICMP = 1;
    /// IGMP.
    IGMP = 2;
    /// IPv4 in IP.
    IPV4 = 4;
    /// TCP.
    TCP = 6;
    /// UDP.
    UDP = 17;
    /// DCCP.
    DCCP = 33;
    /// IPv6 in IP.
    IPV6 = 41;
    /// IPv6 routing header.
    ROUTING = 43;
    /// IPv6 fragment header.
    FRAGMENT = 44;
    /// GRE.
    GRE = 47;
    /// Encapsulating security payload.
    ESP = 50;
    /// Authentication header.
    AH = 51;
    /// ICMP for IPv6.
    ICMPV6 = 58;
    /// Nothing follows.
    NO_NEXT_HEADER = 59;
    /// IPv6 destination options.
    DESTINATION_OPTIONS = 60;
    /// OSPF.
    OSPF = 89;
    /// Ethernet in IP.
    ETHERIP = 97;
    /// SCTP.
    SCTP = 132;
    /// UDP-Lite.
    UDP_LITE = 136;
    /// MPLS in IP.
    MPLS = 137;
    /// Ethernet after a segment routing header.
    ETHERNET = 143;
}

impl IpProtocol {
    /// Checks if it is an IPv6 extension header that [`super::ipv6_walk`] walks over: one of
    /// hop-by-hop options, routing, fragment, destination options, authentication. RFC 8200 section
    /// 4, RFC 4302.
    #[inline]
    pub const fn is_ipv6_extension(self) -> bool {
        matches!(
            self,
            IpProtocol::HOP_BY_HOP
                | IpProtocol::ROUTING
                | IpProtocol::FRAGMENT
                | IpProtocol::DESTINATION_OPTIONS
                | IpProtocol::AH
        )
    }
}

/// A 48-bit IEEE 802 address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// All stations.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Checks if it names a group of stations; broadcast is one.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Checks if it names all stations.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == MacAddress::BROADCAST
    }
}

impl core::fmt::Display for MacAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl core::fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

impl Field for MacAddress {
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        let mut raw = [0; 6];
        raw.copy_from_slice(bytes);
        MacAddress(raw)
    }

    #[inline]
    fn write(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0);
    }
}
