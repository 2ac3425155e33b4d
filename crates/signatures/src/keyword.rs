//! The table of keywords.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::buffer::Buffer;
use crate::reader::{self, Reader};

/// A keyword of the language.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    /// The name in lower case; rules may write it in any case.
    pub name: &'static str,
    /// The subject.
    pub kind: KeywordKind,
    /// The treatment of rules that use it.
    pub status: KeywordStatus,
    pub(crate) takes: ArgumentKind,
    pub(crate) reader: Reader,
}

/// The subject of a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeywordKind {
    /// The rule itself: its sid, message, classification.
    Meta,
    /// The headers and size of a packet.
    Packet,
    /// The flow, and the state that rules keep.
    Flow,
    /// A test of a buffer.
    Payload,
    /// A modifier of the preceding content.
    ContentModifier,
    /// Selects the buffer for the following keywords.
    StickyBuffer,
    /// Selects the buffer of the preceding content.
    BufferModifier,
    /// Transforms a buffer before inspection.
    Transform,
    /// The application protocol.
    Application,
    /// The rate of alerts.
    Limit,
    /// Other effects of a match.
    Response,
}

/// The treatment of rules that use a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeywordStatus {
    /// Parsed into values.
    Supported,
    /// Parsed and ignored, because it does not change what the rule matches or does.
    Ignored,
    /// Refused, for this reason.
    Unsupported(&'static str),
}

/// True if a keyword has an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    Nothing,
    Maybe,
    Argument,
}

/// Returns the keyword of this name, ignoring case.
pub fn keyword(name: &str) -> Option<&'static Keyword> {
    match TABLE.get(name) {
        Some(keyword) => Some(keyword),
        None if name.bytes().any(|b| b.is_ascii_uppercase()) => TABLE.get(&name.to_ascii_lowercase()[..]),
        None => None,
    }
}

/// Returns all keywords, sorted by name.
pub fn keywords() -> impl Iterator<Item = &'static Keyword> {
    TABLE.values()
}

/// Returns the known keyword that is most similar to an unknown one, if any is.
pub(crate) fn similar(name: &str) -> Option<&'static str> {
    /// Longer names are not typing errors.
    const LONGEST: usize = 40;
    if name.len() > LONGEST {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let likeness = |known: &&str| (strsim::jaro_winkler(known, &name) * 1000.0) as u32;
    TABLE.keys().copied().max_by_key(likeness).filter(|known| likeness(known) > 850)
}

static TABLE: LazyLock<BTreeMap<&'static str, Keyword>> = LazyLock::new(|| {
    let mut table: BTreeMap<_, _> = ROWS.iter().map(|row| (row.name, *row)).collect();
    for buffer in Buffer::ALL {
        let names = std::iter::once(buffer.name()).chain(buffer.aliases().iter().copied());
        table.extend(names.map(|name| {
            let row = row(name, KeywordKind::StickyBuffer, ArgumentKind::Nothing, Reader::Sticky(*buffer));
            (name, row)
        }));
        table.extend(buffer.modifier().map(|name| {
            let row =
                row(name, KeywordKind::BufferModifier, ArgumentKind::Nothing, Reader::Modifier(*buffer));
            (name, row)
        }));
    }
    for (reason, kind, names) in UNSUPPORTED {
        table.extend(names.iter().map(|name| {
            let status = KeywordStatus::Unsupported(reason);
            (*name, Keyword { status, ..row(name, *kind, ArgumentKind::Maybe, Reader::None) })
        }));
    }
    table
});

const fn row(name: &'static str, kind: KeywordKind, takes: ArgumentKind, reader: Reader) -> Keyword {
    Keyword { name, kind, status: KeywordStatus::Supported, takes, reader }
}

/// Returns a keyword with an argument.
const fn with(name: &'static str, kind: KeywordKind, read: reader::Function) -> Keyword {
    row(name, kind, ArgumentKind::Argument, Reader::Function(read))
}

/// Returns a keyword with an optional argument.
const fn maybe(name: &'static str, kind: KeywordKind, read: reader::Function) -> Keyword {
    row(name, kind, ArgumentKind::Maybe, Reader::Function(read))
}

/// Returns a keyword without an argument.
const fn alone(name: &'static str, kind: KeywordKind, read: reader::Function) -> Keyword {
    row(name, kind, ArgumentKind::Nothing, Reader::Function(read))
}

