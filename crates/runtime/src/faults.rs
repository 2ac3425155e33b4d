//! Reads configurations, and reports all faults of each.

use nf::stage::{LoadError, Stage};
use nf::{MakeError, Registry, Setup};
use policy::{DIAGNOSTICS_MAX, Diagnostic, Nf, Policy, Value, similar};
use serde::de::DeserializeOwned;

/// Reads a configuration, and adds all its faults to `wrong`.
pub(crate) fn read<T: DeserializeOwned>(
    policy: &Policy,
    value: &Value,
    wrong: &mut Vec<Diagnostic>,
) -> Option<T> {
    let read = |value: &Value| policy.config::<T>(value).map_err(|fault| *fault);
    let first = match read(value) {
        Ok(config) => return Some(config),
        Err(first) => first,
    };
    wrong.extend(policy.config_faults(value, first, |rest| read(rest).map(|_| ())));
    None
}

/// Makes an NF.
///
/// # Errors
/// All faults of its configuration, or its unknown type.
pub(crate) fn make(
    policy: &Policy,
    registry: &Registry<Value>,
    instance: &Nf,
    setup: impl Fn() -> Setup,
) -> Result<Box<dyn Stage>, Vec<Diagnostic>> {
    let Some(entry) = registry.find(&instance.type_name) else {
        return Err(vec![unknown_type(registry, instance)]);
    };
    let span = instance.config.span;
    let make = |config: &Value| match entry.make(config, setup()) {
        Ok(stage) => Ok(stage),
        Err(MakeError::Form(fault)) => Err(policy.fault(fault, span)),
        Err(MakeError::Load(LoadError::Config(error))) => Err(policy.diagnose(&error, span)),
        Err(MakeError::Load(error)) => Err(Diagnostic::error(error, instance.span)),
    };
    make(&instance.config)
        .map_err(|first| policy.config_faults(&instance.config, first, |rest| make(rest).map(drop)))
}

/// Sorts faults by position, and limits their number.
pub(crate) fn in_order(mut faults: Vec<Diagnostic>) -> Vec<Diagnostic> {
    faults.sort_by_key(Diagnostic::position);
    faults.truncate(DIAGNOSTICS_MAX);
    faults
}

fn unknown_type(registry: &Registry<Value>, instance: &Nf) -> Diagnostic {
    let descriptors = || registry.entries().iter().map(|entry| entry.descriptor);
    let names = descriptors().flat_map(|of| of.aliases.iter().copied().chain([of.name]));
    let help = match similar(&instance.type_name, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are: {}", descriptors().map(|of| of.name).collect::<Vec<_>>().join(", ")),
    };
    let message = format!("there is no network function `{}`", instance.type_name);
    Diagnostic::error(message, instance.type_span).help(help)
}
