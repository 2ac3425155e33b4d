//! Names of new network functions.

use std::fmt;
use std::str::FromStr;

/// A name that can be a Rust module's and a function type's in policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

/// The longest name.
const LENGTH_MAX: usize = 40;

/// Words that cannot name a module or a function type, or that the workspace's own crates and files
/// use.
const TAKEN: [&str; 56] = [
    "abstract",
    "and",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "chain",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "functions",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "nf",
    "not",
    "or",
    "override",
    "packet",
    "parse",
    "pipelet",
    "priv",
    "pub",
    "ref",
    "return",
    "self",
    "settings",
    "static",
    "std",
    "struct",
    "super",
    "trait",
    "true",
    "type",
    "use",
    "where",
];

/// A text cannot be such a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAName {
    /// It has other characters, or begins with another.
    #[error("expected lower-case letters, digits and `_`, a letter first{}", .0.as_ref().map_or(String::new(), |better| format!("; `{better}` would do")))]
    Form(Option<String>),
    /// It is too long.
    #[error("at most {LENGTH_MAX} characters")]
    Length,
    /// It means something else.
    #[error("it means something else in Rust, in policies or in the workspace")]
    Taken,
}

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Name, NotAName> {
        if !is_name(text) {
            let better = text.to_ascii_lowercase().replace(['-', ' '], "_");
            return Err(NotAName::Form(is_name(&better).then_some(better)));
        }
        if text.len() > LENGTH_MAX {
            return Err(NotAName::Length);
        }
        if TAKEN.contains(&text)
            || ["try", "unsafe", "virtual", "while", "yield", "port", "drop"].contains(&text)
        {
            return Err(NotAName::Taken);
        }
        Ok(Name(text.to_owned()))
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !text.ends_with('_')
        && !text.contains("__")
}

impl Name {
    /// The name as it is.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the Rust type: `flow_limit` is `FlowLimit`.
    pub fn type_name(&self) -> String {
        let mut name = String::new();
        for word in self.0.split('_') {
            let (first, rest) = word.split_at(1); // No word is empty, and all is ASCII.
            name += &first.to_ascii_uppercase();
            name += rest;
        }
        name
    }

    /// A template with the name put into it.
    pub fn fill_in(&self, template: &str) -> String {
        template.replace("{{name}}", &self.0).replace("{{Type}}", &self.type_name())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_modules_and_types() {
        let name: Name = "flow_limit2".parse().unwrap();
        assert_eq!(name.type_name(), "FlowLimit2");
        assert_eq!(name.fill_in("{{name}}::{{Type}}"), "flow_limit2::FlowLimit2");
    }

    #[test]
    fn what_is_no_name_is_refused_with_a_better_one_if_there_is_one() {
        let wrong = |text: &str| text.parse::<Name>().unwrap_err();
        assert_eq!(wrong("Flow-Limit"), NotAName::Form(Some("flow_limit".to_owned())));
        assert!(wrong("Flow-Limit").to_string().ends_with("`flow_limit` would do"));
        for text in ["", "2x", "_x", "x_", "a__b", "é", "a/b", "../x", "a.b"] {
            assert_eq!(wrong(text), NotAName::Form(None), "{text}");
        }
        for text in ["match", "while", "settings", "drop", "nf"] {
            assert_eq!(wrong(text), NotAName::Taken, "{text}");
        }
        assert_eq!(wrong(&"x".repeat(41)), NotAName::Length);
    }
}
