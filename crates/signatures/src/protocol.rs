//! Protocols, and what rules ask of application protocols.

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
            /// All of them.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            /// The name in rules.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The one of this name, whatever its case.
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
    /// To what packets a rule applies by its second word, below the applications.
    Transport
    /// Every packet of IP.
    Ip "ip" | "any";
    /// IPv4 only.
    Ipv4 "ipv4" | "ip4";
    /// IPv6 only.
    Ipv6 "ipv6" | "ip6";
    /// TCP: contents are looked for in packets and in the stream.
    Tcp "tcp";
    /// TCP: contents are looked for in packets only.
    TcpPacket "tcp-pkt";
    /// TCP: contents are looked for in the stream only.
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
    /// An application protocol, as found in a flow whatever its port.
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
    /// FTP's commands.
    Ftp "ftp";
    /// FTP's files.
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
    /// BitTorrent's hash table.
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
    /// The flow's protocol could not be found out. Only in [`ProtocolTest::Is`].
    Failed "failed";
    /// The flow's protocol is not known yet. Only in [`ProtocolTest::Is`].
    Unknown "unknown";
}

/// To what a rule applies: its second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Packets.
    Transport(Transport),
    /// Flows of an application protocol.
    Application(Application),
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(protocol) => protocol.fmt(f),
            Self::Application(protocol) => protocol.fmt(f),
        }
    }
}

/// A test of a flow's application protocol. Rules that are about a protocol's buffers only have
/// none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProtocolTest {
    /// `app-layer-protocol`: the flow's protocol is any of those; [`Application::Http`] covers both
    /// versions, [`Application::Dns`] also [`Application::Doh2`], [`Application::Dcerpc`] also
    /// [`Application::Smb`].
    Is {
        /// Known, and none of those.
        negated: bool,
        /// At least one.
        protocols: Vec<Application>,
        /// What is taken as the flow's protocol.
        mode: ProtocolMode,
    },
    /// `app-layer-event`: the protocol's reader met something odd. The name is `protocol.event` or,
    /// of the detection of protocols, `event` alone.
    Event(String),
    /// `ssl_version`: the record's version is any of those, or none of those.
    SslVersion {
        /// None of those.
        negated: bool,
        /// At least one.
        versions: Vec<TlsVersion>,
    },
    /// `tls.version`: the version that was negotiated.
    TlsVersion(TlsVersion),
    /// `ssl_state`: the handshake is at any of those.
    SslState {
        /// At none of those.
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
    /// `ftpbounce`: an FTP client asks for a connection to another address than its own.
    FtpBounce,
    /// `ftpdata_command`: the command that a connection for data belongs to.
    FtpDataCommand(FtpDataCommand),
    /// `filesize`: the bytes of a file.
    FileSize(Comparison<u64>),
}

/// What is taken as a flow's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProtocolMode {
    /// `direction`: what was found in the packet's direction.
    #[default]
    Direction,
    /// `to_server`: what was found in what the client sends.
    ToServer,
    /// `to_client`: what was found in what the server sends.
    ToClient,
    /// `either`: what was found in any direction.
    Either,
    /// `final`: what the flow is read as.
    Final,
    /// `original`: what the flow was before it changed.
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
    /// A step of TLS's handshake.
    TlsState
    /// The client's hello was seen.
    ClientHello "client_hello";
    /// The server's hello was seen.
    ServerHello "server_hello";
    /// The client's key was seen.
    ClientKeyx "client_keyx";
    /// The server's key was seen.
    ServerKeyx "server_keyx";
    /// It cannot be told.
    Unknown "unknown";
}

names! {
    /// A command of FTP that has a connection for data.
    FtpDataCommand
    /// Store.
    Stor "stor";
    /// Append.
    Appe "appe";
    /// Store under a name of its own.
    Stou "stou";
    /// Retrieve.
    Retr "retr";
    /// List names.
    Nlst "nlst";
    /// List.
    List "list";
    /// List for machines.
    Mlsd "mlsd";
}
