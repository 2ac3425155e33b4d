//! A command line as words, as a shell would read it without variables and patterns.

/// Splits a command line into words at spaces. `'...'` and `"..."` keep spaces, a backslash keeps
/// the next character except in `'...'`.
///
/// # Errors
/// If a quote is not closed.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(characters.next()),
            (_, Some(_)) => word.get_or_insert_default().push(character),
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            _ if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if let Some(open) = quote {
        return Err(format!("the quote {open} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        for (line, expected) in [
            ("squid -N  -f /etc/squid.conf", vec!["squid", "-N", "-f", "/etc/squid.conf"]),
            (r#"sh -c 'a "b" c' "d 'e'" """#, vec!["sh", "-c", "a \"b\" c", "d 'e'", ""]),
            (r#"a\ b "c\"d" 'e\f'"#, vec!["a b", "c\"d", "e\\f"]),
            ("  ", vec![]),
        ] {
            assert_eq!(split(line).unwrap(), expected, "{line}");
        }
        assert!(split("sh -c 'a").unwrap_err().contains("not closed"));
    }
}
