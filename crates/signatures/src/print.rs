//! Printing of rules.

mod payload;

use std::fmt::{self, Display, Formatter, Write};

use crate::flow::*;
use crate::limit::*;
use crate::packet::{FlagTest, FlagTestMode, IpOption, PacketTest};
use crate::protocol::{ProtocolMode, ProtocolTest};
use crate::rule::{AttackTarget, DEFAULT_GID, HeaderDirection, RejectTarget, Rule, RuleAction};

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {} ", self.action, self.protocol, self.source, self.source_ports)?;
        write!(f, "{} {} {} (", self.direction, self.destination, self.destination_ports)?;
        if !self.msg.is_empty() {
            write!(f, "msg:\"{}\"; ", Escaped(&self.msg))?;
        }
        flow(f, &self.flow)?;
        for test in &self.packet {
            write!(f, "{test}; ")?;
        }
        for test in &self.application {
            write!(f, "{test}; ")?;
        }
        for (place, buffer) in self.buffers.iter().enumerate() {
            payload::buffer(f, buffer, place == 0, &self.variables)?;
        }
        for bit in &self.flowbits {
            flowbit(f, bit)?;
        }
        for int in &self.flowints {
            flowint(f, int)?;
        }
        for bit in &self.xbits {
            xbit(f, bit)?;
        }
        limits(f, self)?;
        meta(f, self)
    }
}

/// Text with its special characters escaped.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if matches!(c, ';' | '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(c)?;
        }
        Ok(())
    }
}

impl Display for RuleAction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alert => "alert",
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Reject(RejectTarget::Source) => "reject",
            Self::Reject(RejectTarget::Destination) => "rejectdst",
            Self::Reject(RejectTarget::Both) => "rejectboth",
        })
    }
}

impl Display for HeaderDirection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "->",
            Self::Both => "<>",
        })
    }
}

fn flow(f: &mut Formatter<'_>, flow: &FlowOptions) -> fmt::Result {
    let direction = flow.direction.map(|way| match way {
        FlowDirection::ToServer => "to_server",
        FlowDirection::ToClient => "to_client",
    });
    let state = flow.state.map(|state| match state {
        FlowState::Established => "established",
        FlowState::NotEstablished => "not_established",
        FlowState::Stateless => "stateless",
    });
    let stream = flow.stream.map(|only| match only {
        ReassemblyFilter::Assembled => "only_stream",
        ReassemblyFilter::Plain => "no_stream",
    });
    let fragments = flow.fragments.map(|only| match only {
        ReassemblyFilter::Assembled => "only_frag",
        ReassemblyFilter::Plain => "no_frag",
    });
    let words: Vec<&str> = [direction, state, stream, fragments].into_iter().flatten().collect();
    if words.is_empty() { Ok(()) } else { write!(f, "flow:{}; ", words.join(",")) }
}

/// Prints keyword and argument.
impl Display for PacketTest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.keyword();
        match self {
            Self::PayloadBytes(test) | Self::IpId(test) | Self::FragmentOffset(test) => {
                write!(f, "{name}:{test}")
            }
            Self::Window(test) | Self::Mss(test) => write!(f, "{name}:{test}"),
            Self::Ttl(test) | Self::IpProtocol(test) | Self::WindowScale(test) => write!(f, "{name}:{test}"),
            Self::IcmpType(test) | Self::IcmpCode(test) => write!(f, "{name}:{test}"),
            Self::Sequence(test) | Self::Acknowledgement(test) => write!(f, "{name}:{test}"),
            Self::Tos { negated, value } => write!(f, "{name}:{}{value}", not(*negated)),
            Self::SameAddress => f.write_str(name),
            Self::IpOption(IpOption::Any) => write!(f, "{name}:any"),
            Self::IpOption(IpOption::Type(option)) => {
                match IpOption::NAMES.iter().find(|(_, value)| value == option) {
                    Some((word, _)) => write!(f, "{name}:{word}"),
                    None => write!(f, "{name}:{option}"),
                }
            }
            Self::FragmentBits(bits) => show_bits(f, name, bits, &FlagTest::FRAGMENT),
            Self::TcpFlags(bits) => show_bits(f, name, bits, &FlagTest::TCP),
            Self::IcmpId(value) | Self::IcmpSequence(value) => write!(f, "{name}:{value}"),
            Self::StreamSize(size) => {
                let side = match size.side {
                    StreamSide::Client => "client",
                    StreamSide::Server => "server",
                    StreamSide::Both => "both",
                    StreamSide::Either => "either",
                };
                let (sign, bytes) = signed(size.bytes);
                write!(f, "{name}:{side},{sign},{bytes}")
            }
        }
    }
}

