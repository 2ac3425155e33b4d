//! Constraints on a configuration that its types cannot express.

use std::collections::BTreeSet;

use packet::Addr;
use values::{ConfigError, Located};

use super::config::{
    Config, ForwardingMode, Scheduler, ServerAffinity, ServerConfig, ServiceConfig, ServicePorts,
};
use super::directory::ServiceProtocol;
use super::maglev::{SLOTS_MAX, WEIGHT_MAX};
use super::tunnel::Encapsulator;

/// Maximum number of services.
pub const SERVICES_MAX: usize = 1024;

/// Maximum number of servers per service.
pub const SERVERS_MAX: usize = 4096;

/// Maximum number of servers in total.
pub const SERVERS_TOTAL_MAX: usize = 32_768;

/// Maximum number of slots of all Maglev tables: 128 MiB.
pub const SLOTS_TOTAL_MAX: u64 = 1 << 26;

/// Checks a configuration and returns its first error.
pub fn config(config: &Config, tunnel: &Encapsulator) -> Result<(), ConfigError> {
    check_all(config)?;
    config.services.iter().try_for_each(|service| check_service(service, tunnel))
}

/// Checks constraints across services.
fn check_all(config: &Config) -> Result<(), ConfigError> {
    let services = &config.services;
    if services.is_empty() || services.len() > SERVICES_MAX {
        return Err(ConfigError::new(format!(
            "expected 1 to {SERVICES_MAX} services, got {}",
            services.len()
        )));
    }
    let servers: usize = services.iter().map(|service| service.servers.len()).sum();
    if servers > SERVERS_TOTAL_MAX {
        return Err(ConfigError::new(format!(
            "too many servers: the maximum is {SERVERS_TOTAL_MAX}, got {servers}"
        )));
    }
    let maglev = services.iter().filter(|service| service.scheduler == Scheduler::Maglev);
    if maglev.map(|service| u64::from(service.table_size)).sum::<u64>() > SLOTS_TOTAL_MAX {
        return Err(ConfigError::new(format!(
            "the tables are too large: the maximum is {SLOTS_TOTAL_MAX} slots in total"
        )));
    }
    check_names("service", services.iter().map(ServiceConfig::title))?;
    let mut places = BTreeSet::new();
    for service in services {
        if !places.insert((service.vip, service.protocol, service.port.first, service.port.last)) {
            return Err(at(&service.title(), "another service has the same address, protocol and ports"));
        }
    }
    Ok(())
}

fn check_service(service: &ServiceConfig, tunnel: &Encapsulator) -> Result<(), ConfigError> {
    let wrong = |message: String| Err(at(&service.title(), &message));
    if is_no_host(service.vip.into()) {
        return wrong(format!("{} is not a host address", service.vip));
    }
    if !service.protocol.has_ports() && service.port != ServicePorts::default() {
        return wrong("only `tcp` and `udp` services can have a `port`".into());
    }
    if service.servers.is_empty() || service.servers.len() > SERVERS_MAX {
        return wrong(format!("expected 1 to {SERVERS_MAX} servers, got {}", service.servers.len()));
    }
    let size = service.table_size;
    if service.scheduler == Scheduler::Maglev {
        if size > SLOTS_MAX || !is_prime(size) {
            return wrong(format!(
                "`table_size` must be a prime up to {SLOTS_MAX}, such as 65537, not {size}"
            ));
        }
        if (size as usize) < service.servers.len() {
            return wrong(format!("{size} slots are too few for {} servers", service.servers.len()));
        }
    }
    if let Err(message) = check_quic(service) {
        return wrong(message);
    }
    check_names("server", service.servers.iter().map(|server| server.name.clone()))?;
    service.servers.iter().try_for_each(|server| check_server(server, service, tunnel))
}

fn check_quic(service: &ServiceConfig) -> Result<(), String> {
    let quic = service.affinity == ServerAffinity::Quic;
    if quic && service.protocol != ServiceProtocol::Udp {
        return Err("`affinity: quic` needs `protocol: udp`".into());
    }
    let ids: Vec<_> = service.servers.iter().filter_map(|server| server.quic_id.as_ref()).collect();
    if !quic && !ids.is_empty() {
        return Err("`quic_id` needs `affinity: quic`".into());
    }
    if ids.iter().any(|id| id.0.len() != ids[0].0.len()) {
        return Err("all `quic_id`s of a service must have the same length".into());
    }
    let distinct: BTreeSet<_> = ids.iter().map(|id| &id.0).collect();
    if distinct.len() != ids.len() {
        return Err("two servers have the same `quic_id`".into());
    }
    if !ids.is_empty() && ids.len() != service.servers.len() {
        return Err("either all servers of a service have a `quic_id`, or none".into());
    }
    Ok(())
}

fn check_server(
    server: &ServerConfig,
    service: &ServiceConfig,
    tunnel: &Encapsulator,
) -> Result<(), ConfigError> {
    let wrong = |message: String| Err(at(&server.name, &message));
    let (addr, vip) = (Addr::from(server.address), Addr::from(service.vip));
    if is_no_host(addr) {
        return wrong(format!("{addr} is not a host address"));
    }
    if server.weight > WEIGHT_MAX {
        return wrong(format!("`weight` must be at most {WEIGHT_MAX}, not {}", server.weight));
    }
    if server.port.is_some() && (service.mode != ForwardingMode::Nat || service.port.single().is_none()) {
        return wrong(
            "a server can have its own `port` only in `nat` mode, and if the service has one port".into(),
        );
    }
    match service.mode {
        ForwardingMode::Nat if addr.version() != vip.version() => {
            wrong(format!("`nat` mode needs one IP version, got {addr} and {vip}"))
        }
        ForwardingMode::Ipip | ForwardingMode::Gue if addr == vip => {
            wrong("the server's address must differ from the service's".into())
        }
        ForwardingMode::Ipip | ForwardingMode::Gue if !tunnel.reaches(addr) => {
            wrong(format!("`tunnel.source{}` is needed to reach {addr}", addr.version()))
        }
        _ => Ok(()),
    }
}

fn check_names(what: &str, names: impl Iterator<Item = Located>) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.contains(|c: char| c == '/' || c.is_whitespace()) {
            return Err(at(
                &name,
                &format!("the name of a {what} must be nonempty, without whitespace or slashes"),
            ));
        }
        if !seen.insert(name.to_string()) {
            return Err(at(&name, &format!("duplicate {what} name")));
        }
    }
    Ok(())
}

/// Builds an error about a service or server.
fn at(name: &Located, message: &str) -> ConfigError {
    let message = format!("`{name}`: {message}");
    if name.origin().is_some() { name.error(0..name.len(), message) } else { ConfigError::new(message) }
}

fn is_no_host(addr: Addr) -> bool {
    let ip = addr.ip();
    ip.is_unspecified() || ip.is_multicast() || ip.is_loopback()
}

fn is_prime(number: u32) -> bool {
    number >= 2 && (2..).take_while(|d| d * d <= number).all(|d| !number.is_multiple_of(d))
}

#[cfg(test)]
mod tests;
