//! Variables of rules, such as `$HOME_NET`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::RuleError;
use crate::fault::{Line, Lines, RuleFault};
use crate::group::{self, AddressSet, GROUP_DEPTH_MAX, Group, PortSet};
use crate::text::{ParseResult, Piece};

/// Maximum variables of a file.
pub const VARIABLES_DEFINED_MAX: usize = 1024;

/// Named sets of addresses and ports.
///
/// A file has lines `NAME = GROUP`. A group is written as in a rule and may name other variables,
/// of the file or of the defaults, in any order. Empty lines and lines that begin with `#` are
/// ignored:
///
/// ```
/// use signatures::RuleVariables;
///
/// let (variables, faults) = RuleVariables::read("site.vars", "
///     HOME_NET   = [192.0.2.0/24, 2001:db8::/32]
///     ## EXTERNAL_NET is the complement of HOME_NET by default.
///     HTTP_PORTS = [80, 8000:8100]
/// ");
/// assert!(faults.is_empty());
/// assert!(variables.addresses("EXTERNAL_NET").unwrap().contains("198.51.100.1".parse().unwrap()));
/// assert!(variables.ports("FILE_DATA_PORTS").unwrap().contains(8080));
/// ```
///
/// A variable that the file does not define has Suricata's default value: [`DEFAULTS`]. `any` is a
/// set of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVariables {
    addresses: BTreeMap<String, Arc<AddressSet>>,
    ports: BTreeMap<String, Arc<PortSet>>,
}

/// The default variables.
// Those of suricata.yaml, `vars`.
pub const DEFAULTS: &str = "
HOME_NET = [192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]
EXTERNAL_NET = !$HOME_NET
HTTP_SERVERS = $HOME_NET
SMTP_SERVERS = $HOME_NET
SQL_SERVERS = $HOME_NET
DNS_SERVERS = $HOME_NET
TELNET_SERVERS = $HOME_NET
AIM_SERVERS = $EXTERNAL_NET
DC_SERVERS = $HOME_NET
DNP3_SERVER = $HOME_NET
DNP3_CLIENT = $HOME_NET
MODBUS_CLIENT = $HOME_NET
MODBUS_SERVER = $HOME_NET
ENIP_CLIENT = $HOME_NET
ENIP_SERVER = $HOME_NET
HTTP_PORTS = 80
SHELLCODE_PORTS = !80
ORACLE_PORTS = 1521
SSH_PORTS = 22
DNP3_PORTS = 20000
MODBUS_PORTS = 502
FILE_DATA_PORTS = [$HTTP_PORTS,110,143]
FTP_PORTS = 21
GENEVE_PORTS = 6081
VXLAN_PORTS = 4789
TEREDO_PORTS = 3544
SIP_PORTS = [5060,5061]
";

impl Default for RuleVariables {
    fn default() -> Self {
        Self::read("", "").0
    }
}

impl RuleVariables {
    /// Parses a file of variables. Valid lines count whatever the others contain; each invalid line
    /// is a fault. The last definition of a variable counts.
    pub fn read(file: &str, text: &str) -> (Self, Vec<RuleFault>) {
        let mut faults = Vec::new();
        let mut definitions = Definitions::new();
        let lines: Vec<_> = Lines::plain("defaults", DEFAULTS).chain(Lines::plain(file, text)).collect();
        for line in &lines {
            match definition(Piece::new(&line.text)) {
                Ok((name, _)) if definitions.len() >= VARIABLES_DEFINED_MAX => {
                    let error = RuleError::TooMany { what: "variables", limit: VARIABLES_DEFINED_MAX };
                    faults.push(line.fault(name.error(error)));
                }
                Ok((name, group)) => {
                    definitions.insert(name.text, (group, line));
                }
                Err(wrong) => faults.push(line.fault(wrong)),
            }
        }

        let mut variables = Self { addresses: BTreeMap::new(), ports: BTreeMap::new() };
        for (name, (group, line)) in &definitions {
            let addresses = resolve(name, &definitions, &mut variables.addresses, GROUP_DEPTH_MAX);
            let ports = resolve(name, &definitions, &mut variables.ports, GROUP_DEPTH_MAX);
            let (Err(by_address), Err(by_port)) = (addresses, ports) else { continue };
            // Of the two errors, report the one of the kind that was meant.
            let error = if name.ends_with("PORTS") || name.ends_with("PORT") { by_port } else { by_address };
            faults.push(line.fault(group.error(error)));
        }
        faults.sort_by_key(|fault| (fault.place.line, fault.column));
        (variables, faults)
    }

    /// Returns the addresses of a variable; the name is without `$`.
    pub fn addresses(&self, name: &str) -> Option<&Arc<AddressSet>> {
        self.addresses.get(name)
    }

