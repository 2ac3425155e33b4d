//! What a port is to be: `PATH[,key=value...]`, with the keys and values of DPDK's driver for such
//! interfaces.

use std::fmt;
use std::str::FromStr;

use super::message::SECRET_LEN;
use super::ring::LOG2_MAX;

/// Bytes of a buffer, at least.
pub const BUFFER_MIN: u16 = 128;

/// Bytes of the longest packet that may be said to fit: as IPv4 has it.
const MTU_MAX: u16 = u16::MAX;

/// Bytes of the longest packet that must fit, as IPv4 has it.
const MTU_MIN: u16 = 68;

/// Bytes of a path, at most.
const PATH_MAX: usize = 107;

/// An interface of shared memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the ends find each other: a file, or behind an `@` a name without one.
    pub socket: String,
    /// The number by which they find each other there.
    pub id: u32,
    /// Which end this is.
    pub role: Role,
    /// The logarithm of how many descriptors a ring has, if this end makes it.
    pub ring_log2: u8,
    /// Bytes that a buffer has room for, if this end makes it.
    pub buffer: u16,
    /// Bytes of the longest packet that is sent.
    pub mtu: u16,
    /// What a client has to say.
    pub secret: [u8; SECRET_LEN],
}

/// Which end of an interface it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that listens.
    Server,
    /// The one that calls, and makes the memory.
    Client,
}

/// What is said of a port is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no path.
    #[error("expected a socket's path, such as memif:/run/rivulet/memif.sock,role=client")]
    NoPath,
    /// The path is too long.
    #[error("a socket's path has at most {PATH_MAX} bytes")]
    LongPath,
    /// A word is not of the form `key=value`.
    #[error("expected key=value, not `{0}`; there are id, role, rsize, bsize, mtu and secret")]
    NoKey(String),
    /// There is no such key.
    #[error("there is no `{0}`; there are id, role, rsize, bsize, mtu and secret")]
    UnknownKey(String),
    /// A key is there twice.
    #[error("{0} is there twice")]
    Twice(&'static str),
    /// A value is none.
    #[error("{key}={value}: {expected}")]
    Value {
        /// Of which key.
        key: &'static str,
        /// The value.
        value: String,
        /// What it could be.
        expected: String,
    },
}

impl Config {
    /// A server at this path, as it is unless said otherwise.
    pub fn new(socket: &str) -> Config {
        Config {
            socket: socket.to_owned(),
            id: 0,
            role: Role::Server,
            ring_log2: 10,
            buffer: 2_048,
            mtu: 1_500,
            secret: [0; SECRET_LEN],
        }
    }

    /// What the interface is called.
    pub fn name(&self) -> String {
        format!("{},id={}", self.socket, self.id)
    }

    /// An Ethernet address that no maker has given, the same every time, and another one at the
    /// other end (IEEE 802).
    pub fn address(&self) -> [u8; 6] {
        let role = if self.role == Role::Server { b's' } else { b'c' };
        let said = self.socket.bytes().chain(self.id.to_le_bytes()).chain([role]);
        // FNV-1a.
        let hash = said.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let [_, _, first, rest @ ..] = hash.to_be_bytes();
        let mut address = [first & !1 | 2, 0, 0, 0, 0, 0];
        address[1..].copy_from_slice(&rest);
        address
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Config, ConfigError> {
        let mut words = text.split(',');
        let socket = words.next().unwrap_or_default();
        if socket.is_empty() || socket == "@" || socket.contains('\0') {
            return Err(ConfigError::NoPath);
        }
        if socket.len() > PATH_MAX {
            return Err(ConfigError::LongPath);
        }
        let mut config = Config::new(socket);
        let mut seen = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| ConfigError::NoKey(word.to_owned()))?;
            let key = match key {
                "id" => {
                    config.id = number("id", value, 0, u32::MAX)?;
                    "id"
                }
                "role" => {
                    config.role = match value {
                        // The words of before 2020, which VPP takes, too.
                        "server" | "master" => Role::Server,
                        "client" | "slave" => Role::Client,
                        _ => return Err(invalid("role", value, "server or client")),
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
                        return Err(invalid("secret", "...", &format!("1 to {SECRET_LEN} bytes")));
                    }
                    config.secret[..bytes.len()].copy_from_slice(bytes);
                    "secret"
                }
                _ => return Err(ConfigError::UnknownKey(key.to_owned())),
            };
            if seen.contains(&key) {
                return Err(ConfigError::Twice(key));
            }
            seen.push(key);
        }
        Ok(config)
    }
}

fn number<T>(key: &'static str, value: &str, least: T, most: T) -> Result<T, ConfigError>
where
    T: FromStr + PartialOrd + fmt::Display + Copy,
{
    let number = value.parse::<T>().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| invalid(key, value, &format!("expected a number from {least} to {most}")))
}

fn invalid(key: &'static str, value: &str, expected: &str) -> ConfigError {
    ConfigError::Value { key, value: value.to_owned(), expected: expected.to_owned() }
}

impl fmt::Debug for Config {
    /// All but the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
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
    fn a_path_alone_is_a_server_and_every_key_is_heard() {
        assert_eq!("/run/a.sock".parse(), Ok(Config::new("/run/a.sock")));
        let config: Config =
            "@a,id=7,role=client,rsize=14,bsize=65535,mtu=9000,secret=abc=1".parse().unwrap();
        let (socket, role) = (config.socket.as_str(), config.role);
        assert_eq!((socket, config.id, role), ("@a", 7, Role::Client));
        assert_eq!((config.ring_log2, config.buffer, config.mtu), (14, 65_535, 9_000));
        assert_eq!(config.secret[..6], *b"abc=1\0");
        assert_eq!("a,role=slave".parse::<Config>().unwrap().role, Role::Client);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, said) in [
            ("", "expected a socket's path"),
            ("@", "expected a socket's path"),
            (",id=1", "expected a socket's path"),
            (&"a".repeat(108), "at most 107 bytes"),
            ("a,id", "expected key=value, not `id`"),
            ("a,", "expected key=value, not ``"),
            ("a,size=1", "there is no `size`; there are id"),
            ("a,id=1,id=1", "id is there twice"),
            ("a,id=-1", "id=-1: expected a number from 0 to 4294967295"),
            ("a,role=both", "role=both: server or client"),
            ("a,rsize=0", "rsize=0: expected a number from 1 to 14"),
            ("a,rsize=15", "rsize=15: expected a number from 1 to 14"),
            ("a,bsize=127", "bsize=127: expected a number from 128 to 65535"),
            ("a,mtu=67", "mtu=67: expected a number from 68 to 65535"),
            ("a,secret=", "secret=...: 1 to 24 bytes"),
            ("a,secret=1234567890123456789012345", "secret=...: 1 to 24 bytes"),
        ] {
            let error = text.parse::<Config>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_are_stable_ones_hosts_and_each_ends_own() {
        let mut config = Config::new("/run/a.sock");
        let server = config.address();
        assert_eq!(server[0] & 3, 2);
        config.role = Role::Client;
        let client = config.address();
        config.id = 1;
        assert_eq!(config.address()[0] & 3, 2);
        assert!(client != server && client != config.address());
        // It is the same in every version.
        assert_eq!(server, Config::new("/run/a.sock").address());
    }

    #[test]
    fn a_secret_is_not_shown() {
        let config: Config = "a,secret=hidden".parse().unwrap();
        assert!(!format!("{config:?}").contains("hidden"));
    }
}
