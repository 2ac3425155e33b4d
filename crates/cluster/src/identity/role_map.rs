//! A file that maps subjects of certificates to roles, for an authority that has no notion of
//! roles, such as a company's.
//!
//! ```toml
//! cluster = "site"
//! [roles]
//! unit = ["unit-1.example", "unit-2.example"]
//! operator = ["Jane Doe"]
//! ```
//!
//! A subject is a certificate's host name, IP address, URI or common name. A role that a
//! certificate states itself takes precedence over the file.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::Path;

use rustls_pki_types::CertificateDer;
use serde::Deserialize;
use toml::Spanned;

use super::credential::{CertificateContent, Credential, CredentialError, parse_path};
use super::role::{CertifiedRole, SCHEME};

/// Length of the longest file of roles, in bytes.
pub const ROLES_LEN_MAX: u64 = 1 << 20;

/// A file of roles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleMap {
    cluster: Option<String>,
    roles: HashMap<String, CertifiedRole>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleFile {
    cluster: Option<String>,
    #[serde(default)]
    roles: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
}

/// A fault in a file of roles.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{place}: {reason}")]
pub struct RoleMapError {
    file: String,
    /// `:LINE`, if it is known.
    place: String,
    reason: String,
}

impl RoleMap {
    /// Reads a file; without a file, only certificates state roles.
    ///
    /// # Errors
    /// If it cannot be read, or a subject has two roles.
    pub fn read(path: &Path) -> Result<RoleMap, RoleMapError> {
        let file = path.display().to_string();
        let wrong = |reason: String| RoleMapError { file: file.clone(), place: String::new(), reason };
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(RoleMap::default()),
            Ok(data) if data.len() > ROLES_LEN_MAX => {
                return Err(wrong(format!("expected a file of up to {ROLES_LEN_MAX} bytes")));
            }
            _ => std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?,
        };
        RoleMap::parse(&text).map_err(|(at, reason)| {
            let line = |at: usize| text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
            let place = at.map_or_else(String::new, |at| format!(":{}", line(at)));
            RoleMapError { file, place, reason }
        })
    }

    /// Parses a text; errors have the position of their first byte.
    fn parse(text: &str) -> Result<RoleMap, (Option<usize>, String)> {
        let file: RoleFile = toml::from_str(text)
            .map_err(|error| (error.span().map(|span| span.start), error.message().to_owned()))?;
        let mut roles = HashMap::new();
        for (role, subjects) in file.roles {
            let at = |span: std::ops::Range<usize>| Some(span.start);
            let place = role.span();
            let role: CertifiedRole = role.get_ref().parse().map_err(|reason| (at(place), reason))?;
            for subject in subjects {
                let place = subject.span();
                let subject = subject.into_inner();
                if let Some(other) = roles.insert(subject.clone(), role).filter(|&other| other != role) {
                    return Err((
                        at(place),
                        format!("`{subject}` has the roles {other} and {role}; expected one"),
                    ));
                }
            }
        }
        Ok(RoleMap { cluster: file.cluster, roles })
    }

    /// Returns the holder of a certificate.
    ///
    /// # Errors
    /// If it has no role, or more than one.
    pub fn credential(&self, certificate: &CertificateDer<'_>) -> Result<Credential, CredentialError> {
        let content = CertificateContent::read(certificate).ok_or(CredentialError::Damaged)?;
        let mut own = content.uris.iter().filter_map(|uri| uri.strip_prefix(SCHEME));
        match (own.next(), own.next()) {
            (Some(_), Some(_)) => return Err(CredentialError::Several),
            (Some(path), None) => return parse_path(path),
            (None, _) => {}
        }
        let subjects = content.hosts.iter().chain(&content.uris).chain(&content.common_name);
        let mut roles = subjects.filter_map(|subject| self.roles.get(subject).copied());
        let Some(role) = roles.next() else {
            let name = content.common_name.or_else(|| content.hosts.first().cloned()).unwrap_or_default();
            return Err(CredentialError::NoRole(name));
        };
        match roles.all(|other| other == role) {
            true => Ok(Credential { cluster: self.cluster.clone(), role, name: None }),
            false => Err(CredentialError::Several),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test fails by panicking.

    use super::*;

    fn certificate(names: &[&str], uris: &[&str]) -> CertificateDer<'static> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        for uri in uris {
            let uri = rcgen::SanType::URI((*uri).try_into().unwrap());
            params.subject_alt_names.push(uri);
        }
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "Jane Doe");
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_role_is_in_the_certificate_or_in_the_file() {
        let map = RoleMap::parse(
            "cluster = \"site\"\n[roles]\nunit = [\"u1.example\"]\noperator = [\"Jane Doe\", \"spiffe://a/b\"]\n",
        )
        .unwrap();
        let role = |names: &[&str], uris: &[&str]| {
            let found = map.credential(&certificate(names, uris));
            found.map(|found| (found.cluster, found.role, found.name)).map_err(|error| error.to_string())
        };
        let site = Some("site".to_owned());
        assert_eq!(
            role(&["u1"], &["rivulet://other/unit/u1"]),
            Ok((Some("other".to_owned()), CertifiedRole::Unit, Some("u1".to_owned())))
        );
        assert_eq!(role(&["x"], &[]), Ok((site.clone(), CertifiedRole::Operator, None)));
        assert_eq!(role(&["x"], &["spiffe://a/b"]), Ok((site, CertifiedRole::Operator, None)));
        // Its name and its host have different roles.
        assert!(role(&["u1.example"], &[]).unwrap_err().contains("several roles"));
        let two = ["rivulet://a/unit/u1", "rivulet://a/operator/u1"];
        assert!(role(&["u1"], &two).unwrap_err().contains("several roles"));
        for path in ["", "a/unit", "a/unit/u1/b", "a/boss/u1", "/unit/u1"] {
            let error = role(&["u1"], &[&format!("rivulet://{path}")]).unwrap_err();
            assert!(error.contains("CLUSTER/ROLE/NAME"), "{error}");
        }
        let none = RoleMap::default().credential(&certificate(&["x"], &[])).unwrap_err().to_string();
        assert!(none.contains("`Jane Doe` has no role") && none.contains("cluster init"), "{none}");
        assert_eq!(
            RoleMap::default().credential(&CertificateDer::from(vec![1, 2])),
            Err(CredentialError::Damaged)
        );
    }

    #[test]
    fn faults_have_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roles.toml");
        assert_eq!(RoleMap::read(&path), Ok(RoleMap::default()), "it need not be there");
        for (text, expected) in [
            (
                "# Ours\n[roles]\nunit = []\nboss = []\n",
                ":4: `boss` is no role; expected one of unit, dispatcher",
            ),
            (
                "[roles]\nunit = [\"a\"]\nviewer = [\n  \"b\",\n  \"a\"\n]\n",
                ":5: `a` has the roles unit and viewer",
            ),
            ("\nrole = 1\n", ":2: unknown field `role`"),
            ("[roles]\nunit = 1\n", ":2: invalid type"),
            ("[roles]\n\nunit = [\n", ":3: "),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = RoleMap::read(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("{}{expected}", path.display())), "{error}");
        }
        std::fs::write(&path, vec![b'#'; ROLES_LEN_MAX as usize + 1]).unwrap();
        assert!(RoleMap::read(&path).unwrap_err().to_string().contains("up to"));
    }
}
