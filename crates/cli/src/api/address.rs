//! Addresses of the control API: a Unix socket, or an address.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use values::HostPort;

/// The scheme of an address.
const SCHEME: &str = "https://";

/// A value of `--api`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAddress {
    /// The path of a Unix socket.
    Path(PathBuf),
    /// A host and its TCP port.
    Tcp(HostPort),
}

impl FromStr for ApiAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ApiAddress, String> {
        if text.starts_with("http://") {
            return Err(format!("the API is not served without TLS; expected {SCHEME}HOST:PORT"));
        }
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Ok(match text.parse::<SocketAddr>().ok().and_then(|_| text.parse().ok()) {
                Some(address) => ApiAddress::Tcp(address),
                None => ApiAddress::Path(text.into()),
            });
        };
        let address = rest.strip_suffix('/').unwrap_or(rest).parse();
        address.map(ApiAddress::Tcp).map_err(|fault| format!("{fault}; expected {SCHEME}HOST:PORT"))
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
        let tcp = |address: &str| Ok(ApiAddress::Tcp(address.parse()?));
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
