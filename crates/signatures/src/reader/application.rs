//! Keywords about the application protocol.

use crate::number::Comparison;
use crate::protocol::{Application, FtpDataCommand, ProtocolMode, ProtocolTest, TlsState, TlsVersion};
use crate::reader::{Draft, KeywordUse};
use crate::text::{ParseResult, Piece};

pub(crate) fn protocol(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let mut parts = given.value.split(',');
    let first = parts.next().unwrap_or(given.value);
    let mode = parts.next().map(|mode| mode.one_of(&ProtocolMode::NAMES)).transpose()?;
    if let Some(extra) = parts.next() {
        return Err(extra.wrong("one mode at most"));
    }
    let (negated, names) = first.negation();
    let protocols = list(names, &['|'], Application::by_name, "a protocol, `failed` or `unknown`")?;
    if negated && protocols.contains(&Application::Unknown) {
        return Err(names.wrong("a protocol that is known: `!` holds only for those"));
    }
    add(draft, ProtocolTest::Is { negated, protocols, mode: mode.unwrap_or_default() })
}

pub(crate) fn event(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let name = given.value.text;
    match name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')) {
        true => add(draft, ProtocolTest::Event(name.to_owned())),
        false => Err(given.value.wrong("the name of an event, such as `http.gzip_decompression_failed`")),
    }
}

pub(crate) fn ssl_version(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (negated, names) = negated_list(given.value, &[','])?;
    let versions = list(names, &[','], TlsVersion::by_name, "a version, such as `sslv3` or `tls1.2`")?;
    add(draft, ProtocolTest::SslVersion { negated, versions })
}

pub(crate) fn ssl_state(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (negated, names) = negated_list(given.value, &[',', '|'])?;
    let expected = "`client_hello`, `server_hello`, `client_keyx`, `server_keyx` or `unknown`";
    let states = list(names, &[',', '|'], TlsState::by_name, expected)?;
    add(draft, ProtocolTest::SslState { negated, states })
}

pub(crate) fn tls_version(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let version = given.unquoted()?;
    match TlsVersion::by_name(version.text) {
        Some(version) => add(draft, ProtocolTest::TlsVersion(version)),
        None => Err(version.wrong("a version, such as `1.2`")),
    }
}

pub(crate) fn dns_opcode(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    add(draft, ProtocolTest::DnsOpcode(Comparison::read(given.value)?))
}

pub(crate) fn dns_rcode(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    add(draft, ProtocolTest::DnsRcode(Comparison::read(given.value)?))
}

pub(crate) fn dns_rrtype(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    add(draft, ProtocolTest::DnsType(Comparison::read(given.value)?))
}

pub(crate) fn ftpbounce(draft: &mut Draft<'_>, _: KeywordUse<'_>) -> ParseResult<()> {
    add(draft, ProtocolTest::FtpBounce)
}

pub(crate) fn ftpdata_command(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    match FtpDataCommand::by_name(given.value.text) {
        Some(command) => add(draft, ProtocolTest::FtpDataCommand(command)),
        None => Err(given.value.wrong("`stor`, `appe`, `stou`, `retr`, `nlst`, `list` or `mlsd`")),
    }
}

pub(crate) fn filesize(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    add(draft, ProtocolTest::FileSize(Comparison::read(given.value)?))
}

fn add(draft: &mut Draft<'_>, test: ProtocolTest) -> ParseResult<()> {
    draft.rule.application.push(test);
    Ok(())
}

/// Parses a list. Its elements must all have a `!`, or none.
fn negated_list<'a>(piece: Piece<'a>, separators: &'static [char]) -> ParseResult<(bool, Piece<'a>)> {
    let signs: Vec<bool> =
        piece.text.split(separators).map(|one| one.trim_start().starts_with('!')).collect();
    match signs.iter().any(|sign| *sign != signs[0]) {
        true => Err(piece.wrong("`!` before all of them or before none")),
        false => Ok((signs[0], piece)),
    }
}

/// Parses names between separators, each optionally with a `!`.
fn list<T: PartialEq>(
    piece: Piece<'_>,
    separators: &[char],
    find: fn(&str) -> Option<T>,
    expected: &str,
) -> ParseResult<Vec<T>> {
    let mut values = Vec::new();
    for name in piece.text.split(separators) {
        let name = name.trim().trim_start_matches('!').trim();
        let value = find(name).filter(|value| !values.contains(value));
        values.push(value.ok_or_else(|| piece.wrong(format!("{expected}, each once")))?);
    }
    Ok(values)
}