/// Returns operator and number of a comparison. Stream sizes have no ranges and masks.
fn signed(test: crate::Comparison<u32>) -> (&'static str, u32) {
    use crate::Comparison::*;
    match test {
        Equal(n) => ("=", n),
        NotEqual(n) => ("!=", n),
        Less(n) => ("<", n),
        AtMost(n) => ("<=", n),
        Greater(n) | Between(n, _) => (">", n),
        AtLeast(n) | Outside(n, _) => (">=", n),
        Masked { value, .. } | NotMasked { value, .. } => ("=", value),
    }
}

fn show_bits(f: &mut Formatter<'_>, name: &str, bits: &FlagTest, letters: &[(char, u8)]) -> fmt::Result {
    let mode = match bits.mode {
        FlagTestMode::Exactly => "",
        FlagTestMode::All => "+",
        FlagTestMode::Any => "*",
        FlagTestMode::NotAll => "!",
    };
    let of = |bits: u8| letters.iter().filter(move |(_, bit)| bits & bit != 0).map(|(letter, _)| letter);
    let mut word: String = of(bits.bits).collect();
    if word.is_empty() {
        word.push('0');
    }
    write!(f, "{name}:{mode}{word}")?;
    match of(bits.ignored).collect::<String>() {
        ignored if ignored.is_empty() => Ok(()),
        ignored => write!(f, ",{ignored}"),
    }
}

/// Prints keyword and argument.
impl Display for ProtocolTest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.keyword();
        match self {
            Self::Is { negated, protocols, mode } => {
                write!(f, "{name}:{}{}", not(*negated), join(protocols, "", "|"))?;
                match ProtocolMode::NAMES
                    .iter()
                    .find(|(_, known)| known == mode && *known != Default::default())
                {
                    Some((word, _)) => write!(f, ",{word}"),
                    None => Ok(()),
                }
            }
            Self::Event(event) => write!(f, "{name}:{event}"),
            Self::SslVersion { negated, versions } => {
                write!(f, "{name}:{}", join(versions, not(*negated), ","))
            }
            Self::SslState { negated, states } => write!(f, "{name}:{}", join(states, not(*negated), ",")),
            Self::TlsVersion(version) => write!(f, "{name}:{version}"),
            Self::DnsOpcode(test) => write!(f, "{name}:{test}"),
            Self::DnsRcode(test) | Self::DnsType(test) => write!(f, "{name}:{test}"),
            Self::FtpBounce => f.write_str(name),
            Self::FtpDataCommand(command) => write!(f, "{name}:{command}"),
            Self::FileSize(test) => write!(f, "{name}:{test}"),
        }
    }
}

fn flowbit(f: &mut Formatter<'_>, bit: &Flowbit) -> fmt::Result {
    let (operation, names) = match bit {
        Flowbit::IsSet(names) => ("isset", names),
        Flowbit::IsNotSet(names) => ("isnotset", names),
        Flowbit::Set(names) => ("set", names),
        Flowbit::Unset(names) => ("unset", names),
        Flowbit::Toggle(names) => ("toggle", names),
    };
    write!(f, "flowbits:{operation},{}; ", names.join("|"))
}

fn flowint(f: &mut Formatter<'_>, Flowint { name, operation }: &Flowint) -> fmt::Result {
    let show = |value: &FlowintValue| match value {
        FlowintValue::Number(number) => number.to_string(),
        FlowintValue::Name(name) => name.clone(),
    };
    let (sign, value) = match operation {
        FlowintOperation::IsSet => return write!(f, "flowint:{name},isset; "),
        FlowintOperation::IsNotSet => return write!(f, "flowint:{name},isnotset; "),
        FlowintOperation::Set(value) => ("=", value),
        FlowintOperation::Add(value) => ("+", value),
        FlowintOperation::Subtract(value) => ("-", value),
        FlowintOperation::Test(test, value) => (
            match test {
                FlowintTest::Less => "<",
                FlowintTest::AtMost => "<=",
                FlowintTest::Greater => ">",
                FlowintTest::AtLeast => ">=",
                FlowintTest::Equal => "==",
                FlowintTest::NotEqual => "!=",
            },
            value,
        ),
    };
    write!(f, "flowint:{name},{sign},{}; ", show(value))
}

