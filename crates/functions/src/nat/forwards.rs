//! Static rules: external ports and addresses bound to inside endpoints.

use std::collections::{BTreeMap, BTreeSet};

use packet::Endpoint;
use values::ConfigError;

use super::config::{ForwardProtocol, OneToOne, PortForward};
use super::net::{from_v4, v4};
use super::space::PortClass;

/// Maximum number of forwarded ports in total; a port forwarded for TCP and UDP counts twice.
pub const FORWARDED_PORTS_MAX: usize = 65_536;

/// Maximum number of one-to-one addresses in total.
pub const ONE_TO_ONE_MAX: usize = 65_536;

/// Static rules, looked up when a flow opens.
#[derive(Debug, Default)]
pub struct Forwards {
    /// External to inside endpoints.
    inwards: BTreeMap<(PortClass, u32, u16), (u32, u16)>,
    /// Inside to external endpoints.
    outwards: BTreeMap<(PortClass, u32, u16), (u32, u16)>,
    addresses_inwards: BTreeMap<u32, u32>,
    addresses_outwards: BTreeMap<u32, u32>,
}

impl Forwards {
    /// Builds the rules of a configuration; refuses rules that contradict each other.
    pub fn new(forwards: &[PortForward], one_to_one: &[OneToOne]) -> Result<Forwards, ConfigError> {
        let mut rules = Forwards::default();
        for rule in one_to_one {
            rules.add_addresses(rule)?;
        }
        for forward in forwards {
            rules.add_forward(forward)?;
        }
        Ok(rules)
    }

    /// Returns the forwarded ports of an external address, in ascending order.
    pub fn ports_of(&self, class: PortClass, address: u32) -> impl Iterator<Item = u16> {
        self.inwards.range((class, address, 0)..=(class, address, u16::MAX)).map(|(&(_, _, port), _)| port)
    }

    /// Returns the external addresses of all rules, as ranges of first and last.
    pub fn external_addresses(&self) -> impl Iterator<Item = (u32, u32)> {
        let of_ports = self.inwards.keys().map(|&(_, address, _)| address);
        let addresses: BTreeSet<_> = of_ports.chain(self.addresses_inwards.keys().copied()).collect();
        addresses.into_iter().map(|address| (address, address))
    }

    /// Returns whether a one-to-one rule covers this external address.
    pub fn has_address(&self, address: u32) -> bool {
        self.addresses_inwards.contains_key(&address)
    }

    /// Returns whether any port of this external address is forwarded.
    pub fn has_port_of(&self, address: u32) -> bool {
        [PortClass::Tcp, PortClass::Udp]
            .into_iter()
            .any(|class| self.ports_of(class, address).next().is_some())
    }

    /// Returns the inside endpoint that an external one maps to.
    pub fn inwards(&self, class: PortClass, external: Endpoint) -> Option<Endpoint> {
        translate(&self.inwards, &self.addresses_inwards, class, external)
    }

    /// Returns the external endpoint of an inside one.
    pub fn outwards(&self, class: PortClass, internal: Endpoint) -> Option<Endpoint> {
        translate(&self.outwards, &self.addresses_outwards, class, internal)
    }

    fn add_addresses(&mut self, rule: &OneToOne) -> Result<(), ConfigError> {
        if rule.external.last - rule.external.first != rule.internal.last - rule.internal.first {
            return Err(ConfigError::new(
                "one_to_one: `external` and `internal` must have the same number of addresses",
            ));
        }
        for (external, internal) in rule.external.addresses().zip(rule.internal.addresses()) {
            if self.addresses_inwards.len() >= ONE_TO_ONE_MAX {
                let message = format!("one_to_one: more than {ONE_TO_ONE_MAX} addresses");
                return Err(ConfigError::new(message));
            }
            let taken = self.addresses_inwards.insert(external, internal).is_some();
            if taken || self.addresses_outwards.insert(internal, external).is_some() {
                let message =
                    format!("one_to_one: {} or {} is used twice", from_v4(external), from_v4(internal));
                return Err(ConfigError::new(message));
            }
        }
        Ok(())
    }

    fn add_forward(&mut self, rule: &PortForward) -> Result<(), ConfigError> {
        let (external, internal) = (rule.external, rule.internal);
        if external.ports.count() != internal.ports.count() {
            return Err(ConfigError::new(
                "forwards: `external` and `internal` must have the same number of ports",
            ));
        }
        if self.has_address(external.address) {
            let message = format!("forwards: {} is already a one-to-one address", from_v4(external.address));
            return Err(ConfigError::new(message));
        }
        let classes: &[PortClass] = match rule.protocol {
            ForwardProtocol::Tcp => &[PortClass::Tcp],
            ForwardProtocol::Udp => &[PortClass::Udp],
            ForwardProtocol::Both => &[PortClass::Tcp, PortClass::Udp],
        };
        for &class in classes {
            let ports = external.ports.first..=external.ports.last;
            for (outer, inner) in ports.zip(internal.ports.first..=internal.ports.last) {
                if self.inwards.len() >= FORWARDED_PORTS_MAX {
                    let message = format!("forwards: more than {FORWARDED_PORTS_MAX} ports");
                    return Err(ConfigError::new(message));
                }
                let from = (class, external.address, outer);
                if self.inwards.insert(from, (internal.address, inner)).is_some() {
                    let message = format!("forwards: {}:{outer} is used twice", from_v4(external.address));
                    return Err(ConfigError::new(message));
                }
                // Two external ports may lead to one inside port; flows from inside use the first.
                self.outwards.entry((class, internal.address, inner)).or_insert((external.address, outer));
            }
        }
        Ok(())
    }
}

fn translate(
    ports: &BTreeMap<(PortClass, u32, u16), (u32, u16)>,
    addresses: &BTreeMap<u32, u32>,
    class: PortClass,
    endpoint: Endpoint,
) -> Option<Endpoint> {
    if ports.is_empty() && addresses.is_empty() {
        return None;
    }
    let address = v4(endpoint.addr)?;
    if let Some(&(address, port)) = ports.get(&(class, address, endpoint.port)) {
        return Some(Endpoint::new(from_v4(address), port));
    }
    addresses.get(&address).map(|&address| Endpoint::new(from_v4(address), endpoint.port))
}
