//! Operators' commands.

use nf::ControlError;

use super::Firewall;
use super::rule::FilterAction;

pub(super) enum Command {
    /// Sets the action for packets that no rule matches.
    Default(FilterAction),
    /// Enables or disables the rule with this index.
    Enable { rule: usize, is_enabled: bool },
}

impl Firewall {
    pub(super) fn parse_command(&self, command: &str) -> Result<Command, ControlError> {
        let words: Vec<&str> = command.split_whitespace().collect();
        Ok(match words.as_slice() {
            ["default", "allow"] => Command::Default(FilterAction::Allow),
            ["default", "deny"] => Command::Default(FilterAction::Deny),
            ["default", "reject"] => Command::Default(FilterAction::Reject),
            ["rule", name @ .., action @ ("enable" | "disable")] => {
                let rule = self.find_rule(&name.join(" "))?;
                Command::Enable { rule, is_enabled: *action == "enable" }
            }
            _ => return Err(misunderstood(command)),
        })
    }

    /// Returns the index of a rule, given its number from 1 or its name.
    fn find_rule(&self, name: &str) -> Result<usize, ControlError> {
        let name = name.trim_matches('"');
        match name.parse::<usize>() {
            Ok(number) => number.checked_sub(1).filter(|&index| index < self.rules.len()),
            Err(_) => self.rules.iter().position(|rule| *rule.name == *name),
        }
        .ok_or_else(|| {
            ControlError(format!(
                "unknown rule `{name}`: expected a name or a number from 1 to {}",
                self.rules.len()
            ))
        })
    }
}

fn misunderstood(command: &str) -> ControlError {
    ControlError(format!(
        "`{command}`: expected `default allow|deny|reject` or `rule NUMBER|NAME enable|disable`"
    ))
}
