//! All faults of a configuration, not only the first one.

use crate::diagnostic::{Diagnostic, DiagnosticSeverity, Diagnostics};
use crate::policy::Policy;
use crate::source::Span;
use crate::value::{Value, ValueKind};

/// Limit on the faults reported of one configuration.
pub const CONFIG_FAULTS_MAX: usize = 16;
/// Limit on the reads of one configuration to find them.
const READS_MAX: usize = 2 * CONFIG_FAULTS_MAX;

impl Policy {
    /// Returns the report of a policy that cannot be used, with these faults of its configurations.
    /// A fault at the position of an error of the report is its consequence, and is left out.
    pub fn refuse(mut self, mut faults: Vec<Diagnostic>) -> Box<Diagnostics> {
        let errors = self.report.diagnostics.iter().filter(|d| d.severity == DiagnosticSeverity::Error);
        let known: Vec<Span> = errors.filter_map(Diagnostic::position).collect();
        faults
            .retain(|fault| fault.position().is_none_or(|at| !known.iter().any(|known| known.overlaps(at))));
        self.report.extend(faults);
        Box::new(self.report)
    }

    /// Returns all faults of a configuration of this policy; `first` is known. A reader
    /// stops at its first fault, so this removes the key at fault and calls `read` again, until the
    /// rest is right, a fault is in no key, or there are [`CONFIG_FAULTS_MAX`].
    ///
    /// A later fault is left out if it may follow from a removed key, as "missing field" does.
    pub fn config_faults(
        &self,
        config: &Value,
        first: Diagnostic,
        mut read: impl FnMut(&Value) -> Result<(), Diagnostic>,
    ) -> Vec<Diagnostic> {
        let (mut rest, mut removed) = (config.clone(), Vec::new());
        let mut at = first.position();
        let mut faults = vec![first];
        for _ in 0..READS_MAX {
            let Some(key) = at.and_then(|at| remove(&mut rest, at)) else { break };
            removed.push(key);
            let Err(fault) = read(&rest) else { break };
            at = fault.position();
            let may_follow =
                at.is_none_or(|at| at == config.span || removed.iter().any(|key| at.contains(*key)));
            if !may_follow {
                faults.push(fault);
            }
            if faults.len() == CONFIG_FAULTS_MAX {
                break;
            }
        }
        faults
    }
}

/// Removes the innermost entry that contains a position, and returns the position of its key.
fn remove(value: &mut Value, at: Span) -> Option<Span> {
    match &mut value.kind {
        ValueKind::List(values) => values.iter_mut().find_map(|value| remove(value, at)),
        ValueKind::Object(entries) => {
            if let Some(key) = entries.iter_mut().find_map(|entry| remove(&mut entry.value, at)) {
                return Some(key);
            }
            let is_at = |span: Span| span.contains(at);
            let found = entries.iter().position(|entry| is_at(entry.key_span) || is_at(entry.value.span))?;
            Some(entries.remove(found).key_span)
        }
        _ => None,
    }
}
