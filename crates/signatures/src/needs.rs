//! Capabilities that a rule requires of an engine.

use std::collections::BTreeSet;

use crate::buffer::Buffer;
use crate::expression::ExpressionFeature;
use crate::protocol::{Application, RuleProtocol, RuleTransport};
use crate::transform::BufferTransform;
use crate::{PacketTest, PayloadMatch, ProtocolTest, Rule};

/// A capability of an engine. An engine supports a rule if it has all capabilities that the rule
/// needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Capability {
    /// Applies rules to this kind of packets.
    Transport(RuleTransport),
    /// Detects flows of this protocol.
    Application(Application),
    /// Extracts this buffer.
    Buffer(Buffer),
    /// Supports this feature of expressions, which finite automata lack. Without such a need,
    /// [`crate::Pcre::regex`] returns an equivalent expression for them.
    Expression(ExpressionFeature),
    /// Supports this keyword, by its name in [`crate::keywords`]. Not listed are keywords without
    /// an effect on matching or actions (`msg`, `fast_pattern`, ...), and `content`'s modifiers
    /// besides `content`.
    Keyword(&'static str),
}

impl Rule {
    /// Returns the capabilities that this rule requires, sorted.
    pub fn needs(&self) -> BTreeSet<Capability> {
        let mut needs = BTreeSet::new();
        needs.insert(match self.protocol {
            RuleProtocol::Transport(protocol) => Capability::Transport(protocol),
            RuleProtocol::Application(protocol) => Capability::Application(protocol),
        });
        let mut keyword = |name| {
            needs.insert(Capability::Keyword(name));
        };
        self.packet.iter().for_each(|test| keyword(test.keyword()));
        self.application.iter().for_each(|test| keyword(test.keyword()));
        let present = [
            ("flow", self.flow != Default::default()),
            ("flowbits", !self.flowbits.is_empty()),
            ("flowint", !self.flowints.is_empty()),
            ("xbits", !self.xbits.is_empty()),
            ("threshold", self.threshold.is_some()),
            ("detection_filter", self.detection_filter.is_some()),
            ("tag", !self.tags.is_empty()),
        ];
        for (name, _) in present.into_iter().filter(|(_, present)| *present) {
            keyword(name);
        }
        for buffer in &self.buffers {
            buffer.transforms.iter().for_each(|transform| keyword(transform.keyword()));
            buffer.matches.iter().for_each(|one| keyword(one.keyword()));
        }
        let matches = self.buffers.iter().flat_map(|buffer| &buffer.matches);
        needs.extend(matches.filter_map(|one| match one {
            PayloadMatch::Pcre(pcre) => pcre.regex().err().map(Capability::Expression),
            _ => None,
        }));
        needs.extend(self.buffers.iter().map(|buffer| Capability::Buffer(buffer.buffer)));
        needs
    }
}

impl PayloadMatch {
    /// Returns the keyword.
    pub const fn keyword(&self) -> &'static str {
        match self {
            Self::Content(_) => "content",
            Self::Pcre(_) => "pcre",
            Self::DataAt(_) => "isdataat",
            Self::Size(_) => "bsize",
            Self::ByteTest(_) => "byte_test",
            Self::ByteJump(_) => "byte_jump",
            Self::ByteExtract(_) => "byte_extract",
            Self::ByteMath(_) => "byte_math",
            Self::Base64Decode(_) => "base64_decode",
            Self::Absent { .. } => "absent",
        }
    }
}

impl BufferTransform {
    /// Returns the keyword.
    pub const fn keyword(&self) -> &'static str {
        match self {
            Self::DotPrefix => "dotprefix",
            Self::StripWhitespace => "strip_whitespace",
            Self::CompressWhitespace => "compress_whitespace",
            Self::ToLowercase => "to_lowercase",
            Self::ToUppercase => "to_uppercase",
            Self::ToMd5 => "to_md5",
            Self::ToSha1 => "to_sha1",
            Self::ToSha256 => "to_sha256",
            Self::UrlDecode => "url_decode",
            Self::HeaderLowercase => "header_lowercase",
            Self::StripPseudoHeaders => "strip_pseudo_headers",
            Self::Xor { .. } => "xor",
            Self::Pcre { .. } => "pcrexform",
            Self::FromBase64 { .. } => "from_base64",
        }
    }
}

impl PacketTest {
    /// Returns the keyword.
    pub const fn keyword(&self) -> &'static str {
        match self {
            Self::PayloadBytes(_) => "dsize",
            Self::Ttl(_) => "ttl",
            Self::Tos { .. } => "tos",
            Self::IpId(_) => "id",
            Self::IpProtocol(_) => "ip_proto",
            Self::SameAddress => "sameip",
            Self::IpOption(_) => "ipopts",
            Self::FragmentBits(_) => "fragbits",
            Self::FragmentOffset(_) => "fragoffset",
            Self::TcpFlags(_) => "tcp.flags",
            Self::Sequence(_) => "tcp.seq",
            Self::Acknowledgement(_) => "tcp.ack",
            Self::Window(_) => "tcp.window",
            Self::Mss(_) => "tcp.mss",
            Self::WindowScale(_) => "tcp.wscale",
            Self::IcmpType(_) => "itype",
            Self::IcmpCode(_) => "icode",
            Self::IcmpId(_) => "icmp_id",
            Self::IcmpSequence(_) => "icmp_seq",
            Self::StreamSize(_) => "stream_size",
        }
    }
}

impl ProtocolTest {
    /// Returns the keyword.
    pub const fn keyword(&self) -> &'static str {
        match self {
            Self::Is { .. } => "app-layer-protocol",
            Self::Event(_) => "app-layer-event",
            Self::SslVersion { .. } => "ssl_version",
            Self::TlsVersion(_) => "tls.version",
            Self::SslState { .. } => "ssl_state",
            Self::DnsOpcode(_) => "dns.opcode",
            Self::DnsRcode(_) => "dns.rcode",
            Self::DnsType(_) => "dns.rrtype",
            Self::FtpBounce => "ftpbounce",
            Self::FtpDataCommand(_) => "ftpdata_command",
            Self::FileSize(_) => "filesize",
        }
    }
}
