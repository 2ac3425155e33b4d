//! "Did you mean": the known word nearest to an unknown one.

/// Returns the candidate that a typing error could have turned into `word`; the first of several
/// equally near ones.
pub(crate) fn similar<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // One error in three characters. Words longer than names can be are not worth the comparison.
    let most = (word.chars().count() / 3).max(1);
    candidates
        .filter(|c| c.len().abs_diff(word.len()) <= most && c.len() <= crate::token::NAME_BYTES_MAX)
        .map(|c| (strsim::damerau_levenshtein(&word.to_lowercase(), &c.to_lowercase()), c))
        .filter(|(distance, c)| *distance <= most && *distance < c.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}
