//! The parts of a loaded rule, in the notation of [`Reader`](super::reader::Reader).

use signatures::*;

use super::Slot;
use super::reader::Said;

/// Returns the rule's facts that its text states; defaults are left out.
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
        AttackTarget::Source => "target src_ip".to_owned(),
        AttackTarget::Destination => "target dest_ip".to_owned(),
    }));
    meta.extend(rule.references.iter().map(|one| format!("reference {} {}", one.system, one.id)));
    meta.extend(rule.metadata.iter().map(|(key, value)| format!("metadata {key} {value}")));
    let to_server = |said: &[String]| said.iter().any(|said| said == "flow from_client");
    let to_client = |said: &[String]| said.iter().any(|said| said == "flow from_server");
    let flow = &rule.flow;
    let words = [
        flow.direction.map(|way| match way {
            FlowDirection::ToServer => {
                if to_server(said) {
                    "from_client"
                } else {
                    "to_server"
                }
            }
            FlowDirection::ToClient => {
                if to_client(said) {
                    "from_server"
                } else {
                    "to_client"
                }
            }
        }),
        flow.state.map(|state| match state {
            FlowState::Established => "established",
            FlowState::NotEstablished => "not_established",
            FlowState::Stateless => "stateless",
        }),
        flow.stream.map(|only| if only == ReassemblyFilter::Assembled { "only_stream" } else { "no_stream" }),
        flow.fragments.map(|only| if only == ReassemblyFilter::Assembled { "only_frag" } else { "no_frag" }),
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

/// Returns the tests of a buffer, with its index in the rule.
pub fn slot_of(rule: &Rule, buffer: &BufferMatches) -> Slot {
    let steps = buffer.transforms.iter().map(step_of).collect();
    (buffer.buffer.name(), steps, buffer.matches.iter().map(|one| match_of(rule, one)).collect())
}

/// Returns the fast pattern, with the name of its buffer.
pub fn fast_pattern_of(rule: &Rule) -> Option<(&'static str, String)> {
    let (buffer, at) = rule.fast_pattern()?;
    let buffer = &rule.buffers[buffer];
    Some((buffer.buffer.name(), match_of(rule, &buffer.matches[at])))
}

fn step_of(step: &BufferTransform) -> String {
    let name = match step {
        BufferTransform::DotPrefix => "dotprefix",
        BufferTransform::StripWhitespace => "strip_whitespace",
        BufferTransform::CompressWhitespace => "compress_whitespace",
        BufferTransform::ToLowercase => "to_lowercase",
        BufferTransform::ToUppercase => "to_uppercase",
        BufferTransform::ToMd5 => "to_md5",
        BufferTransform::ToSha1 => "to_sha1",
        BufferTransform::ToSha256 => "to_sha256",
        BufferTransform::UrlDecode => "url_decode",
        BufferTransform::HeaderLowercase => "header_lowercase",
        BufferTransform::StripPseudoHeaders => "strip_pseudo_headers",
        BufferTransform::Xor { offset, key } => return format!("xor {offset} {key:02x?}"),
        BufferTransform::Pcre { pattern } => return format!("pcrexform {pattern}"),
        BufferTransform::FromBase64 { bytes, offset, mode } => {
            return format!("from_base64 {bytes:?} {offset} {mode:?}");
        }
        _ => "another",
    };
    name.to_owned()
}

fn match_of(rule: &Rule, one: &PayloadMatch) -> String {
    fn value<N: ToString + Copy>(rule: &Rule, operand: Operand<N>) -> String {
        match operand {
            Operand::Value(number) => number.to_string(),
            Operand::Variable(ByteVariable(index)) => rule.variables[usize::from(index)].clone(),
        }
    }
    let number =
        |number: &NumberField| (value(rule, number.bytes), value(rule, number.offset), number.relative);
    let name = |variable: ByteVariable| &rule.variables[usize::from(variable.0)];
    match one {
        PayloadMatch::Content(content) => {
            let mut said = Said {
                negated: content.negated,
                bytes: content.pattern.clone(),
                nocase: content.nocase,
                ends: content.ends,
                ..Said::default()
            };
            match content.position {
                ContentPosition::Absolute { offset, depth } => {
                    said.offset = Some(value(rule, offset));
                    said.depth = depth.map(|depth| value(rule, depth));
                }
                ContentPosition::Relative { distance, within } => {
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
        PayloadMatch::Pcre(pcre) => format!("pcre {} {} {}", pcre.negated, pcre.pattern, pcre.relative),
        PayloadMatch::DataAt(at) => {
            format!("isdataat {} {} {}", at.negated, value(rule, at.offset), at.relative)
        }
        PayloadMatch::Size(size) => format!("size {size:?}"),
        PayloadMatch::ByteTest(test) => {
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
        PayloadMatch::ByteJump(jump) => {
            let (bytes, offset, relative) = number(&jump.number);
            let post = value(rule, jump.post_offset);
            format!("byte_jump {bytes} {offset} {} {post} {relative}", jump.multiplier)
        }
        PayloadMatch::ByteExtract(extract) => {
            let (bytes, offset, relative) = number(&extract.number);
            format!(
                "byte_extract {bytes} {offset} {} {} {relative}",
                name(extract.result),
                extract.multiplier
            )
        }
        PayloadMatch::ByteMath(math) => {
            let (bytes, offset, relative) = number(&math.number);
            format!("byte_math {bytes} {offset} {} {} {relative}", value(rule, math.value), name(math.result))
        }
        PayloadMatch::Base64Decode(decode) => {
            let bytes = decode.bytes.map(|bytes| bytes.to_string());
            format!("base64_decode {bytes:?} {} {}", decode.offset, decode.relative)
        }
        PayloadMatch::Absent { or_else } => format!("absent {or_else}"),
        _ => "another".to_owned(),
    }
}
