//! What a loaded rule has, in the words of [`Reader`](super::reader::Reader).

use signatures::*;

use super::Slot;
use super::reader::Said;

/// What the rule has of what the text says about the rule itself. What it has without being told is
/// left out.
pub fn meta_of(rule: &Rule, said: &[String]) -> Vec<String> {
    let mut meta = vec![
        format!("msg {}", rule.msg),
        format!("sid {}", rule.sid),
        format!("gid {}", rule.gid),
        format!("rev {}", rule.rev),
        format!("priority {}", rule.priority),
    ];
    meta.retain(|one| {
        let (name, _) = one.split_once(' ').unwrap();
        let is_said = said.iter().any(|said| said.split(' ').next() == Some(name));
        assert!(is_said || name == "priority" || ["msg ", "gid 1", "rev 0"].contains(&&one[..]), "{one}");
        is_said
    });
    meta.extend(rule.classtype.iter().map(|class| format!("classtype {class}")));
    meta.extend(rule.target.map(|target| match target {
        Target::Source => "target src_ip".to_owned(),
        Target::Destination => "target dest_ip".to_owned(),
    }));
    meta.extend(rule.references.iter().map(|one| format!("reference {} {}", one.system, one.id)));
    meta.extend(rule.metadata.iter().map(|(key, value)| format!("metadata {key} {value}")));
    let to_server = |said: &[String]| said.iter().any(|said| said == "flow from_client");
    let to_client = |said: &[String]| said.iter().any(|said| said == "flow from_server");
    let flow = &rule.flow;
    let words = [
        flow.direction.map(|way| match way {
            Way::ToServer => {
                if to_server(said) {
                    "from_client"
                } else {
                    "to_server"
                }
            }
            Way::ToClient => {
                if to_client(said) {
                    "from_server"
                } else {
                    "to_client"
                }
            }
        }),
        flow.state.map(|state| match state {
            State::Established => "established",
            State::NotEstablished => "not_established",
            State::Stateless => "stateless",
        }),
        flow.stream.map(|only| if only == Only::Assembled { "only_stream" } else { "no_stream" }),
        flow.fragments.map(|only| if only == Only::Assembled { "only_frag" } else { "no_frag" }),
    ];
    meta.extend(words.into_iter().flatten().map(|word| format!("flow {word}")));
    meta.extend(rule.packet.iter().map(|test| format!("packet {test:?}")));
    meta.extend(rule.flowints.iter().map(|one| format!("flowint {} {:?}", one.name, one.operation)));
    meta.extend(
        rule.xbits.iter().map(|one| {
            format!("xbit {:?} {} {:?} {}", one.operation, one.name, one.track, one.expire_seconds)
        }),
    );
    meta.extend(rule.threshold.map(|one| format!("threshold {:?} {:?} {}", one.kind, one.track, one.count)));
    meta.extend(rule.detection_filter.map(|one| {
        format!("detection_filter {:?} {} {} {:?}", one.track, one.count, one.seconds, one.unique_on)
    }));
    meta.extend(rule.tags.iter().map(|one| format!("tag {:?} {} {:?}", one.scope, one.count, one.unit)));
    meta.extend(rule.flowbits.iter().map(|bit| {
        let (operation, names) = match bit {
            Flowbit::IsSet(names) => ("isset", names),
            Flowbit::IsNotSet(names) => ("isnotset", names),
            Flowbit::Set(names) => ("set", names),
            Flowbit::Unset(names) => ("unset", names),
            Flowbit::Toggle(names) => ("toggle", names),
        };
        format!("flowbits {operation} {names:?}")
    }));
    meta
}

/// What the rule asks of a buffer, with its place in the rule.
pub fn slot_of(rule: &Rule, buffer: &BufferMatches) -> Slot {
    let steps = buffer.transforms.iter().map(step_of).collect();
    (buffer.buffer.name(), steps, buffer.matches.iter().map(|one| match_of(rule, one)).collect())
}

/// The content to search for first, with the name of its buffer.
pub fn fast_pattern_of(rule: &Rule) -> Option<(&'static str, String)> {
    let (buffer, at) = rule.fast_pattern()?;
    let buffer = &rule.buffers[buffer];
    Some((buffer.buffer.name(), match_of(rule, &buffer.matches[at])))
}

