//! Protocols, and tests of application protocols.

use std::fmt;

use crate::number::Comparison;

macro_rules! names {
    ($(#[$doc:meta])* $type:ident $($(#[$inner:meta])* $variant:ident $name:literal $(| $also:literal)*;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[$inner])* $variant,)*
        }

        impl $type {
            /// All variants.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            /// Returns the name in rules.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the variant of this name, ignoring case.
            pub fn by_name(name: &str) -> Option<Self> {
                const NAMES: &[(&str, $type)] = &[$(($name, $type::$variant), $(($also, $type::$variant),)*)*];
                NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names! {
    /// The packets that a rule applies to, by the second word of its header, below the
    /// applications.
    RuleTransport
    /// Every IP packet.
    Ip "ip" | "any";
    /// IPv4 only.
    Ipv4 "ipv4" | "ip4";
    /// IPv6 only.
    Ipv6 "ipv6" | "ip6";
    /// TCP: contents are searched for in packets and in the stream.
    Tcp "tcp";
    /// TCP: contents are searched for in packets only.
    TcpPacket "tcp-pkt";
    /// TCP: contents are searched for in the stream only.
    TcpStream "tcp-stream";
    /// UDP.
    Udp "udp";
    /// SCTP.
    Sctp "sctp";
    /// ICMP of either version.
    Icmp "icmp";
    /// ICMP for IPv4.
    Icmpv4 "icmpv4";
    /// ICMP for IPv6.
    Icmpv6 "icmpv6";
}

names! {
    /// An application protocol, detected in a flow on any port.
    Application
    /// HTTP of any version.
    Http "http";
    /// HTTP/1.
    Http1 "http1";
    /// HTTP/2.
    Http2 "http2";
    /// TLS and SSL.
    Tls "tls" | "ssl";
    /// QUIC.
    Quic "quic";
    /// FTP control connections.
    Ftp "ftp";
    /// FTP data connections.
    FtpData "ftp-data";
    /// SMTP.
    Smtp "smtp";
    /// IMAP.
    Imap "imap";
    /// POP3.
    Pop3 "pop3";
    /// SSH.
    Ssh "ssh";
    /// SMB.
    Smb "smb";
    /// DCERPC.
    Dcerpc "dcerpc";
    /// DNS.
    Dns "dns";
    /// DNS over HTTP/2.
    Doh2 "doh2";
    /// Multicast DNS.
    Mdns "mdns";
    /// LLMNR.
    Llmnr "llmnr";
    /// LDAP.
    Ldap "ldap";
    /// DHCP.
    Dhcp "dhcp";
    /// Modbus.
    Modbus "modbus";
    /// DNP3.
    Dnp3 "dnp3";
    /// EtherNet/IP.
    Enip "enip";
    /// NFS.
    Nfs "nfs";
    /// IKE.
    Ike "ike" | "ikev2";
    /// Kerberos.
    Krb5 "krb5";
    /// BitTorrent's distributed hash table.
    BittorrentDht "bittorrent-dht";
    /// MQTT.
    Mqtt "mqtt";
    /// NTP.
    Ntp "ntp";
    /// RFB (VNC).
    Rfb "rfb";
    /// RDP.
    Rdp "rdp";
    /// SNMP.
    Snmp "snmp";
    /// TFTP.
    Tftp "tftp";
    /// SIP.
    Sip "sip";
    /// Telnet.
    Telnet "telnet";
    /// WebSocket.
    WebSocket "websocket";
    /// PostgreSQL.
    Pgsql "pgsql";
    /// MySQL.
    Mysql "mysql";
    /// The protocol could not be detected. Only in [`ProtocolTest::Is`].
    Failed "failed";
    /// The protocol is not known yet. Only in [`ProtocolTest::Is`].
    Unknown "unknown";
}

/// The protocol that a rule applies to: the second word of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleProtocol {
    /// Packets.
    Transport(RuleTransport),
    /// Flows of an application protocol.
    Application(Application),
}

impl fmt::Display for RuleProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(protocol) => protocol.fmt(f),
            Self::Application(protocol) => protocol.fmt(f),
        }
    }
}

