//! Port specifications: `DRIVER:TEXT`, or the name of a network interface.

use std::fmt;
use std::io::{Error, Result};
use std::str::FromStr;

use super::{DRIVERS, DriverEntry, DriverInfo, DriverSpec};

/// A parsed port specification.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSpec {
    name: String,
    /// In order of preference; never empty.
    choices: Vec<DriverSpec>,
}

/// A port specification that no driver understands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortSpecError {
    /// No interface is named.
    #[error("expected an interface, such as eth0 or tap:rvl0")]
    Empty,
    /// No such driver exists.
    #[error("there is no driver `{0}`; expected one of {names}", names = names(|_| true))]
    UnknownDriver(String),
    /// The driver does not take an interface's name.
    #[error("the driver `{0}` is not for existing interfaces; expected {names}", names = names(|info| info.is_for_interfaces))]
    NotForInterfaces(String),
    /// The driver refuses the text after its name.
    #[error("{0}")]
    Invalid(String),
}

/// A driver that `auto` would have preferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The driver in use.
    pub used: &'static str,
    /// The driver that was not used.
    pub refused: &'static str,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver {} instead of {}: {}", self.used, self.refused, self.reason)
    }
}

impl PortSpec {
    /// Returns the port's name for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the port is an existing network interface.
    pub fn is_interface(&self) -> bool {
        self.choices.iter().all(|choice| choice.info().is_for_interfaces)
    }

    /// Restricts a plain interface name to the driver with this name. A specification that names
    /// its driver stays as it is.
    ///
    /// # Errors
    /// If there is no such driver, or it is not for existing interfaces.
    pub fn with_driver(mut self, driver: &str) -> std::result::Result<PortSpec, PortSpecError> {
        let entry = entry(driver)?;
        if !entry.info.is_for_interfaces {
            return Err(PortSpecError::NotForInterfaces(driver.to_owned()));
        }
        if self.choices.len() > 1 {
            self.choices.retain(|choice| choice.info().name == driver);
        }
        Ok(self)
    }

    /// Announces that the port will be opened in this number of parts. A driver that starts once
    /// per process, such as DPDK, learns of all its devices before the first one is opened.
    pub fn announce(&self, parts: usize) {
        self.choices.iter().for_each(|choice| choice.announce(parts));
    }

    /// Returns the maximum bytes of a packet after the link-layer header, if known before the port
    /// is opened.
    pub fn mtu(&self) -> Option<u32> {
        self.choices.first().and_then(DriverSpec::mtu)
    }

    /// Returns the driver that is used if it opens, and why not an earlier one.
    ///
    /// # Errors
    /// None for a parsed specification.
    pub fn preferred(&self) -> Result<(&'static DriverInfo, Option<Fallback>)> {
        self.open_first(|choice| Ok(choice.info()))
    }

    /// Opens by the first driver that suits the interface, or by the last one.
    pub(super) fn open_first<T>(
        &self,
        open: impl Fn(&DriverSpec) -> Result<T>,
    ) -> Result<(T, Option<Fallback>)> {
        let mut refused: Option<(&'static str, Error)> = None;
        for (at, choice) in self.choices.iter().enumerate() {
            let is_last = at + 1 == self.choices.len();
            let suits = if is_last { Ok(()) } else { choice.suits() };
            match suits.and_then(|()| open(choice)) {
                Ok(opened) => {
                    let used = choice.info().name;
                    let fallback = refused.map(|(refused, reason)| Fallback {
                        used,
                        refused,
                        reason: reason.to_string(),
                    });
                    return Ok((opened, fallback));
                }
                Err(error) if is_last => return Err(error),
                Err(error) => _ = refused.get_or_insert((choice.info().name, error)),
            }
        }
        Err(Error::other("a port has one driver at least"))
    }
}

impl fmt::Display for PortSpec {
    /// Writes a plain name where the driver is chosen, else `DRIVER:NAME`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.choices[..] {
            [choice] => write!(f, "{}:{}", choice.info().name, self.name),
            _ => f.write_str(&self.name),
        }
    }
}