fn step_of(step: &Transform) -> String {
    let name = match step {
        Transform::DotPrefix => "dotprefix",
        Transform::StripWhitespace => "strip_whitespace",
        Transform::CompressWhitespace => "compress_whitespace",
        Transform::ToLowercase => "to_lowercase",
        Transform::ToUppercase => "to_uppercase",
        Transform::ToMd5 => "to_md5",
        Transform::ToSha1 => "to_sha1",
        Transform::ToSha256 => "to_sha256",
        Transform::UrlDecode => "url_decode",
        Transform::HeaderLowercase => "header_lowercase",
        Transform::StripPseudoHeaders => "strip_pseudo_headers",
        Transform::Xor { offset, key } => return format!("xor {offset} {key:02x?}"),
        Transform::Pcre { pattern } => return format!("pcrexform {pattern}"),
        Transform::FromBase64 { bytes, offset, mode } => {
            return format!("from_base64 {bytes:?} {offset} {mode:?}");
        }
        _ => "another",
    };
    name.to_owned()
}

fn match_of(rule: &Rule, one: &Match) -> String {
    fn value<N: ToString + Copy>(rule: &Rule, operand: Operand<N>) -> String {
        match operand {
            Operand::Value(number) => number.to_string(),
            Operand::Variable(Variable(index)) => rule.variables[usize::from(index)].clone(),
        }
    }
    let number = |number: &Number| (value(rule, number.bytes), value(rule, number.offset), number.relative);
    let name = |variable: Variable| &rule.variables[usize::from(variable.0)];
    match one {
        Match::Content(content) => {
            let mut said = Said {
                negated: content.negated,
                bytes: content.pattern.clone(),
                nocase: content.nocase,
                ends: content.ends,
                ..Said::default()
            };
            match content.position {
                Position::Absolute { offset, depth } => {
                    said.offset = Some(value(rule, offset));
                    said.depth = depth.map(|depth| value(rule, depth));
                }
                Position::Relative { distance, within } => {
                    said.distance = Some(value(rule, distance));
                    said.within = within.map(|within| value(rule, within));
                }
            }
            said.fast = content.fast_pattern.map(|fast| match fast {
                FastPattern::Whole => String::new(),
                FastPattern::Only => "only".to_owned(),
                FastPattern::Part { offset, length } => format!("{offset},{length}"),
            });
            said.show()
        }
        Match::Pcre(pcre) => format!("pcre {} {} {}", pcre.negated, pcre.pattern, pcre.relative),
        Match::DataAt(at) => format!("isdataat {} {} {}", at.negated, value(rule, at.offset), at.relative),
        Match::Size(size) => format!("size {size:?}"),
        Match::ByteTest(test) => {
            let (bytes, offset, relative) = number(&test.number);
            let sign = match test.operator {
                TestOperator::Less => "<",
                TestOperator::AtMost => "<=",
                TestOperator::Greater => ">",
                TestOperator::AtLeast => ">=",
                TestOperator::Equal => "=",
                TestOperator::And => "&",
                TestOperator::Xor => "^",
            };
            format!(
                "byte_test {bytes} {} {sign} {} {offset} {relative}",
                test.negated,
                value(rule, test.value)
            )
        }
        Match::ByteJump(jump) => {
            let (bytes, offset, relative) = number(&jump.number);
            let post = value(rule, jump.post_offset);
            format!("byte_jump {bytes} {offset} {} {post} {relative}", jump.multiplier)
        }
        Match::ByteExtract(extract) => {
            let (bytes, offset, relative) = number(&extract.number);
            format!(
                "byte_extract {bytes} {offset} {} {} {relative}",
                name(extract.result),
                extract.multiplier
            )
        }
        Match::ByteMath(math) => {
            let (bytes, offset, relative) = number(&math.number);
            format!("byte_math {bytes} {offset} {} {} {relative}", value(rule, math.value), name(math.result))
        }
        Match::Base64Decode(decode) => {
            let bytes = decode.bytes.map(|bytes| bytes.to_string());
            format!("base64_decode {bytes:?} {} {}", decode.offset, decode.relative)
        }
        Match::Absent { or_else } => format!("absent {or_else}"),
        _ => "another".to_owned(),
    }
}
