//! Keywords about flows, and about the state that rules keep.

use crate::RuleError;
use crate::flow::*;
use crate::number::Comparison;
use crate::packet::PacketTest;
use crate::reader::{Draft, KeywordUse};
use crate::text::{ParseResult, Piece};

/// Maximum bytes of a bit's name.
const NAME_BYTES_MAX: usize = 256;
/// Maximum names in one `flowbits`.
const NAMES_MAX: usize = 100;
/// Maximum tests and changes of bits, of each kind, in a rule.
const MARKS_MAX: usize = 64;

pub(crate) fn flow(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    let flow = &mut draft.rule.flow;
    for option in given.value.split(',') {
        match option.text {
            "to_server" | "from_client" => set(&mut flow.direction, FlowDirection::ToServer, option)?,
            "to_client" | "from_server" => set(&mut flow.direction, FlowDirection::ToClient, option)?,
            "established" => set(&mut flow.state, FlowState::Established, option)?,
            "not_established" => set(&mut flow.state, FlowState::NotEstablished, option)?,
            "stateless" => set(&mut flow.state, FlowState::Stateless, option)?,
            "only_stream" => set(&mut flow.stream, ReassemblyFilter::Assembled, option)?,
            "no_stream" => set(&mut flow.stream, ReassemblyFilter::Plain, option)?,
            "only_frag" => set(&mut flow.fragments, ReassemblyFilter::Assembled, option)?,
            "no_frag" => set(&mut flow.fragments, ReassemblyFilter::Plain, option)?,
            _ => {
                return Err(option.wrong(
                    "`to_server`, `to_client`, `from_server`, `from_client`, `established`, `not_established`, \
                     `stateless`, `only_stream`, `no_stream`, `only_frag` or `no_frag`",
                ));
            }
        }
    }
    Ok(())
}

fn set<T>(field: &mut Option<T>, value: T, option: Piece<'_>) -> ParseResult<()> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(option.wrong("an option that does not repeat or contradict one before it")),
    }
}

pub(crate) fn flowbits(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    if given.value.text == "noalert" {
        draft.rule.alerts = false;
        return Ok(());
    }
    let (operation, names) = parts(given.value);
    let make: fn(Vec<String>) -> Flowbit = operation.one_of(&[
        ("isset", Flowbit::IsSet as fn(Vec<String>) -> Flowbit),
        ("isnotset", Flowbit::IsNotSet),
        ("set", Flowbit::Set),
        ("unset", Flowbit::Unset),
        ("toggle", Flowbit::Toggle),
    ])?;
    let mut list = Vec::new();
    for one in names.split('|').filter(|one| !one.is_empty()) {
        if list.len() == NAMES_MAX {
            return Err(one.error(RuleError::TooMany { what: "names", limit: NAMES_MAX }));
        }
        list.push(name(one)?);
    }
    if list.is_empty() {
        return Err(names.wrong("the name of a mark"));
    }
    room(draft.rule.flowbits.len(), given)?;
    draft.rule.flowbits.push(make(list));
    Ok(())
}

pub(crate) fn xbits(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let parts: Vec<_> = given.value.split(',').collect();
    let (operation, bit, rest) = match &parts[..] {
        [operation, bit, rest @ ..] if !rest.is_empty() => (operation, bit, rest),
        _ => return Err(given.value.wrong("`operation,name,track ip_src`")),
    };
    let mut track = None;
    let mut expire_seconds = DEFAULT_XBIT_SECONDS;
    for option in rest {
        let words: Vec<_> = option.words().collect();
        match &words[..] {
            [word, whose] if word.text == "track" => {
                track = Some(whose.one_of(&[
                    ("ip_src", XbitTrack::Source),
                    ("ip_dst", XbitTrack::Destination),
                    ("ip_pair", XbitTrack::Pair),
                    ("tx", XbitTrack::Transaction),
                ])?);
            }
            [word, seconds] if word.text == "expire" => expire_seconds = seconds.number(1..=u32::MAX)?,
            _ => {
                return Err(
                    option.wrong("`track ip_src`, `track ip_dst`, `track ip_pair`, `track tx` or `expire N`")
                );
            }
        }
    }
    let Some(track) = track else { return Err(given.value.wrong("a `track`")) };
    room(draft.rule.xbits.len(), given)?;
    let xbit = Xbit { operation: xbit_operation(*operation)?, name: name(*bit)?, track, expire_seconds };
    draft.rule.xbits.push(xbit);
    Ok(())
}

