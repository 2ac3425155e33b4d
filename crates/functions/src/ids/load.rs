//! Loading of rules from texts: the supported rules, and the problems of the others.

use std::fmt;

use signatures::inspect::Inspection;
use signatures::{
    Application, Buffer, Capability, Classifications, LoadedRule, RejectTarget, RuleAction, RuleError,
    RuleFault, RuleTransport, RuleVariables, Ruleset, Thresholds,
};
use values::{ConfigError, Located, Position};

use super::flowbits::{FLOWBITS_MAX, FlowbitNames};
use super::inspection_point::{InspectionPoints, rank};
use super::signature::Signature;

/// The loaded rules, and the problems found.
pub struct LoadedRules {
    /// Rules in the order of inspection.
    pub(super) signatures: Vec<(Signature, InspectionPoints, LoadedRule)>,
    /// Rejected rules, rules that are loaded in part, and faults of the other files, in the order
    /// of the files.
    pub problems: Vec<RuleProblem>,
}

/// The reason why a rule is rejected or applied only in part, or the fault in a line of another
/// file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RuleProblem {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// The rule's sid, if it could be read.
    pub sid: Option<u32>,
    /// The problem.
    pub what: String,
    /// True if the rule is valid but unsupported.
    pub is_unsupported: bool,
    /// True if the rule is loaded anyway, without the unsupported part.
    pub is_loaded: bool,
    /// True if it is a rule that drops or rejects.
    pub blocks: bool,
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if let Some(sid) = self.sid {
            write!(f, "sid {sid}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl From<&RuleProblem> for ConfigError {
    fn from(problem: &RuleProblem) -> ConfigError {
        let sid = problem.sid.map_or(String::new(), |sid| format!("sid {sid}: "));
        ConfigError {
            position: Some(Position {
                source: Some(problem.file.as_str().into()),
                line: problem.line,
                column: problem.column,
            }),
            width: 1,
            message: sid + &problem.what,
        }
    }
}

/// The texts to load rules from.
#[derive(Default)]
pub struct RuleSources<'a> {
    /// Rules.
    pub rules: &'a [Located],
    /// Definitions of variables.
    pub variables: Option<&'a Located>,
    /// Classifications.
    pub classification: Option<&'a Located>,
    /// The text of a `threshold.config`.
    pub thresholds: Option<&'a Located>,
    /// Prefixes of `HOME_NET`.
    pub home: &'a [String],
}

impl LoadedRules {
    /// Loads rules. A rule is loaded whole, or rejected and reported.
    pub fn read(sources: &RuleSources<'_>) -> LoadedRules {
        let mut problems = Vec::new();
        let mut add = |faults: Vec<RuleFault>, text: &Located| {
            problems.extend(faults.iter().map(|fault| problem(fault, text)))
        };
        let none = Located::default();
        let given = sources.variables.unwrap_or(&none);
        // After the other definitions, because the last one counts and line numbers must not
        // change.
        let text = match sources.home {
            [] => given.to_string(),
            home => format!("{}\nHOME_NET = [{}]\n", given.as_str(), home.join(", ")),
        };
        let (variables, faults) = RuleVariables::read(&name(given, "variables"), &text);
        add(faults, given);
        let given = sources.classification.unwrap_or(&none);
        let (classes, faults) = Classifications::read(&name(given, "classification"), given);
        add(faults, given);
        let mut report = signatures::RulesetReport::default();
        for (number, text) in sources.rules.iter().enumerate() {
            let read =
                Ruleset::read(&name(text, &format!("rules {}", number + 1)), text, &variables, &classes);
            add(read.faults.clone(), text);
            report.append(signatures::RulesetReport { faults: Vec::new(), ..read });
        }
        add(std::mem::take(&mut report.faults), &none);
        let mut loaded = report.ruleset.into_rules();
        // A stable sort: equal ranks keep the order of the files.
        loaded.sort_by_key(rank);
        let given = sources.thresholds.unwrap_or(&none);
        let (thresholds, faults) = Thresholds::read(&name(given, "thresholds"), given, &variables);
        add(faults, given);
        for limit in thresholds.iter().filter(|limit| limit.is_of_one()) {
            if !loaded.iter().any(|one| limit.is_about(one.rule.gid, one.rule.sid)) {
                let first = given.origin().map_or(1, |origin| origin.line);
                problems.push(RuleProblem {
                    file: limit.place.file.to_string(),
                    line: limit.place.line + first - 1,
                    column: 1,
                    sid: Some(limit.sid),
                    what: format!("no rule has gen_id {} and sig_id {}", limit.gid, limit.sid),
                    is_unsupported: false,
                    is_loaded: false,
                    blocks: false,
                });
            }
        }
        let mut names = FlowbitNames::default();
        let mut signatures = Vec::new();
        for one in loaded {
            let ready = ready(&one, &classes, &mut names);
            let what = match (&ready, one.rule.action) {
                (Err(what), _) => Some(what.clone()),
                (Ok(_), RuleAction::Reject(RejectTarget::Destination | RejectTarget::Both)) => {
                    Some("as `reject`: answers go to senders alone".to_owned())
                }
                (Ok(_), _) if !one.rule.tags.is_empty() => {
                    Some("without `tag`: packets after a match are not recorded".to_owned())
                }
                (Ok(_), _) => None,
            };
            problems.extend(what.map(|what| RuleProblem {
                file: one.place.file.to_string(),
                line: one.place.line,
                column: 1,
                sid: Some(one.rule.sid),
                what,
                is_unsupported: true,
                is_loaded: ready.is_ok(),
                blocks: is_blocking(one.rule.action),
            }));
            if let Ok((mut signature, points)) = ready {
                signature.limit(&thresholds);
                signatures.push((signature, points, one));
            }
        }
        problems.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        LoadedRules { signatures, problems }
    }

