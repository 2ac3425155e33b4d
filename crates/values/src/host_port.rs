//! Addresses of nodes: `HOST:PORT`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};

/// Length of the longest name of a host, in bytes (RFC 1035 2.3.4).
const NAME_LEN_MAX: usize = 253;
/// Length of the longest name of an interface, in bytes.
const INTERFACE_LEN_MAX: usize = 15;

/// A host and a port: `10.0.0.1:7400`, `[2001:db8::1]:7400`, `unit-1.example:7400`, or a link-local
/// address with its interface, `[fe80::1%eth0]:7400` (RFC 4007 11). Equal ones are written equally.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Host {
    /// An address, never an IPv4 one in the form of IPv6 (`::ffff:10.0.0.1`).
    Address(IpAddr),
    /// A link-local address, and the interface or its number: the same elsewhere is another host.
    LinkLocal(Ipv6Addr, String),
    /// A name, in lower case.
    Name(String),
}

impl HostPort {
    /// Returns the host without brackets, as the system resolves it: an address, with an interface
    /// if it is link-local, or a name.
    pub fn host(&self) -> String {
        match &self.host {
            Host::Address(address) => address.to_string(),
            Host::LinkLocal(address, interface) => format!("{address}%{interface}"),
            Host::Name(name) => name.clone(),
        }
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the same host with another port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> HostPort {
        HostPort { host: self.host.clone(), port }
    }

    /// Returns whether it stands for all addresses of a host, as those to listen at.
    pub fn is_unspecified(&self) -> bool {
        matches!(self.host, Host::Address(address) if address.is_unspecified())
    }

    /// Returns whether it is good at this host only: it names an interface.
    pub fn is_link_local(&self) -> bool {
        matches!(self.host, Host::LinkLocal(..))
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<HostPort, String> {
        let expected = || format!("`{text}` is no address; expected HOST:PORT, such as 10.0.0.4:7400");
        let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|_| is_number).ok_or_else(expected)?;
        let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(inner) => in_brackets(inner.ok_or_else(expected)?, text)?,
            None if host.contains(':') => {
                return Err(format!(
                    "`{text}`: expected brackets around an IPv6 address, as [2001:db8::1]:7400"
                ));
            }
            None => plain(host).ok_or_else(expected)?,
        };
        Ok(HostPort { host, port })
    }
}

/// Reads an IPv6 address.
fn in_brackets(inner: &str, text: &str) -> Result<Host, String> {
    let (address, interface) = match inner.split_once('%') {
        Some((address, interface)) => (address, Some(interface)),
        None => (inner, None),
    };
    let address: Ipv6Addr =
        address.parse().map_err(|_| format!("`{text}`: expected an IPv6 address in the brackets"))?;
    match (address.is_unicast_link_local(), interface) {
        (false, None) => Ok(Host::Address(IpAddr::V6(address).to_canonical())),
        (true, Some(interface)) if is_interface(interface) => {
            Ok(Host::LinkLocal(address, interface.to_owned()))
        }
        (true, _) => {
            Err(format!("`{text}`: expected the interface of a link-local address, as [fe80::1%eth0]:7400"))
        }
        (false, Some(_)) => {
            Err(format!("`{text}`: expected no interface: only link-local addresses have one"))
        }
    }
}

fn is_interface(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte);
    (1..=INTERFACE_LEN_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Reads an IPv4 address or a name.
fn plain(host: &str) -> Option<Host> {
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Some(Host::Address(address.into()));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=NAME_LEN_MAX).contains(&host.len()) && host.bytes().all(is_plain);
    // What has digits only is a misspelt address.
    let has_letters = host.bytes().any(|byte| !byte.is_ascii_digit() && byte != b'.');
    (is_name && has_letters).then(|| Host::Name(host.to_ascii_lowercase()))
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(_)) | Host::LinkLocal(..) => {
                write!(f, "[{}]:{}", self.host(), self.port)
            }
            Host::Address(IpAddr::V4(_)) | Host::Name(_) => write!(f, "{}:{}", self.host(), self.port),
        }
    }
}

impl<'de> Deserialize<'de> for HostPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HostPort, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form() {
        for (text, shown) in [
            ("10.0.0.1:7400", "10.0.0.1:7400"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[2001:DB8:0::1]:7400", "[2001:db8::1]:7400"),
            ("[::ffff:10.0.0.1]:7400", "10.0.0.1:7400"),
            ("[fe80::1%eth0]:7400", "[fe80::1%eth0]:7400"),
            ("Unit-1.Example:65535", "unit-1.example:65535"),
            ("1.example:1", "1.example:1"),
        ] {
            let parsed: Result<HostPort, String> = text.parse();
            assert_eq!(parsed.map(|address| address.to_string()), Ok(shown.to_owned()), "{text}");
        }
    }

    #[test]
    fn faults_say_what_was_expected() {
        for (text, expected) in [
            ("10.0.0.1", "HOST:PORT"),
            ("10.0.0.300:1", "HOST:PORT"),
            (":7400", "HOST:PORT"),
            ("a b:1", "HOST:PORT"),
            ("unit:70000", "HOST:PORT"),
            ("unit:+1", "HOST:PORT"),
            ("[::1:7400", "HOST:PORT"),
            ("[unit]:7400", "an IPv6 address in the brackets"),
            ("fd00::1:7400", "brackets"),
            ("[fe80::1]:7400", "the interface"),
            ("[fe80::1%]:7400", "the interface"),
            ("[fd00::1%eth0]:7400", "no interface"),
        ] {
            let fault = text.parse::<HostPort>().unwrap_err();
            assert!(fault.contains(&format!("expected {expected}")) && fault.contains(text), "{fault}");
        }
    }
}