impl FromStr for PortSpec {
    type Err = PortSpecError;

    fn from_str(text: &str) -> std::result::Result<PortSpec, PortSpecError> {
        // No interface's name has a colon.
        let choices = match text.split_once(':') {
            Some((driver, text)) => vec![(entry(driver)?.parse)(text).map_err(PortSpecError::Invalid)?],
            None if text.is_empty() => return Err(PortSpecError::Empty),
            None => {
                let drivers = DRIVERS.iter().filter(|entry| entry.info.is_for_interfaces);
                let parsed = drivers.map(|entry| (entry.parse)(text));
                parsed.collect::<std::result::Result<Vec<_>, _>>().map_err(PortSpecError::Invalid)?
            }
        };
        let name = choices.first().ok_or(PortSpecError::Empty)?.name();
        Ok(PortSpec { name, choices })
    }
}

fn entry(driver: &str) -> std::result::Result<&'static DriverEntry, PortSpecError> {
    let found = DRIVERS.iter().find(|entry| entry.info.name == driver);
    found.ok_or_else(|| PortSpecError::UnknownDriver(driver.to_owned()))
}

fn names(is_listed: fn(&DriverInfo) -> bool) -> String {
    let listed = DRIVERS.iter().map(|entry| entry.info).filter(|info| is_listed(info));
    listed.map(|info| info.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drivers(text: &str) -> Vec<&'static str> {
        let spec: PortSpec = text.parse().unwrap();
        spec.choices.iter().map(|choice| choice.info().name).collect()
    }

    #[test]
    fn a_plain_name_may_be_any_driver_for_interfaces() {
        assert_eq!(drivers("eth0"), ["xdp", "packet"]);
        assert_eq!(drivers("xdp:eth0"), ["xdp"]);
        assert_eq!(drivers("tap:rvl0"), ["tap"]);
        let spec: PortSpec = "eth0".parse().unwrap();
        assert_eq!(spec.to_string(), "eth0");
        assert_eq!(spec.clone().with_driver("packet").unwrap().to_string(), "packet:eth0");
        let refused = spec.with_driver("tap").unwrap_err().to_string();
        assert_eq!(refused, "the driver `tap` is not for existing interfaces; expected xdp, packet");
        let tap: PortSpec = "tap:rvl0".parse().unwrap();
        assert_eq!(tap.with_driver("xdp").unwrap().to_string(), "tap:rvl0");
    }

    #[test]
    fn an_unknown_driver_is_refused_with_the_list() {
        let refused = |text: &str| text.parse::<PortSpec>().unwrap_err().to_string();
        let expected = "there is no driver `wifi`; expected one of xdp, packet, ";
        assert!(refused("wifi:0").starts_with(expected), "{}", refused("wifi:0"));
        assert_eq!(refused(""), "expected an interface, such as eth0 or tap:rvl0");
        assert!(refused("memif:").contains("a socket's path"));
        assert!(refused("packet:").contains("an interface"));
    }

    #[test]
    fn longest_packet_is_known_as_far_as_the_port_is_there() {
        let mtu = |text: &str| text.parse::<PortSpec>().unwrap().mtu();
        assert_eq!(mtu("memif:@a,mtu=9000"), Some(9_000));
        assert_eq!((mtu("lo"), mtu("packet:lo")), (Some(65_536), Some(65_536)));
        assert_eq!((mtu("no such one"), mtu("tap:no-such-one")), (None, None));
    }

    #[test]
    fn the_first_driver_that_suits_and_opens_is_used() {
        let spec: PortSpec = "no such one".parse().unwrap();
        // Neither suits, and the last one is tried.
        let (name, fallback) = spec.open_first(|choice| Ok(choice.info().name)).unwrap();
        assert_eq!((name, fallback.unwrap().refused), ("packet", "xdp"));
        assert!(spec.open_first(|_| Err::<(), _>(Error::other("refused"))).is_err());
    }
}