fn xbit(f: &mut Formatter<'_>, bit: &Xbit) -> fmt::Result {
    let operation = match bit.operation {
        XbitOperation::IsSet => "isset",
        XbitOperation::IsNotSet => "isnotset",
        XbitOperation::Set => "set",
        XbitOperation::Unset => "unset",
        XbitOperation::Toggle => "toggle",
    };
    let track = match bit.track {
        XbitTrack::Source => "ip_src",
        XbitTrack::Destination => "ip_dst",
        XbitTrack::Pair => "ip_pair",
        XbitTrack::Transaction => "tx",
    };
    write!(f, "xbits:{operation},{},track {track}", bit.name)?;
    match bit.expire_seconds {
        DEFAULT_XBIT_SECONDS => f.write_str("; "),
        seconds => write!(f, ",expire {seconds}; "),
    }
}

fn limits(f: &mut Formatter<'_>, rule: &Rule) -> fmt::Result {
    let by = |track| match track {
        TrackBy::Source => "by_src",
        TrackBy::Destination => "by_dst",
        TrackBy::Both => "by_both",
        TrackBy::Rule => "by_rule",
        TrackBy::Flow => "by_flow",
    };
    if let Some(Threshold { kind, track, count }) = rule.threshold {
        let (word, unit, number) = match kind {
            ThresholdKind::Limit { seconds } => ("limit", "seconds", seconds),
            ThresholdKind::Each { seconds } => ("threshold", "seconds", seconds),
            ThresholdKind::Once { seconds } => ("both", "seconds", seconds),
            ThresholdKind::Backoff { multiplier } => ("backoff", "multiplier", multiplier),
        };
        write!(f, "threshold:type {word}, track {}, count {count}, {unit} {number}; ", by(track))?;
    }
    if let Some(DetectionFilter { track, count, seconds, unique_on }) = rule.detection_filter {
        write!(f, "detection_filter:track {}, count {count}, seconds {seconds}", by(track))?;
        f.write_str(match unique_on {
            None => "; ",
            Some(UniqueOn::SourcePort) => ", unique_on src_port; ",
            Some(UniqueOn::DestinationPort) => ", unique_on dst_port; ",
        })?;
    }
    for TagOption { scope, count, unit } in &rule.tags {
        let (scope, side) = match scope {
            TagScope::Session => ("session", ""),
            TagScope::Source => ("host", ",src"),
            TagScope::Destination => ("host", ",dst"),
        };
        let unit = match unit {
            TagUnit::Packets => "packets",
            TagUnit::Bytes => "bytes",
            TagUnit::Seconds => "seconds",
        };
        write!(f, "tag:{scope},{count},{unit}{side}; ")?;
    }
    Ok(())
}

fn meta(f: &mut Formatter<'_>, rule: &Rule) -> fmt::Result {
    match (rule.alerts, rule.action == RuleAction::Pass) {
        (false, false) => f.write_str("noalert; ")?,
        (true, true) => f.write_str("alert; ")?,
        _ => {}
    }
    for reference in &rule.references {
        write!(f, "reference:{},{}; ", reference.system, Escaped(&reference.id))?;
    }
    if let Some(class) = &rule.classtype {
        write!(f, "classtype:{class}; ")?;
    }
    write!(f, "priority:{}; ", rule.priority)?;
    if let Some(target) = rule.target {
        f.write_str(match target {
            AttackTarget::Source => "target:src_ip; ",
            AttackTarget::Destination => "target:dest_ip; ",
        })?;
    }
    for (place, (key, value)) in rule.metadata.iter().enumerate() {
        let start = if place == 0 { "metadata:" } else { ", " };
        let space = if value.is_empty() { "" } else { " " };
        write!(f, "{start}{}{space}{}", Escaped(key), Escaped(value))?;
    }
    if !rule.metadata.is_empty() {
        f.write_str("; ")?;
    }
    if rule.gid != DEFAULT_GID {
        write!(f, "gid:{}; ", rule.gid)?;
    }
    write!(f, "sid:{}; rev:{};)", rule.sid, rule.rev)
}

fn not(negated: bool) -> &'static str {
    if negated { "!" } else { "" }
}

fn join<T: Display>(values: &[T], before: &str, between: &str) -> String {
    values.iter().map(|value| format!("{before}{value}")).collect::<Vec<_>>().join(between)
}
