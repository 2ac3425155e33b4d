//! Specifications of ports: `PATH[,key=value...]`, with the keys and values of DPDK's driver for
//! such interfaces.

use std::fmt;
use std::str::FromStr;

use super::message::SECRET_LEN;
use super::ring::LOG2_MAX;

/// The least number of bytes of a buffer.
pub const BUFFER_MIN: u16 = 128;

/// The largest MTU, as of IPv4.
const MTU_MAX: u16 = u16::MAX;

/// The least MTU, as of IPv4.
const MTU_MIN: u16 = 68;

/// Bytes of a path.
const PATH_MAX: usize = 107;

/// An interface of shared memory.
#[derive(Clone, PartialEq, Eq)]
pub struct MemifConfig {
    /// The socket: a file, or an abstract name after an `@`.
    pub socket: String,
    /// The interface's number at the socket.
    pub id: u32,
    /// This end's role.
    pub role: Role,
    /// Logarithm of the number of descriptors of a ring, if this end makes it.
    pub ring_log2: u8,
    /// Bytes of a buffer, if this end makes it.
    pub buffer: u16,
    /// Bytes of the longest packet that is sent.
    pub mtu: u16,
    /// The secret that a client must send.
    pub secret: [u8; SECRET_LEN],
}

/// Role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Listens.
    Server,
    /// Calls, and makes the memory.
    Client,
}

/// Error of a specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemifConfigError {
    /// No path is given.
    #[error("expected a socket's path, such as memif:/run/rivulet/memif.sock,role=client")]
    NoPath,
    /// The path is too long.
    #[error("a socket's path has at most {PATH_MAX} bytes")]
    LongPath,
    /// A word is not of the form `key=value`.
    #[error("expected key=value, found `{0}`; keys are id, role, rsize, bsize, mtu and secret")]
    NoKey(String),
    /// The key is unknown.
    #[error("there is no key `{0}`; keys are id, role, rsize, bsize, mtu and secret")]
    UnknownKey(String),
    /// A key is given twice.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// A value is invalid.
    #[error("{key}={value}: {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The expected values.
        expected: String,
    },
}

impl MemifConfig {
    /// Returns a server at this path, with defaults.
    pub fn new(socket: &str) -> MemifConfig {
        MemifConfig {
            socket: socket.to_owned(),
            id: 0,
            role: Role::Server,
            ring_log2: 10,
            buffer: 2_048,
            mtu: 1_500,
            secret: [0; SECRET_LEN],
        }
    }

    /// Returns the interface's name.
    pub fn name(&self) -> String {
        format!("{},id={}", self.socket, self.id)
    }

    /// Returns a locally administered Ethernet address (IEEE 802): always the same, and another one
    /// at the other end.
    pub fn address(&self) -> [u8; 6] {
        let role = if self.role == Role::Server { b's' } else { b'c' };
        let identity = self.socket.bytes().chain(self.id.to_le_bytes()).chain([role]);
        // FNV-1a.
        let hash = identity.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let [_, _, first, rest @ ..] = hash.to_be_bytes();
        let mut address = [first & !1 | 2, 0, 0, 0, 0, 0];
        address[1..].copy_from_slice(&rest);
        address
    }
}

impl FromStr for MemifConfig {
    type Err = MemifConfigError;

    fn from_str(text: &str) -> Result<MemifConfig, MemifConfigError> {
        let mut words = text.split(',');
        let socket = words.next().unwrap_or_default();
        if socket.is_empty() || socket == "@" || socket.contains('\0') {
            return Err(MemifConfigError::NoPath);
        }
        if socket.len() > PATH_MAX {
            return Err(MemifConfigError::LongPath);
        }
        let mut config = MemifConfig::new(socket);
        let mut seen = Vec::new();
        for word in words {
            let (key, value) =
                word.split_once('=').ok_or_else(|| MemifConfigError::NoKey(word.to_owned()))?;
            let key = match key {
                "id" => {
                    config.id = number("id", value, 0, u32::MAX)?;
                    "id"
                }
                "role" => {
                    config.role = match value {
                        // The words before 2020, which VPP accepts, too.
                        "server" | "master" => Role::Server,
                        "client" | "slave" => Role::Client,
                        _ => return Err(invalid("role", value, "expected server or client")),
                    };
                    "role"
                }
                "rsize" => {
                    config.ring_log2 = number("rsize", value, 1, LOG2_MAX)?;
                    "rsize"
                }
                "bsize" => {
                    config.buffer = number("bsize", value, BUFFER_MIN, u16::MAX)?;
                    "bsize"
                }
                "mtu" => {
                    config.mtu = number("mtu", value, MTU_MIN, MTU_MAX)?;
                    "mtu"
                }
                "secret" => {
                    let bytes = value.as_bytes();
                    if bytes.is_empty() || bytes.len() > SECRET_LEN {
                        return Err(invalid("secret", "...", &format!("expected 1 to {SECRET_LEN} bytes")));
                    }
                    config.secret[..bytes.len()].copy_from_slice(bytes);
                    "secret"
                }
                _ => return Err(MemifConfigError::UnknownKey(key.to_owned())),
            };
            if seen.contains(&key) {
                return Err(MemifConfigError::Twice(key));
            }
            seen.push(key);
        }
        Ok(config)
    }
}

