//! The names of a rule's options, found by an independent machine of three states.

/// Returns the names between the first `(` and the last `)`, with their byte offsets; `None` if an
/// option does not end in `;`.
pub fn names(rule: &str) -> Option<Vec<(usize, &str)>> {
    enum State {
        Name,
        Value,
        Escaped,
    }
    let end = rule.trim_end().strip_suffix(')')?.len();
    let start = rule.find('(')? + 1;
    let (mut state, mut from, mut name) = (State::Name, start, None);
    let mut names = Vec::new();
    for (at, byte) in rule.bytes().enumerate().take(end).skip(start) {
        state = match (state, byte) {
            (State::Escaped, _) => State::Value,
            (State::Name, b':' | b';') => {
                let blank = rule[from..at].len() - rule[from..at].trim_start().len();
                name = Some((from + blank, rule[from..at].trim()));
                State::Value
            }
            (State::Name, _) => State::Name,
            (State::Value, b'\\') => State::Escaped,
            (State::Value, _) => State::Value,
        };
        if byte == b';' && matches!(state, State::Value) && !escaped(&rule[..at]) {
            names.extend(name.take());
            (state, from) = (State::Name, at + 1);
        }
    }
    rule.get(from..end)?.trim().is_empty().then_some(names)
}

/// Returns whether the text ends with an odd number of `\`.
fn escaped(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}
