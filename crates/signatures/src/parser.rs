//! Parsing of a rule: its header, then its options by the table of keywords.

use crate::classification::Classifications;
use crate::keyword::{self, ArgumentKind, Keyword, KeywordStatus};
use crate::reader::{Draft, KeywordUse, Reader, header, split};
use crate::text::{ParseResult, Piece, SyntaxError};
use crate::variables::RuleVariables;
use crate::{Rule, RuleAction, RuleError};

/// A rule that could not be parsed: the error, and the parts that were read.
pub(crate) struct RejectedRule {
    pub wrong: SyntaxError,
    pub sid: Option<u32>,
    pub keyword: Option<String>,
}

/// Parses a rule.
pub(crate) fn rule(
    text: Piece<'_>,
    variables: &RuleVariables,
    classes: &Classifications,
) -> Result<Rule, RejectedRule> {
    let refused = |wrong| RejectedRule { wrong, sid: sid(text), keyword: None };
    let (header, body) = split::halves(text).map_err(refused)?;
    let header = header::read(header, variables).map_err(refused)?;
    let mut draft = Draft::new(header, classes);
    for option in split::options(body) {
        let (word, value) = option.map_err(refused)?;
        let named = |wrong| RejectedRule { wrong, sid: sid(text), keyword: Some(word.text.to_owned()) };
        let Some(keyword) = keyword::keyword(word.text) else {
            let similar = keyword::similar(word.text);
            return Err(named(
                word.error(RuleError::UnknownKeyword { keyword: word.text.to_owned(), similar }),
            ));
        };
        option_of(&mut draft, keyword, word, value).map_err(named)?;
    }
    draft.finish(text).map_err(refused)
}

fn option_of(
    draft: &mut Draft<'_>,
    keyword: &'static Keyword,
    word: Piece<'_>,
    value: Piece<'_>,
) -> ParseResult<()> {
    let name = keyword.name;
    if let KeywordStatus::Unsupported(reason) = keyword.status {
        return Err(word.error(RuleError::UnsupportedKeyword { keyword: name, reason }));
    }
    match keyword.takes {
        ArgumentKind::Nothing if !value.is_empty() => {
            return Err(value.error(RuleError::UnexpectedArgument { keyword: name }));
        }
        ArgumentKind::Argument if value.is_empty() => {
            return Err(word.error(RuleError::NoArgument { keyword: name }));
        }
        _ => {}
    }
    let given = KeywordUse { name, word, value };
    match keyword.reader {
        Reader::Function(read) => read(draft, given),
        Reader::Sticky(buffer) => draft.choose(buffer, given),
        Reader::Modifier(buffer) => draft.move_content(buffer, given),
        Reader::None => Ok(()),
    }
}

/// Returns the action of a rule that cannot be parsed, if it can be read.
pub(crate) fn action(text: Piece<'_>) -> Option<RuleAction> {
    header::action(text.words().next()?).ok()
}

/// Returns the sid of a rule that cannot be parsed, if it can be found.
fn sid(text: Piece<'_>) -> Option<u32> {
    let (_, body) = split::halves(text).ok()?;
    let is_sid = |(word, _): &(Piece<'_>, Piece<'_>)| word.text.eq_ignore_ascii_case("sid");
    let (_, value) = split::options(body).flatten().find(is_sid)?;
    value.number(1..=u32::MAX).ok()
}