fn number<T>(key: &'static str, value: &str, least: T, most: T) -> Result<T, MemifConfigError>
where
    T: FromStr + PartialOrd + fmt::Display + Copy,
{
    let number = value.parse::<T>().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| invalid(key, value, &format!("expected a number from {least} to {most}")))
}

fn invalid(key: &'static str, value: &str, expected: &str) -> MemifConfigError {
    MemifConfigError::Value { key, value: value.to_owned(), expected: expected.to_owned() }
}

impl fmt::Debug for MemifConfig {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemifConfig")
            .field("socket", &self.socket)
            .field("id", &self.id)
            .field("role", &self.role)
            .field("ring_log2", &self.ring_log2)
            .field("buffer", &self.buffer)
            .field("mtu", &self.mtu)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_alone_is_a_server_and_every_key_is_parsed() {
        assert_eq!("/run/a.sock".parse(), Ok(MemifConfig::new("/run/a.sock")));
        let config: MemifConfig =
            "@a,id=7,role=client,rsize=14,bsize=65535,mtu=9000,secret=abc=1".parse().unwrap();
        let (socket, role) = (config.socket.as_str(), config.role);
        assert_eq!((socket, config.id, role), ("@a", 7, Role::Client));
        assert_eq!((config.ring_log2, config.buffer, config.mtu), (14, 65_535, 9_000));
        assert_eq!(config.secret[..6], *b"abc=1\0");
        assert_eq!("a,role=slave".parse::<MemifConfig>().unwrap().role, Role::Client);
    }

    #[test]
    fn errors_name_the_invalid_part() {
        for (text, expected) in [
            ("", "expected a socket's path"),
            ("@", "expected a socket's path"),
            (",id=1", "expected a socket's path"),
            (&"a".repeat(108), "at most 107 bytes"),
            ("a,id", "expected key=value, found `id`"),
            ("a,", "expected key=value, found ``"),
            ("a,size=1", "there is no key `size`; keys are id"),
            ("a,id=1,id=1", "id is given twice"),
            ("a,id=-1", "id=-1: expected a number from 0 to 4294967295"),
            ("a,role=both", "role=both: expected server or client"),
            ("a,rsize=0", "rsize=0: expected a number from 1 to 14"),
            ("a,rsize=15", "rsize=15: expected a number from 1 to 14"),
            ("a,bsize=127", "bsize=127: expected a number from 128 to 65535"),
            ("a,mtu=67", "mtu=67: expected a number from 68 to 65535"),
            ("a,secret=", "secret=...: expected 1 to 24 bytes"),
            ("a,secret=1234567890123456789012345", "secret=...: expected 1 to 24 bytes"),
        ] {
            let error = text.parse::<MemifConfig>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_are_stable_unicast_and_differ_between_ends() {
        let mut config = MemifConfig::new("/run/a.sock");
        let server = config.address();
        assert_eq!(server[0] & 3, 2);
        config.role = Role::Client;
        let client = config.address();
        config.id = 1;
        assert_eq!(config.address()[0] & 3, 2);
        assert!(client != server && client != config.address());
        // The address is the same in every version.
        assert_eq!(server, MemifConfig::new("/run/a.sock").address());
    }

    #[test]
    fn a_secret_is_not_shown() {
        let config: MemifConfig = "a,secret=hidden".parse().unwrap();
        assert!(!format!("{config:?}").contains("hidden"));
    }
}
