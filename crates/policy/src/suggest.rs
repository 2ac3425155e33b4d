//! Help for unknown words: "did you mean" the nearest known one, or a list of them.

/// Limit on the known words that a suggestion lists.
const LISTED_MAX: usize = 8;

/// Returns help for an unknown word: the nearest of the known ones, or if none is near, a list of
/// them; `None` if none is known.
pub(crate) fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(near) = similar(word, known.clone()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let mut listed: Vec<String> = known.take(LISTED_MAX + 1).map(|known| format!("`{known}`")).collect();
    if let Some(last) = listed.get_mut(LISTED_MAX) {
        "...".clone_into(last);
    }
    (!listed.is_empty()).then(|| format!("there are: {}", listed.join(", ")))
}

/// Returns the candidate that a typing error could have turned into `word`; the first of several
/// equally near ones.
pub fn similar<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // One error in three characters. Words longer than names can be are not worth the comparison.
    let most = (word.chars().count() / 3).max(1);
    candidates
        .filter(|c| c.len().abs_diff(word.len()) <= most && c.len() <= crate::token::NAME_BYTES_MAX)
        .map(|c| (strsim::damerau_levenshtein(&word.to_lowercase(), &c.to_lowercase()), c))
        .filter(|(distance, c)| *distance <= most && *distance < c.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}
