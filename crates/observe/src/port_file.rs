//! Files of packets that belong to ports.

use std::path::{Path, PathBuf};

use runtime::Ports;

/// `--read [PORT=]FILE`: a capture, and optionally the port of its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFile {
    /// The port's name or number.
    pub port: Option<String>,
    /// The file; `-` is standard input or output.
    pub path: PathBuf,
}

impl std::str::FromStr for PortFile {
    type Err = std::convert::Infallible;

    /// Parses a file with a port: the text before the first `=`, unless a file of the whole name
    /// exists.
    fn from_str(text: &str) -> Result<PortFile, Self::Err> {
        Ok(match text.split_once('=') {
            Some((port, path)) if !port.contains('/') && !Path::new(text).exists() => {
                PortFile { port: Some(port.to_owned()), path: path.into() }
            }
            _ => PortFile { port: None, path: text.into() },
        })
    }
}

/// The policy has no port of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy has no port `{name}`; it has: {}", known.join(", "))]
pub struct UnknownPortError {
    /// The name.
    pub name: String,
    /// The policy's ports.
    pub known: Vec<String>,
}

/// Returns whether one of these files is standard input or output.
pub fn name_standard_stream(files: &[PortFile]) -> bool {
    files.iter().any(|file| file.path == Path::new("-"))
}

/// Returns the number of the port with this name.
///
/// # Errors
/// The policy has no such port.
pub fn port_named(ports: &Ports, name: &str) -> Result<u16, UnknownPortError> {
    let found = ports.named(name).map(|port| port.number);
    found.ok_or_else(|| UnknownPortError {
        name: name.to_owned(),
        known: ports.all().iter().map(|port| port.name.clone()).collect(),
    })
}
