//! Roles in certificates: a key for one role is useless in another.

use std::fmt;
use std::str::FromStr;

use crate::wire::Role;

/// The scheme of the URI that gives a certificate its role: `rivulet://CLUSTER/ROLE/NAME`.
pub const SCHEME: &str = "rivulet://";
/// Length of the longest name of a node or cluster, in bytes, as for a common name (RFC 5280, A.1).
pub const NAME_LEN_MAX: usize = 64;

/// The role that a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CertifiedRole {
    /// Processes packets.
    Unit,
    /// Receives packets, and assigns them to units.
    Dispatcher,
    /// Keeps units as processes of its host.
    Manager,
    /// Uses the control API.
    Operator,
    /// Reads through the control API, but changes nothing.
    Viewer,
    /// An etcd server, which is no node.
    Etcd,
    /// Reserved.
    Logger,
    /// Reserved.
    Tenant,
}

impl CertifiedRole {
    /// All roles.
    pub const ALL: [CertifiedRole; 8] = [
        CertifiedRole::Unit,
        CertifiedRole::Dispatcher,
        CertifiedRole::Manager,
        CertifiedRole::Operator,
        CertifiedRole::Viewer,
        CertifiedRole::Etcd,
        CertifiedRole::Logger,
        CertifiedRole::Tenant,
    ];

    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            CertifiedRole::Unit => "unit",
            CertifiedRole::Dispatcher => "dispatcher",
            CertifiedRole::Manager => "manager",
            CertifiedRole::Operator => "operator",
            CertifiedRole::Viewer => "viewer",
            CertifiedRole::Etcd => "etcd",
            CertifiedRole::Logger => "logger",
            CertifiedRole::Tenant => "tenant",
        }
    }

    /// Returns true if certificates of this role are issued.
    pub fn is_issued(self) -> bool {
        !matches!(self, CertifiedRole::Logger | CertifiedRole::Tenant)
    }
}

impl fmt::Display for CertifiedRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Role> for CertifiedRole {
    fn from(role: Role) -> CertifiedRole {
        match role {
            Role::Unit => CertifiedRole::Unit,
            Role::Dispatcher => CertifiedRole::Dispatcher,
        }
    }
}

impl FromStr for CertifiedRole {
    type Err = String;

    fn from_str(text: &str) -> Result<CertifiedRole, String> {
        CertifiedRole::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| {
            let names = CertifiedRole::ALL.into_iter().filter(|role| role.is_issued());
            let names: Vec<_> = names.map(CertifiedRole::name).collect();
            format!("`{text}` is no role; expected one of {}", names.join(", "))
        })
    }
}

/// The holder of a certificate to be issued, as text `ROLE:NAME=HOST,...`. A name that begins with
/// a role, such as `unit-1`, needs no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The role.
    pub role: CertifiedRole,
    /// The name.
    pub name: String,
    /// Names of hosts and IP addresses that clients connect to.
    pub hosts: Vec<String>,
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Subject, String> {
        let (holder, hosts) = text.split_once('=').unwrap_or((text, ""));
        let hosts = hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
        let (role, name) = match holder.split_once(':') {
            Some((role, name)) => (role.parse()?, name),
            None => {
                check_name(holder)?;
                (role_of(holder)?, holder)
            }
        };
        check_name(name)?;
        if !role.is_issued() {
            return Err(format!("the role `{role}` is reserved for later versions"));
        }
        Ok(Subject { role, name: name.to_owned(), hosts })
    }
}

/// Checks that a text is a valid name of a node or cluster.
///
/// # Errors
/// With the expectation, if it is not.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_plain) && !name.contains("..") {
        true => Ok(()),
        false => Err(format!(
            "`{name}` is not a valid name of a node: expected up to {NAME_LEN_MAX} letters, digits, hyphens and dots"
        )),
    }
}

/// Returns the role that a name begins with.
fn role_of(name: &str) -> Result<CertifiedRole, String> {
    let begins = |role: &CertifiedRole| {
        let rest = name.strip_prefix(role.name());
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphabetic()))
    };
    CertifiedRole::ALL
        .into_iter()
        .find(begins)
        .ok_or_else(|| format!("the role of `{name}` is missing; expected ROLE:NAME, such as unit:{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_a_role_a_name_and_hosts() {
        let parse = |text: &str| {
            text.parse().map(|Subject { role, name, hosts }| format!("{role} {name} {}", hosts.join(" ")))
        };
        for (text, expected) in [
            ("unit:u1", "unit u1 "),
            ("unit-1", "unit unit-1 "),
            ("dispatcher", "dispatcher dispatcher "),
            ("dispatcher=10.0.0.1,a.example", "dispatcher dispatcher 10.0.0.1 a.example"),
            ("operator:jane", "operator jane "),
            ("etcd-1=2001:db8::1", "etcd etcd-1 2001:db8::1"),
            ("viewer2", "viewer viewer2 "),
            ("unit:dispatcher", "unit dispatcher "),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected));
        }
        for (text, expected) in [
            ("u1", "such as unit:u1"),
            ("units", "the role of `units` is missing"),
            ("boss:u1", "one of unit, dispatcher, manager, operator, viewer, etcd"),
            ("tenant:a", "reserved"),
            ("logger-1", "reserved"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