/// Returns a keyword without an effect.
const fn ignored(name: &'static str, kind: KeywordKind, takes: ArgumentKind) -> Keyword {
    Keyword { status: KeywordStatus::Ignored, ..row(name, kind, takes, Reader::None) }
}

use KeywordKind::{Application, ContentModifier, Flow, Limit, Meta, Packet, Payload, Response};
use reader::{application, bytes, content, flow, limit, meta, packet, pcre, transform};

const ROWS: &[Keyword] = &[
    with("msg", Meta, meta::msg),
    with("sid", Meta, meta::sid),
    with("gid", Meta, meta::gid),
    with("rev", Meta, meta::rev),
    with("classtype", Meta, meta::classtype),
    with("priority", Meta, meta::priority),
    with("reference", Meta, meta::reference),
    with("metadata", Meta, meta::metadata),
    with("target", Meta, meta::target),
    alone("noalert", Response, meta::noalert),
    alone("alert", Response, meta::alert),
    with("tag", Response, limit::tag),
    with("threshold", Limit, limit::threshold),
    with("detection_filter", Limit, limit::detection_filter),
    with("flow", Flow, flow::flow),
    with("flowbits", Flow, flow::flowbits),
    with("flowint", Flow, flow::flowint),
    with("xbits", Flow, flow::xbits),
    with("hostbits", Flow, flow::hostbits),
    with("stream_size", Flow, flow::stream_size),
    with("dsize", Packet, packet::dsize),
    with("ttl", Packet, packet::ttl),
    with("tos", Packet, packet::tos),
    with("id", Packet, packet::id),
    with("ip_proto", Packet, packet::ip_proto),
    alone("sameip", Packet, packet::sameip),
    with("ipopts", Packet, packet::ipopts),
    with("fragbits", Packet, packet::fragbits),
    with("fragoffset", Packet, packet::fragoffset),
    with("flags", Packet, packet::flags),
    with("tcp.flags", Packet, packet::flags),
    with("seq", Packet, packet::seq),
    with("tcp.seq", Packet, packet::seq),
    with("ack", Packet, packet::ack),
    with("tcp.ack", Packet, packet::ack),
    with("window", Packet, packet::window),
    with("tcp.window", Packet, packet::window),
    with("tcp.mss", Packet, packet::mss),
    with("tcp.wscale", Packet, packet::wscale),
    with("itype", Packet, packet::itype),
    with("icode", Packet, packet::icode),
    with("icmp_id", Packet, packet::icmp_id),
    with("icmp_seq", Packet, packet::icmp_seq),
    with("content", Payload, content::content),
    with("uricontent", Payload, content::uricontent),
    with("tls.subject", Payload, content::tls_subject),
    with("tls.issuerdn", Payload, content::tls_issuerdn),
    with("tls.fingerprint", Payload, content::tls_fingerprint),
    alone("nocase", ContentModifier, content::nocase),
    with("offset", ContentModifier, content::offset),
    with("depth", ContentModifier, content::depth),
    with("distance", ContentModifier, content::distance),
    with("within", ContentModifier, content::within),
    alone("startswith", ContentModifier, content::startswith),
    alone("endswith", ContentModifier, content::endswith),
    maybe("fast_pattern", ContentModifier, content::fast_pattern),
    ignored("rawbytes", ContentModifier, ArgumentKind::Nothing),
    ignored("prefilter", Meta, ArgumentKind::Nothing),
    with("pcre", Payload, pcre::pcre),
    with("isdataat", Payload, bytes::isdataat),
    with("bsize", Payload, content::bsize),
    with("urilen", Payload, content::urilen),
    maybe("absent", Payload, content::absent),
    with("byte_test", Payload, bytes::byte_test),
    with("byte_jump", Payload, bytes::byte_jump),
    with("byte_extract", Payload, bytes::byte_extract),
    with("byte_math", Payload, bytes::byte_math),
    maybe("base64_decode", Payload, bytes::base64_decode),
    alone("dotprefix", KeywordKind::Transform, transform::dotprefix),
    alone("strip_whitespace", KeywordKind::Transform, transform::strip_whitespace),
    alone("compress_whitespace", KeywordKind::Transform, transform::compress_whitespace),
    alone("to_lowercase", KeywordKind::Transform, transform::to_lowercase),
    alone("to_uppercase", KeywordKind::Transform, transform::to_uppercase),
    alone("to_md5", KeywordKind::Transform, transform::to_md5),
    alone("to_sha1", KeywordKind::Transform, transform::to_sha1),
    alone("to_sha256", KeywordKind::Transform, transform::to_sha256),
    alone("url_decode", KeywordKind::Transform, transform::url_decode),
    alone("header_lowercase", KeywordKind::Transform, transform::header_lowercase),
    alone("strip_pseudo_headers", KeywordKind::Transform, transform::strip_pseudo_headers),
    with("xor", KeywordKind::Transform, transform::xor),
    with("pcrexform", KeywordKind::Transform, transform::pcrexform),
    maybe("from_base64", KeywordKind::Transform, transform::from_base64),
    with("app-layer-protocol", Application, application::protocol),
    with("app-layer-event", Application, application::event),
    with("ssl_version", Application, application::ssl_version),
    with("ssl_state", Application, application::ssl_state),
    with("tls.version", Application, application::tls_version),
    with("dns.opcode", Application, application::dns_opcode),
    with("dns.rcode", Application, application::dns_rcode),
    with("dns.rrtype", Application, application::dns_rrtype),
    alone("ftpbounce", Application, application::ftpbounce),
    with("ftpdata_command", Application, application::ftpdata_command),
    with("filesize", Application, application::filesize),
];