/// Parses `hostbits:set,name,src`: an older spelling of `xbits`, always of one address.
pub(crate) fn hostbits(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    if given.value.text == "noalert" {
        draft.rule.alerts = false;
        return Ok(());
    }
    let (operation, rest) = parts(given.value);
    let (bit, whose) = parts(rest);
    let track = match whose.is_empty() {
        true => XbitTrack::Source,
        false => whose.one_of(&[("src", XbitTrack::Source), ("dst", XbitTrack::Destination)])?,
    };
    room(draft.rule.xbits.len(), given)?;
    draft.rule.xbits.push(Xbit {
        operation: xbit_operation(operation)?,
        name: name(bit)?,
        track,
        expire_seconds: DEFAULT_XBIT_SECONDS,
    });
    Ok(())
}

fn xbit_operation(word: Piece<'_>) -> ParseResult<XbitOperation> {
    word.one_of(&[
        ("set", XbitOperation::Set),
        ("unset", XbitOperation::Unset),
        ("isset", XbitOperation::IsSet),
        ("isnotset", XbitOperation::IsNotSet),
        ("toggle", XbitOperation::Toggle),
    ])
}

pub(crate) fn flowint(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (number, rest) = parts(given.value);
    let (sign, value) = parts(rest);
    let tests = [
        ("<", FlowintTest::Less),
        ("<=", FlowintTest::AtMost),
        (">", FlowintTest::Greater),
        (">=", FlowintTest::AtLeast),
        ("==", FlowintTest::Equal),
        ("!=", FlowintTest::NotEqual),
    ];
    let operation = match sign.text {
        "isset" => FlowintOperation::IsSet,
        "isnotset" | "notset" => FlowintOperation::IsNotSet,
        "=" => FlowintOperation::Set(flowint_value(value)?),
        "+" => FlowintOperation::Add(flowint_value(value)?),
        "-" => FlowintOperation::Subtract(flowint_value(value)?),
        _ => FlowintOperation::Test(
            sign.one_of(&tests).map_err(|_| {
                sign.wrong("`isset`, `isnotset`, `=`, `+`, `-`, `<`, `<=`, `>`, `>=`, `==` or `!=`")
            })?,
            flowint_value(value)?,
        ),
    };
    room(draft.rule.flowints.len(), given)?;
    draft.rule.flowints.push(Flowint { name: name(number)?, operation });
    Ok(())
}

fn flowint_value(piece: Piece<'_>) -> ParseResult<FlowintValue> {
    match piece.text.chars().next() {
        Some(first) if first.is_ascii_digit() => piece.number(0..=u32::MAX).map(FlowintValue::Number),
        // As in Suricata, so that no sign is taken for a name.
        Some(first) if first.is_ascii_alphabetic() => name(piece).map(FlowintValue::Name),
        _ => Err(piece.wrong("a number, or a name that begins with a letter")),
    }
}

pub(crate) fn stream_size(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (side, rest) = parts(given.value);
    let (sign, bytes) = parts(rest);
    let side = side.one_of(&[
        ("client", StreamSide::Client),
        ("server", StreamSide::Server),
        ("both", StreamSide::Both),
        ("either", StreamSide::Either),
    ])?;
    let make: fn(u32) -> Comparison<u32> = sign.one_of(&[
        ("=", Comparison::Equal as fn(u32) -> Comparison<u32>),
        ("!=", Comparison::NotEqual),
        ("!", Comparison::NotEqual),
        ("<", Comparison::Less),
        ("<=", Comparison::AtMost),
        (">", Comparison::Greater),
        (">=", Comparison::AtLeast),
    ])?;
    let bytes = make(bytes.number(0..=u32::MAX)?);
    draft.packet(given, PacketTest::StreamSize(StreamSize { side, bytes }))
}

/// Splits at the first comma.
fn parts(piece: Piece<'_>) -> (Piece<'_>, Piece<'_>) {
    let (first, rest) = piece.cut(",").unwrap_or((piece, piece.from(piece.text.len())));
    (first.trim(), rest.trim())
}

fn name(piece: Piece<'_>) -> ParseResult<String> {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, ',' | '|' | ';' | '"' | '\\');
    match !piece.is_empty() && piece.text.len() <= NAME_BYTES_MAX && piece.text.chars().all(plain) {
        true => Ok(piece.text.to_owned()),
        false => Err(piece.wrong("the name of a mark, without spaces, `,`, `|`, `;`, `\"` and `\\`")),
    }
}

fn room(taken: usize, given: KeywordUse<'_>) -> ParseResult<()> {
    match taken < MARKS_MAX {
        true => Ok(()),
        false => {
            Err(given.word.error(RuleError::TooMany { what: "marks of a kind in a rule", limit: MARKS_MAX }))
        }
    }
}
