//! Keywords about the rate of alerts.

use crate::RuleError;
use crate::limit::*;
use crate::reader::{Draft, KeywordUse};
use crate::text::{ParseResult, Piece};

/// Maximum tags of a rule.
const TAGS_MAX: usize = 16;

pub(crate) fn threshold(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    let options = options(given, &["type", "track", "count", "seconds", "multiplier"])?;
    exclude(draft, given, "detection_filter")?;
    let track = track(options[1], given)?;
    let count = needed(options[2], given, "a `count`")?.number(1..=u32::MAX)?;
    let seconds = || needed(options[3], given, "`seconds`")?.number(1..=u32::MAX);
    let kind = needed(options[0], given, "a `type`")?;
    let kind = match kind.text {
        "limit" => ThresholdKind::Limit { seconds: seconds()? },
        "threshold" => ThresholdKind::Each { seconds: seconds()? },
        "both" => ThresholdKind::Once { seconds: seconds()? },
        "backoff" if track == TrackBy::Flow => ThresholdKind::Backoff {
            multiplier: needed(options[4], given, "a `multiplier`")?.number(2..=u32::MAX)?,
        },
        "backoff" => return Err(given.value.wrong("`track by_flow` with `type backoff`")),
        _ => return Err(kind.wrong("`limit`, `threshold`, `both` or `backoff`")),
    };
    let extra = if matches!(kind, ThresholdKind::Backoff { .. }) { options[3] } else { options[4] };
    if let Some(extra) = extra {
        return Err(extra.wrong("`seconds`, or with `type backoff` a `multiplier`, and not both"));
    }
    draft.rule.threshold = Some(Threshold { kind, track, count });
    Ok(())
}

pub(crate) fn detection_filter(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    exclude(draft, given, "threshold")?;
    let options = options(given, &["track", "count", "seconds", "unique_on"])?;
    let unique = [("src_port", UniqueOn::SourcePort), ("dst_port", UniqueOn::DestinationPort)];
    draft.rule.detection_filter = Some(DetectionFilter {
        track: track(options[0], given)?,
        count: needed(options[1], given, "a `count`")?.number(1..=u32::MAX)?,
        seconds: needed(options[2], given, "`seconds`")?.number(1..=u32::MAX)?,
        unique_on: options[3].map(|on| on.one_of(&unique)).transpose()?,
    });
    Ok(())
}

pub(crate) fn tag(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    if draft.rule.tags.len() == TAGS_MAX {
        return Err(given.word.error(RuleError::TooMany { what: "tags in a rule", limit: TAGS_MAX }));
    }
    let parts: Vec<_> = given.value.split(',').collect();
    let (scope, amount, side) = match parts[..] {
        [scope] => (scope, None, None),
        [scope, count, unit] => (scope, Some((count, unit)), None),
        [scope, count, unit, side] => (scope, Some((count, unit)), Some(side)),
        _ => return Err(given.value.wrong("`scope` or `scope,count,unit` or `host,count,unit,side`")),
    };
    let scope = match (scope.text, side) {
        ("session", None) => TagScope::Session,
        ("session", Some(side)) => return Err(side.wrong("no side with `session`")),
        ("host", None) => TagScope::Destination,
        ("host", Some(side)) => side.one_of(&[("src", TagScope::Source), ("dst", TagScope::Destination)])?,
        _ => return Err(scope.wrong("`session` or `host`")),
    };
    let units = [("packets", TagUnit::Packets), ("bytes", TagUnit::Bytes), ("seconds", TagUnit::Seconds)];
    let (count, unit) = match amount {
        Some((count, unit)) => (count.number(1..=u32::MAX)?, unit.one_of(&units)?),
        None => (DEFAULT_TAG_PACKETS, TagUnit::Packets),
    };
    draft.rule.tags.push(TagOption { scope, count, unit });
    Ok(())
}

/// Parses options `name value, ...` in the order of the names.
fn options<'a, const N: usize>(
    given: KeywordUse<'a>,
    names: &[&str; N],
) -> ParseResult<[Option<Piece<'a>>; N]> {
    let mut values = [None; N];
    for option in given.value.split(',') {
        let words: Vec<_> = option.words().collect();
        let ([name, value], Some(place)) =
            (&words[..], words.first().and_then(|word| names.iter().position(|known| *known == word.text)))
        else {
            return Err(option.wrong(format!("one of `{}`, each with a value", names.join("`, `"))));
        };
        if values[place].replace(*value).is_some() {
            return Err(name.wrong("each option once"));
        }
    }
    Ok(values)
}

fn needed<'a>(value: Option<Piece<'a>>, given: KeywordUse<'a>, what: &str) -> ParseResult<Piece<'a>> {
    value.ok_or_else(|| given.value.wrong(format!("{what} too")))
}

fn track(value: Option<Piece<'_>>, given: KeywordUse<'_>) -> ParseResult<TrackBy> {
    needed(value, given, "a `track`")?.one_of(&[
        ("by_src", TrackBy::Source),
        ("by_dst", TrackBy::Destination),
        ("by_both", TrackBy::Both),
        ("by_rule", TrackBy::Rule),
        ("by_flow", TrackBy::Flow),
    ])
}

fn exclude(draft: &Draft<'_>, given: KeywordUse<'_>, other: &'static str) -> ParseResult<()> {
    match draft.has(other) {
        true => Err(given.word.error(RuleError::Conflict { one: given.name, other })),
        false => Ok(()),
    }
}