/// Known keywords that are refused, by reason.
const UNSUPPORTED: &[(&str, KeywordKind, &[&str])] = &[
    ("it runs a program of the rule's", Payload, &["lua", "luajit", "luaxform"]),
    ("it needs files of data beside the rules", Payload, &["dataset", "datarep"]),
    ("it needs a table of reputations", Packet, &["iprep"]),
    ("it needs a table of countries", Packet, &["geoip"]),
    ("it changes packets", Response, &["replace"]),
    ("it changes how an engine runs", Response, &["bypass", "config", "nfq_set_mark", "requires"]),
    ("files are not stored", Response, &["filestore", "tls.store", "tls_store"]),
    (
        "checksums of files, and older words for a file's name and kind, are not read",
        Application,
        &["filemd5", "filesha1", "filesha256", "fileext", "filename", "filemagic"],
    ),
    (
        "events of decoders and streams are not read",
        Packet,
        &["decode-event", "engine-event", "stream-event", "app-layer-state"],
    ),
    (
        "checksums are not tested",
        Packet,
        &[
            "ipv4-csum",
            "tcpv4-csum",
            "tcpv6-csum",
            "udpv4-csum",
            "udpv6-csum",
            "icmpv4-csum",
            "icmpv6-csum",
            "igmp-csum",
        ],
    ),
    (
        "this part of packets is not read",
        Packet,
        &[
            "icmpv6.mtu",
            "igmp.hdr",
            "igmp.type",
            "l3_proto",
            "vlan.id",
            "vlan.layers",
            "sctp.chunk_cnt",
            "sctp.chunk_data",
            "sctp.chunk_type",
            "sctp.hdr",
            "sctp.vtag",
            "ip.src",
            "ip.dst",
            "tcp.session",
        ],
    ),
    (
        "counts of flows are not read",
        Flow,
        &[
            "flow.age",
            "flow.bytes",
            "flow.bytes_toclient",
            "flow.bytes_toserver",
            "flow.elephant",
            "flow.pkts",
            "flow.pkts_toclient",
            "flow.pkts_toserver",
        ],
    ),
    ("variables of this kind are not kept", Flow, &["flowvar", "pktvar"]),
    ("it is not read", Payload, &["asn1", "rpc", "entropy", "frame", "template", "template2"]),
    (
        "this transform is not read",
        KeywordKind::Transform,
        &["domain", "tld", "subslice", "gunzip", "zlib_deflate"],
    ),
    (
        "this part of DCERPC, DHCP, DNP3, ENIP, Modbus or NFS is not read",
        Application,
        &[
            "dce_iface",
            "dce_opnum",
            "dcerpc.iface",
            "dcerpc.opnum",
            "dhcp.leasetime",
            "dhcp.rebinding_time",
            "dhcp.renewal_time",
            "dnp3.data",
            "dnp3.func",
            "dnp3.ind",
            "dnp3.obj",
            "dnp3_data",
            "dnp3_func",
            "dnp3_ind",
            "dnp3_obj",
            "cip_service",
            "enip_command",
            "enip.command",
            "enip.capabilities",
            "enip.cip_attribute",
            "enip.cip_class",
            "enip.cip_extendedstatus",
            "enip.cip_instance",
            "enip.cip_status",
            "enip.device_type",
            "enip.identity_status",
            "enip.product_code",
            "enip.product_name",
            "enip.protocol_version",
            "enip.revision",
            "enip.serial",
            "enip.service_name",
            "enip.state",
            "enip.status",
            "enip.vendor_id",
            "modbus",
            "nfs_procedure",
            "nfs_version",
            "nfs.version",
        ],
    ),
    (
        "this part of HTTP/2, SSH, TLS, FTP or mail is not read",
        Application,
        &[
            "http2.errorcode",
            "http2.frametype",
            "http2.header",
            "http2.priority",
            "http2.settings",
            "http2.size_update",
            "http2.window",
            "ssh.protoversion",
            "ssh.softwareversion",
            "tls.cert_chain_len",
            "tls_cert_expired",
            "tls_cert_notafter",
            "tls_cert_notbefore",
            "tls_cert_valid",
            "ftp.dynamic_port",
            "ftp.mode",
            "ftp.reply_received",
            "email.body_md5",
        ],
    ),
    (
        "this part of IKE, Kerberos, LDAP, LLMNR, mDNS, MQTT, NTP, PostgreSQL, QUIC or RFB is not read",
        Application,
        &[
            "ike.chosen_sa_attribute",
            "ike.exchtype",
            "ike.init_spi",
            "ike.key_exchange_payload",
            "ike.key_exchange_payload_length",
            "ike.nonce_payload",
            "ike.nonce_payload_length",
            "ike.resp_spi",
            "ike.vendor",
            "krb5.ticket_encryption",
            "krb5_err_code",
            "krb5_msg_type",
            "ldap.request.attribute_type",
            "ldap.request.dn",
            "ldap.request.operation",
            "ldap.responses.attribute_type",
            "ldap.responses.count",
            "ldap.responses.dn",
            "ldap.responses.message",
            "ldap.responses.operation",
            "ldap.responses.result_code",
            "llmnr.additionals.rrname",
            "llmnr.answers.rrname",
            "llmnr.authorities.rrname",
            "llmnr.queries.rrname",
            "llmnr.response.rrname",
            "mdns.additionals.rrname",
            "mdns.answers.rrname",
            "mdns.authorities.rrname",
            "mdns.queries.rrname",
            "mdns.response.rrname",
            "mqtt.connack.session_present",
            "mqtt.connect.flags",
            "mqtt.connect.protocol_string",
            "mqtt.connect.willmessage",
            "mqtt.connect.willtopic",
            "mqtt.flags",
            "mqtt.protocol_version",
            "mqtt.qos",
            "mqtt.reason_code",
            "mqtt.type",
            "mqtt.unsubscribe.topic",
            "ntp.mode",
            "ntp.reference_id",
            "ntp.stratum",
            "ntp.version",
            "pgsql.query",
            "quic.cyu.hash",
            "quic.cyu.string",
            "rfb.secresult",
            "rfb.sectype",
        ],
    ),
    (
        "this part of SDP, SIP, SMB, SNMP or WebSocket is not read",
        Application,
        &[
            "sdp.attribute",
            "sdp.bandwidth",
            "sdp.connection_data",
            "sdp.email",
            "sdp.encryption_key",
            "sdp.media.connection_data",
            "sdp.media.encryption_key",
            "sdp.media.media",
            "sdp.media.session_info",
            "sdp.origin",
            "sdp.phone_number",
            "sdp.repeat_time",
            "sdp.session_info",
            "sdp.session_name",
            "sdp.time",
            "sdp.timezone",
            "sdp.uri",
            "sip.content_length",
            "sip.content_type",
            "smb.version",
            "snmp.pdu_type",
            "snmp.trap_address",
            "snmp.trap_oid",
            "snmp.trap_type",
            "snmp.version",
            "websocket.flags",
            "websocket.mask",
            "websocket.opcode",
        ],
    ),
];
