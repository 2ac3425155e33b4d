//! Keywords about the rule itself.

use crate::RuleError;
use crate::reader::{Draft, KeywordUse, unescape};
use crate::rule::{AttackTarget, RuleReference};
use crate::text::ParseResult;

/// Maximum references of a rule, and maximum entries of its metadata.
const ENTRIES_MAX: usize = 256;

pub(crate) fn msg(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    draft.rule.msg = unescape(given.unquoted()?);
    Ok(())
}

pub(crate) fn sid(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    draft.rule.sid = given.value.number(1..=u32::MAX)?;
    Ok(())
}

pub(crate) fn gid(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    draft.rule.gid = given.value.number(0..=u32::MAX)?;
    Ok(())
}

pub(crate) fn rev(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    draft.rule.rev = given.value.number(0..=u32::MAX)?;
    Ok(())
}

pub(crate) fn classtype(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    let class = draft.classes.get(given.value.text);
    if class.is_none() && draft.classes.iter().next().is_some() {
        return Err(given.value.error(RuleError::UnknownClass { name: given.value.text.to_owned() }));
    }
    if let Some(class) = class
        && !draft.has("priority")
    {
        draft.rule.priority = class.priority;
    }
    let name = class.map_or(given.value.text, |class| &class.name);
    draft.rule.classtype = Some(name.to_owned());
    Ok(())
}

pub(crate) fn priority(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    draft.rule.priority = given.value.number(1..=u8::MAX)?;
    Ok(())
}

pub(crate) fn reference(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    if draft.rule.references.len() == ENTRIES_MAX {
        return Err(given.word.error(RuleError::TooMany { what: "references", limit: ENTRIES_MAX }));
    }
    let (system, id) =
        given.value.cut(",").unwrap_or((given.value, given.value.from(given.value.text.len())));
    let (system, id) = (system.trim(), id.trim());
    let is_name = system.text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if id.is_empty() || system.is_empty() || !is_name {
        return Err(given.value.wrong("`system,identifier`, such as `cve,2014-0160`"));
    }
    draft.rule.references.push(RuleReference { system: system.text.to_ascii_lowercase(), id: unescape(id) });
    Ok(())
}

pub(crate) fn metadata(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    for entry in given.value.split(',').filter(|entry| !entry.is_empty()) {
        if draft.rule.metadata.len() == ENTRIES_MAX {
            return Err(entry.error(RuleError::TooMany { what: "entries of metadata", limit: ENTRIES_MAX }));
        }
        let (key, value) = match entry.text.split_once(char::is_whitespace) {
            Some((key, _)) => (entry.part(0, key.len()), entry.from(key.len()).trim()),
            None => (entry, entry.from(entry.text.len())),
        };
        draft.rule.metadata.push((unescape(key), unescape(value)));
    }
    Ok(())
}

pub(crate) fn target(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    let target =
        given.value.one_of(&[("src_ip", AttackTarget::Source), ("dest_ip", AttackTarget::Destination)])?;
    draft.rule.target = Some(target);
    Ok(())
}

pub(crate) fn noalert(draft: &mut Draft<'_>, _: KeywordUse<'_>) -> ParseResult<()> {
    draft.rule.alerts = false;
    Ok(())
}

pub(crate) fn alert(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    draft.rule.alerts = true;
    Ok(())
}
