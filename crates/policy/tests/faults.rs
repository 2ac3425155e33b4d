//! All faults of a policy in one pass: those of names, and those of each configuration.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside the tests themselves")]

use policy::{CONFIG_FAULTS_MAX, DIAGNOSTICS_MAX, Diagnostic, DiagnosticSeverity, Policy};
use serde::Deserialize;
use values::Nanos;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only whether it can be read matters")]
struct Nat {
    external: Vec<String>,
    idle: Option<Nanos>,
    flows: Option<u16>,
    side: Option<Side>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only whether it can be read matters")]
struct Side {
    port: u16,
    host: Option<String>,
}

fn partial(text: &str) -> Policy {
    Policy::read_partial("test", text, &mut |_| Err("there is no such file".to_owned())).unwrap()
}

/// Returns the faults of the first NF.
fn faults(policy: &Policy) -> Vec<Diagnostic> {
    let config = &policy.nfs[0].config;
    let read = |value: &_| policy.config::<Nat>(value).map(drop).map_err(|fault| *fault);
    read(config).map_or_else(|first| policy.config_faults(config, first, read), |()| Vec::new())
}

fn lines(policy: &Policy, faults: &[Diagnostic]) -> Vec<String> {
    faults.iter().map(|fault| fault.line(&policy.report.sources)).collect()
}

/// A policy with this NAT between two ports.
fn with(config: &str) -> Policy {
    partial(&format!("Port<0> a; Port<1> b;\nNAT n {{ {config} }};\npipelet {{ a <-> n <-> b; }}"))
}

#[test]
fn all_keys_and_values_at_fault_are_found() {
    let policy = with("external: [x], idel: 30s, flows: 70000, side: { prot: 1, port: no }, what: 1");
    let found = lines(&policy, &faults(&policy));
    let columns: Vec<_> = found.iter().map(|line| line.split(':').nth(2).unwrap()).collect();
    assert_eq!(columns, ["24", "42", "57", "72", "78"], "{found:#?}");
    assert!(found[0].ends_with("did you mean `idle`?"), "{found:#?}");
}

#[test]
fn absent_keys_are_faults_only_if_none_was_removed() {
    let policy = with("idle: 30s");
    assert!(lines(&policy, &faults(&policy))[0].contains("external"));
    let policy = with("extrenal: [x]");
    let found = lines(&policy, &faults(&policy));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].ends_with("did you mean `external`?"), "{found:#?}");
    // In a nested object, too.
    let policy = with("external: [x], side: { prot: 1 }");
    assert_eq!(faults(&policy).len(), 1);
}

#[test]
fn faults_of_one_configuration_are_bounded() {
    let keys: String = (0..100).map(|n| format!("key{n}: 1, ")).collect();
    let policy = with(&format!("external: [x], {keys}"));
    assert_eq!(faults(&policy).len(), CONFIG_FAULTS_MAX);
}

#[test]
fn a_policy_with_unknown_names_reports_its_configurations_too() {
    let policy =
        partial("Port<0> a; Port<1> b;\nNAT n { external: $exits, idel: 30s };\npipelet { a <-> n <-> c; }");
    assert!(policy.report.has_errors());
    let found = faults(&policy);
    let report = policy.refuse(found).to_string();
    assert_eq!(
        report,
        "test:2:19: error: unknown value `exits`\n\
         test:2:27: error: unknown key `idel`; did you mean `idle`?\n\
         test:3:23: error: unknown port or NF `c`; there are: `a`, `b`, `n`, `Drop`\n"
    );
}

#[test]
fn a_full_report_omits_warnings_first_and_keeps_the_order() {
    let policy = partial("Port<0> a; Port<1> b; pipelet { a <-> b; }");
    let span = |at: u32| policy::Span { start: at, end: at + 1, ..policy.ports[0].span };
    let (mut report, max) = (policy.report.clone(), DIAGNOSTICS_MAX as u32);
    report.extend((0..max).map(|at| Diagnostic::warning("odd", span(at))));
    report.extend((0..3).rev().map(|at| Diagnostic::error("wrong", span(at))));
    let errors = report.diagnostics.iter().filter(|of| of.severity == DiagnosticSeverity::Error);
    assert_eq!((report.diagnostics.len(), report.omitted, errors.count()), (DIAGNOSTICS_MAX, 3, 3));
    assert!(report.diagnostics.is_sorted_by_key(Diagnostic::position));
}