/// A test of a flow's application protocol. Rules that merely inspect a protocol's buffers have
/// none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProtocolTest {
    /// `app-layer-protocol`: the flow's protocol is any of these. [`Application::Http`] covers both
    /// versions, [`Application::Dns`] also [`Application::Doh2`], [`Application::Dcerpc`] also
    /// [`Application::Smb`].
    Is {
        /// True if it must be known and none of these.
        negated: bool,
        /// At least one.
        protocols: Vec<Application>,
        /// The protocol that is tested.
        mode: ProtocolMode,
    },
    /// `app-layer-event`: an anomaly reported by the protocol's parser. The name is
    /// `protocol.event` or, for protocol detection, `event` alone.
    Event(String),
    /// `ssl_version`: the record's version is any of these.
    SslVersion {
        /// True if it must be none of these.
        negated: bool,
        /// At least one.
        versions: Vec<TlsVersion>,
    },
    /// `tls.version`: the negotiated version.
    TlsVersion(TlsVersion),
    /// `ssl_state`: the handshake is in any of these states.
    SslState {
        /// True if it must be in none of these.
        negated: bool,
        /// At least one.
        states: Vec<TlsState>,
    },
    /// `dns.opcode`: of a request or response.
    DnsOpcode(Comparison<u8>),
    /// `dns.rcode`: of a response.
    DnsRcode(Comparison<u16>),
    /// `dns.rrtype`: of a question or an answer.
    DnsType(Comparison<u16>),
    /// `ftpbounce`: an FTP client requests a connection to a third party.
    FtpBounce,
    /// `ftpdata_command`: the command of a data connection.
    FtpDataCommand(FtpDataCommand),
    /// `filesize`: the bytes of a file.
    FileSize(Comparison<u64>),
}

/// The protocol that a test refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProtocolMode {
    /// `direction`: the one detected in the packet's direction.
    #[default]
    Direction,
    /// `to_server`: the one detected in the client's direction.
    ToServer,
    /// `to_client`: the one detected in the server's direction.
    ToClient,
    /// `either`: the one detected in either direction.
    Either,
    /// `final`: the protocol that the flow is parsed as.
    Final,
    /// `original`: the protocol before a change.
    Original,
}

impl ProtocolMode {
    pub(crate) const NAMES: [(&'static str, Self); 6] = [
        ("direction", Self::Direction),
        ("to_server", Self::ToServer),
        ("to_client", Self::ToClient),
        ("either", Self::Either),
        ("final", Self::Final),
        ("original", Self::Original),
    ];
}

names! {
    /// A version of TLS.
    TlsVersion
    /// SSL 2.
    Ssl2 "sslv2";
    /// SSL 3.
    Ssl3 "sslv3";
    /// TLS 1.0.
    Tls10 "tls1.0" | "1.0";
    /// TLS 1.1.
    Tls11 "tls1.1" | "1.1";
    /// TLS 1.2.
    Tls12 "tls1.2" | "1.2";
    /// TLS 1.3.
    Tls13 "tls1.3" | "1.3";
}

names! {
    /// A state of the TLS handshake.
    TlsState
    /// The ClientHello was seen.
    ClientHello "client_hello";
    /// The ServerHello was seen.
    ServerHello "server_hello";
    /// The ClientKeyExchange was seen.
    ClientKeyx "client_keyx";
    /// The ServerKeyExchange was seen.
    ServerKeyx "server_keyx";
    /// Unknown.
    Unknown "unknown";
}

names! {
    /// An FTP command with a data connection.
    FtpDataCommand
    /// Store.
    Stor "stor";
    /// Append.
    Appe "appe";
    /// Store under a unique name.
    Stou "stou";
    /// Retrieve.
    Retr "retr";
    /// List names.
    Nlst "nlst";
    /// List.
    List "list";
    /// Machine-readable listing.
    Mlsd "mlsd";
}