    /// Returns the ports of a variable; the name is without `$`.
    pub fn ports(&self, name: &str) -> Option<&Arc<PortSet>> {
        self.ports.get(name)
    }

    /// Returns the names of the address sets, then those of the port sets, each sorted.
    pub fn names(&self) -> (impl Iterator<Item = &str>, impl Iterator<Item = &str>) {
        (self.addresses.keys().map(String::as_str), self.ports.keys().map(String::as_str))
    }

    pub(crate) fn read_addresses(&self, piece: Piece<'_>) -> ParseResult<Arc<AddressSet>> {
        group::read(piece, &mut |name| found(name, self.addresses(name.text)))
    }

    pub(crate) fn read_ports(&self, piece: Piece<'_>) -> ParseResult<Arc<PortSet>> {
        group::read(piece, &mut |name| found(name, self.ports(name.text)))
    }
}

/// Each variable's group and its line.
type Definitions<'a> = BTreeMap<&'a str, (Piece<'a>, &'a Line<'a>)>;

fn definition(line: Piece<'_>) -> ParseResult<(Piece<'_>, Piece<'_>)> {
    let Some((name, group)) = line.cut("=") else {
        return Err(line.trim().wrong("`NAME = GROUP`"));
    };
    let name = name.trim();
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    };
    match is_name(name.text) {
        true => Ok((name, group.trim())),
        false => Err(name.wrong("a name of letters, digits, `_`, `-` and `.`, without `$`")),
    }
}

fn found<G: Group>(name: Piece<'_>, group: Option<&Arc<G>>) -> ParseResult<Arc<G>> {
    group
        .cloned()
        .ok_or_else(|| name.error(RuleError::UnknownVariable { name: name.text.to_owned(), kind: G::KIND }))
}

/// Resolves a variable after the variables that it names, and stores the results.
fn resolve<G: Group>(
    name: &str,
    definitions: &Definitions<'_>,
    known: &mut BTreeMap<String, Arc<G>>,
    depth: usize,
) -> Result<Arc<G>, RuleError> {
    if let Some(group) = known.get(name) {
        return Ok(group.clone());
    }
    // A chain of names longer than the limit is circular, or as good as.
    if depth == 0 {
        return Err(RuleError::CyclicVariable { name: name.to_owned() });
    }
    let Some((definition, _)) = definitions.get(name) else {
        return Err(RuleError::UnknownVariable { name: name.to_owned(), kind: G::KIND });
    };
    let group = group::read(*definition, &mut |inner| {
        resolve(inner.text, definitions, known, depth - 1).map_err(|error| inner.error(error))
    });
    let group = group.map_err(|wrong| wrong.error)?;
    known.insert(name.to_owned(), group.clone());
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (RuleVariables, Vec<String>) {
        let (variables, faults) = RuleVariables::read("v", text);
        (variables, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn defaults_are_right_and_follow_what_is_defined() {
        let (variables, faults) = read("HOME_NET=192.0.2.1\nHTTP_PORTS = [80,81]");
        assert_eq!(faults, [""; 0]);
        assert_eq!(variables.addresses("EXTERNAL_NET").unwrap().to_string(), "!192.0.2.1");
        assert_eq!(variables.addresses("AIM_SERVERS"), variables.addresses("EXTERNAL_NET"));
        assert_eq!(variables.ports("FILE_DATA_PORTS").unwrap().to_string(), "[80:81,110,143]");
        assert_eq!(variables.ports("HOME_NET"), None);
        let (addresses, ports) = variables.names();
        assert_eq!((addresses.count(), ports.count()), (15, 12));
    }

    #[test]
    fn invalid_lines_are_faults_and_the_rest_counts() {
        let (variables, faults) = read(
            "A = $B\nB = $A\nC = 10.0.0.0/8\nNO\n$D = 1\nE = [10.0.0.0/8,300.1.1.1]\nX_PORTS = 70000\n\
             F = $NONE\nG = !any\nBOTH = any\n",
        );
        assert_eq!(
            faults,
            [
                "v:1:5: variable `$A` is defined in terms of itself",
                "v:2:5: variable `$B` is defined in terms of itself",
                "v:4:1: found `NO`, expected `NAME = GROUP`",
                "v:5:1: found `$D`, expected a name of letters, digits, `_`, `-` and `.`, without `$`",
                "v:6:5: found `300.1.1.1`, expected an address, a network such as `192.0.2.0/24`, a range of \
                 addresses, or `any`",
                "v:7:11: found `70000`, expected a port, a range such as `1024:2048`, `1024:` or `:1023`, or `any`",
                "v:8:5: variable `$NONE` is not defined as a group of addresses",
                "v:9:5: can never match: `!any` is empty",
            ]
        );
        assert!(variables.addresses("C").is_some());
        assert!(variables.addresses("BOTH").unwrap().is_any() && variables.ports("BOTH").unwrap().is_any());
    }
}
