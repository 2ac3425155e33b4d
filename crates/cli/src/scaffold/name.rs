//! Names of new network functions.

use std::fmt;
use std::str::FromStr;

/// A name that is valid for a Rust module and for a function type in policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

/// Maximum length of a name.
const LENGTH_MAX: usize = 40;

/// Words that are reserved in Rust or in policies, or that the workspace's crates and files use.
const TAKEN: [&str; 56] = [
    "abstract",
    "and",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
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
    "graph",
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

/// The reason why a text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has a wrong character; perhaps with a valid name like it.
    #[error("expected lower-case letters, digits and `_`, a letter first{}", .0.as_ref().map_or(String::new(), |better| format!("; try `{better}`")))]
    Form(Option<String>),
    /// It is too long.
    #[error("expected up to {LENGTH_MAX} characters")]
    Length,
    /// It is reserved.
    #[error("the name is reserved in Rust, in policies or in the workspace")]
    Taken,
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        if !is_name(text) {
            let better = text.to_ascii_lowercase().replace(['-', ' '], "_");
            return Err(NameError::Form(is_name(&better).then_some(better)));
        }
        if text.len() > LENGTH_MAX {
            return Err(NameError::Length);
        }
        if TAKEN.contains(&text)
            || ["try", "unsafe", "virtual", "while", "yield", "port", "drop"].contains(&text)
        {
            return Err(NameError::Taken);
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
    /// Returns the name as it is.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the Rust type: `FlowLimit` for `flow_limit`.
    pub fn type_name(&self) -> String {
        let mut name = String::new();
        for word in self.0.split('_') {
            let (first, rest) = word.split_at(1); // Words are non-empty ASCII.
            name += &first.to_ascii_uppercase();
            name += rest;
        }
        name
    }

    /// Fills the name into a template.
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
    fn a_name_gives_a_module_and_a_type() {
        let name: Name = "flow_limit2".parse().unwrap();
        assert_eq!(name.type_name(), "FlowLimit2");
        assert_eq!(name.fill_in("{{name}}::{{Type}}"), "flow_limit2::FlowLimit2");
    }

    #[test]
    fn invalid_names_are_refused_with_a_suggestion() {
        let wrong = |text: &str| text.parse::<Name>().unwrap_err();
        assert_eq!(wrong("Flow-Limit"), NameError::Form(Some("flow_limit".to_owned())));
        assert!(wrong("Flow-Limit").to_string().ends_with("try `flow_limit`"));
        for text in ["", "2x", "_x", "x_", "a__b", "é", "a/b", "../x", "a.b"] {
            assert_eq!(wrong(text), NameError::Form(None), "{text}");
        }
        for text in ["match", "while", "settings", "drop", "nf"] {
            assert_eq!(wrong(text), NameError::Taken, "{text}");
        }
        assert_eq!(wrong(&"x".repeat(41)), NameError::Length);
    }
}
