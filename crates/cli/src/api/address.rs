//! Addresses of the control API: a Unix socket, or an address.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The scheme of an address.
const SCHEME: &str = "https://";

/// A value of `--api`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAddress {
    /// The path of a Unix socket.
    Path(PathBuf),
    /// A host and its TCP port, `HOST:PORT`.
    Tcp(String),
}

impl FromStr for ApiAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ApiAddress, String> {
        if text.starts_with("http://") {
            return Err(format!("the API is not served without TLS; expected {SCHEME}HOST:PORT"));
        }
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Ok(match text.parse::<SocketAddr>() {
                Ok(address) => ApiAddress::Tcp(address.to_string()),
                Err(_) => ApiAddress::Path(text.into()),
            });
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let has_port = rest.rsplit_once(':').is_some_and(|(host, port)| {
            let is_whole = !host.contains([':', '/', '@']) || host.starts_with('[') && host.ends_with(']');
            !host.is_empty() && is_whole && port.parse::<u16>().is_ok()
        });
        match has_port {
            true => Ok(ApiAddress::Tcp(rest.to_owned())),
            false => Err(format!("expected {SCHEME}HOST:PORT, such as {SCHEME}10.0.0.1:7500")),
        }
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiAddress::Path(path) => path.display().fmt(f),
            ApiAddress::Tcp(address) => write!(f, "{SCHEME}{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_have_a_port() {
        let tcp = |address: &str| Ok(ApiAddress::Tcp(address.to_owned()));
        for (text, expected) in [
            ("https://10.0.0.1:7500", tcp("10.0.0.1:7500")),
            ("https://dispatcher:7500/", tcp("dispatcher:7500")),
            ("https://[2001:db8::1]:7500", tcp("[2001:db8::1]:7500")),
            ("10.0.0.1:7500", tcp("10.0.0.1:7500")),
            ("[::1]:7500", tcp("[::1]:7500")),
            ("dispatcher:7500", Ok(ApiAddress::Path("dispatcher:7500".into()))),
            ("/run/a.sock", Ok(ApiAddress::Path("/run/a.sock".into()))),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
        for text in
            ["http://a:1", "https://a", "https://:1", "https://a:b", "https://a:70000", "https://::1:5"]
        {
            assert!(text.parse::<ApiAddress>().is_err(), "{text}");
        }
    }
}