    /// Returns the number of loaded rules.
    pub fn len(&self) -> usize {
        self.signatures.len()
    }

    /// Returns whether no rule was loaded.
    pub fn is_empty(&self) -> bool {
        self.signatures.is_empty()
    }
}

/// Returns the name of a text in messages.
fn name(text: &Located, otherwise: &str) -> String {
    text.origin().map_or_else(|| otherwise.to_owned(), |origin| origin.source.clone())
}

fn problem(fault: &RuleFault, text: &Located) -> RuleProblem {
    // A text within a policy begins in one of its lines.
    let first = text.origin().map_or(1, |origin| origin.line);
    RuleProblem {
        file: fault.place.file.to_string(),
        line: fault.place.line + first - 1,
        column: fault.column,
        sid: fault.sid,
        what: fault.error.to_string(),
        is_unsupported: matches!(
            fault.error,
            RuleError::UnsupportedKeyword { .. } | RuleError::Unsupported { .. }
        ),
        is_loaded: false,
        blocks: fault.action.is_some_and(is_blocking),
    }
}

fn is_blocking(action: RuleAction) -> bool {
    matches!(action, RuleAction::Drop | RuleAction::Reject(_))
}

fn ready(
    loaded: &LoadedRule,
    classes: &Classifications,
    names: &mut FlowbitNames,
) -> Result<(Signature, InspectionPoints), String> {
    let rule = &loaded.rule;
    if let Some(missing) = rule.needs().into_iter().find(|need| !is_supported(need)) {
        return Err(match missing {
            Capability::Keyword(keyword) => format!("keyword `{keyword}` is not supported"),
            Capability::Buffer(buffer) => format!("buffer `{buffer}` is not supported"),
            Capability::Application(application) => format!("protocol `{application}` is not supported"),
            Capability::Transport(transport) => format!("protocol `{transport}` is not supported"),
            Capability::Expression(feature) => format!("`pcre`: {feature} is not supported"),
            other => format!("{other:?} is not supported"),
        });
    }
    let points = InspectionPoints::of(rule).map_err(|none| none.to_string())?;
    let inspection = Inspection::new(rule).map_err(|unsupported| unsupported.to_string())?;
    match Signature::new(loaded, inspection, classes, names) {
        Some(signature) => Ok((signature, points)),
        None => Err(format!("more than {FLOWBITS_MAX} different `flowbits` in all rules")),
    }
}

fn is_supported(need: &Capability) -> bool {
    use Buffer as B;
    match *need {
        Capability::Transport(transport) => transport != RuleTransport::Sctp,
        Capability::Application(application) => matches!(
            application,
            Application::Http
                | Application::Http1
                | Application::Tls
                | Application::Ssh
                | Application::Ftp
                | Application::Smtp
                | Application::Smb
                | Application::Dns
        ),
        Capability::Buffer(buffer) => match buffer {
            B::DnsResponseName | B::Ja4Hash => false,
            B::Ja3Hash | B::Ja3String | B::Ja3sHash | B::Ja3sString => true,
            B::FileMagic | B::FileName => false,
            B::TlsRandom | B::TlsRandomTime | B::TlsRandomBytes | B::TlsCertificates => true,
            B::Payload | B::Base64Data | B::FileData | B::EthernetHeader | B::Ipv4Header | B::Ipv6Header => {
                true
            }
            B::TcpHeader | B::UdpHeader | B::Icmpv4Header | B::Icmpv6Header => true,
            B::SshProtocol | B::SshSoftware => true,
            other => ["http.", "dns.", "tls."].iter().any(|family| other.name().starts_with(family)),
        },
        Capability::Expression(feature) => feature.backtracks(),
        Capability::Keyword(keyword) => !UNSUPPORTED.contains(&keyword),
        _ => false,
    }
}

/// Unsupported keywords of tests and actions. For buffers and their contents, see
/// [`Inspection::new`].
const UNSUPPORTED: &[&str] =
    &["app-layer-event", "filesize", "flowint", "ftpdata_command", "tls.version", "xbits"];
