//! Scenarios as texts, put together key by key: what a row says of itself, anyone can give to
//! `rivulet sim`.

use std::collections::BTreeMap;
use std::fmt;

/// A scenario as text, under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScenarioText {
    /// Values as TOML, by section and key.
    sections: BTreeMap<&'static str, BTreeMap<&'static str, String>>,
}

/// A value of a scenario's key.
pub struct ScenarioValue(String);

impl From<&str> for ScenarioValue {
    fn from(text: &str) -> ScenarioValue {
        ScenarioValue(format!("{text:?}"))
    }
}

impl From<String> for ScenarioValue {
    fn from(text: String) -> ScenarioValue {
        ScenarioValue::from(text.as_str())
    }
}

impl From<u32> for ScenarioValue {
    fn from(number: u32) -> ScenarioValue {
        ScenarioValue(number.to_string())
    }
}

impl From<f64> for ScenarioValue {
    fn from(number: f64) -> ScenarioValue {
        ScenarioValue(format!("{number:?}"))
    }
}

/// A value that is TOML already, such as a list or a table.
pub fn toml(text: impl Into<String>) -> ScenarioValue {
    ScenarioValue(text.into())
}

impl ScenarioText {
    /// All defaults.
    pub fn new() -> ScenarioText {
        ScenarioText::default()
    }

    /// The same with this key; `key` is section and key, with a dot between them.
    pub fn with(mut self, key: &'static str, value: impl Into<ScenarioValue>) -> ScenarioText {
        let (section, key) = key.rsplit_once('.').unwrap_or(("", key));
        self.sections.entry(section).or_default().insert(key, value.into().0);
        self
    }

    /// The same without this key.
    pub fn without(mut self, key: &'static str) -> ScenarioText {
        let (section, key) = key.rsplit_once('.').unwrap_or(("", key));
        if let Some(keys) = self.sections.get_mut(section) {
            keys.remove(key);
        }
        self
    }
}

impl fmt::Display for ScenarioText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (section, keys) in self.sections.iter().filter(|(_, keys)| !keys.is_empty()) {
            writeln!(f, "[{section}]")?;
            for (key, value) in keys {
                writeln!(f, "{key} = {value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::Scenario;
    use sim::scenario::AssignmentMode;
    use values::Share;

    #[test]
    fn a_setup_is_a_scenario() {
        let setup = ScenarioText::new()
            .with("dispatcher.mode", "flow")
            .with("dispatcher.lambda", 0.75)
            .with("dispatcher.targets_count", 9)
            .with("workload.trace.curve", toml(r#"[["0s", "1Gbps"]]"#))
            .with("units.count", "4")
            .without("units.count");
        let text = setup.to_string();
        let scenario = Scenario::parse(&text).unwrap();
        assert_eq!(scenario.dispatcher.mode, AssignmentMode::Flow);
        assert_eq!(scenario.dispatcher.lambda, Share(0.75));
        assert_eq!(scenario.dispatcher.targets_count, 9);
        assert!(!text.contains("units"), "{text}");
    }
}
