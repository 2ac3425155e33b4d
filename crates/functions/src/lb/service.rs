//! Services and their servers, built from a configuration and changed by an operator's commands.

use std::collections::BTreeSet;
use std::ops::Range;

use nf::ControlError;
use packet::{Addr, Endpoint, FlowHasher, FlowKey, Scope};
use values::ConfigError;

use super::check;
use super::config::{Config, DownAction, ForwardingMode, Scheduler, ServerAffinity, ServicePorts};
use super::directory::{Directory, DirectoryEntry};
use super::maglev::{Candidate, MaglevTable, WEIGHT_MAX};
use super::quic::ServerIds;
use super::tunnel::Encapsulator;

/// Maximum number of servers named in an error.
const SERVERS_NAMED_MAX: usize = 10;

/// A virtual service.
#[derive(Clone, Debug)]
pub struct VirtualService {
    name: String,
    /// Forwarding mode.
    pub mode: ForwardingMode,
    /// Treatment of a server's flows when it goes down.
    pub on_down: DownAction,
    /// Fields that determine the server.
    pub affinity: ServerAffinity,
    /// Number of the service.
    pub number: u16,
    /// Servers by server ID in QUIC connection IDs.
    pub quic_ids: ServerIds,
    scheduler: Scheduler,
    table_size: u32,
    table: MaglevTable,
    /// Numbers of its servers.
    members: Range<usize>,
}

/// A server of a service.
#[derive(Clone, Debug)]
pub struct RealServer {
    name: String,
    /// Number of its service.
    pub service: u16,
    /// Address.
    pub addr: Addr,
    /// Port, if different from the client's destination port.
    pub port: Option<u16>,
    /// Status.
    pub status: ServerStatus,
    /// Relative share of new flows; 0: none.
    pub weight: u16,
}

/// Status of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStatus {
    /// Takes new flows.
    Up,
    /// Keeps its flows and takes no new ones.
    Draining,
    /// Takes no packets.
    Down,
}

/// All services of a load balancer.
#[derive(Clone, Debug)]
pub struct ServiceTable {
    services: Vec<VirtualService>,
    servers: Vec<RealServer>,
    /// Services by virtual address.
    vips: Directory,
    /// Endpoints of `nat` services and of their servers.
    origins: Directory,
    hasher: FlowHasher,
    seed: u64,
}

impl ServiceTable {
    /// Returns whether all services rewrite, and none encapsulates.
    pub fn all_rewrite(&self) -> bool {
        self.services.iter().all(|service| service.mode == ForwardingMode::Nat)
    }

    /// Returns whether clients of a server that is down may get resets.
    pub fn may_reset(&self) -> bool {
        self.services.iter().any(|service| service.on_down == DownAction::Reset)
    }

    /// Returns the hash of a QUIC connection by these words.
    pub fn hash_words(&self, &[a, b, c]: &[u64; 3]) -> u64 {
        self.hasher.hash_words(&[a, b, c, 0, 0, 0])
    }

    /// Checks a configuration and builds the tables.
    pub fn new(config: &Config, tunnel: &Encapsulator, seed: u64) -> Result<ServiceTable, ConfigError> {
        check::config(config, tunnel)?;
        let (mut services, mut servers) = (Vec::new(), Vec::new());
        let (mut vips, mut origins) = (Vec::new(), Vec::new());
        for (number, service) in config.services.iter().enumerate() {
            let target = number as u16; // Below SERVICES_MAX.
            let entry = |addr, ports: ServicePorts| DirectoryEntry {
                addr,
                protocol: service.protocol,
                ports: (ports.first, ports.last),
                target,
            };
            vips.push(entry(service.vip.into(), service.port));
            let first = servers.len();
            for server in &service.servers {
                let addr = Addr::from(server.address);
                if service.mode == ForwardingMode::Nat {
                    let ports =
                        server.port.map_or(service.port, |port| ServicePorts { first: port, last: port });
                    origins.push(entry(addr, ports));
                    origins.push(entry(service.vip.into(), service.port));
                }
                servers.push(RealServer {
                    name: server.name.to_string(),
                    service: target,
                    addr,
                    port: server.port,
                    status: if server.down { ServerStatus::Down } else { ServerStatus::Up },
                    weight: server.weight,
                });
            }
            services.push(VirtualService {
                name: service.title().to_string(),
                mode: service.mode,
                on_down: service.on_down,
                affinity: service.affinity,
                number: target,
                quic_ids: ServerIds::of(&service.servers, first),
                scheduler: service.scheduler,
                table_size: service.table_size,
                table: MaglevTable::default(),
                members: first..servers.len(),
            });
        }
        let (vips, origins) = (Directory::new(vips), Directory::new(origins));
        let mut all = ServiceTable { services, servers, vips, origins, hasher: FlowHasher::new(seed), seed };
        for service in 0..all.services.len() {
            all.rebuild(service);
        }
        Ok(all)
    }

    /// Returns the number of the service at this endpoint of a packet with protocol `number`.
    pub fn find(&self, at: Endpoint, protocol: u8) -> Option<u16> {
        self.vips.find(at, protocol)
    }

    /// Returns whether any service has this address.
    pub fn is_vip(&self, addr: Addr) -> bool {
        self.vips.has(addr)
    }

    /// Returns whether this endpoint is a server of a `nat` service or the service itself. Both
    /// speak only through the load balancer.
    pub fn is_origin(&self, at: Endpoint, protocol: u8) -> bool {
        self.origins.find(at, protocol).is_some()
    }

    /// Returns the service with this number.
    #[inline]
    pub fn service(&self, number: u16) -> Option<&VirtualService> {
        self.services.get(number as usize)
    }

    /// Returns the server with this number.
    #[inline]
    pub fn server(&self, number: u16) -> Option<&RealServer> {
        self.servers.get(number as usize)
    }

    /// Returns the number of the server at this address, in the service with this number.
    pub fn server_at(&self, addr: Addr, service: u16) -> Option<u16> {
        let members = self.service(service)?.members.clone();
        self.servers[members.clone()].iter().position(|s| s.addr == addr).map(|i| (members.start + i) as u16)
    }

    /// Returns `SERVICE/SERVER` for each server, in numerical order.
    pub fn server_names(&self) -> impl Iterator<Item = String> {
        self.servers
            .iter()
            .map(|server| format!("{}/{}", self.services[server.service as usize].name, server.name))
    }

    /// Returns the hash of a connection of this service, which is the same for both directions and
    /// for quoted packets in ICMP errors.
    pub fn hash(&self, service: &VirtualService, client: Endpoint, vip: Endpoint, protocol: u8) -> u64 {
        let version = client.addr.version();
        let (key, _) = match service.affinity {
            ServerAffinity::Connection | ServerAffinity::Quic => {
                FlowKey::new(client, vip, protocol, version, Scope::default(), 0)
            }
            ServerAffinity::Source => {
                let client = Endpoint::new(client.addr, 0);
                FlowKey::new(client, Endpoint::default(), 0, version, Scope::default(), 0)
            }
        };
        self.hasher.hash(&key)
    }

    /// Executes `server [SERVICE/]NAME up|down|drain` or `weight [SERVICE/]NAME N`.
    pub fn control(&mut self, command: &str) -> Result<(), ControlError> {
        let (change, servers) = self.parse_command(command)?;
        let mut changed = BTreeSet::new();
        for number in servers {
            change.apply(&mut self.servers[number]);
            changed.insert(usize::from(self.servers[number].service));
        }
        for service in changed {
            self.rebuild(service);
        }
        Ok(())
    }

    /// Checks a command without executing it.
    pub fn check_command(&self, command: &str) -> Result<(), ControlError> {
        self.parse_command(command).map(drop)
    }

    /// Parses a command into a change and the numbers of the servers concerned, at least one.
    fn parse_command(&self, command: &str) -> Result<(ServerUpdate, Vec<usize>), ControlError> {
        let words: Vec<_> = command.split_whitespace().collect();
        let change = match words[..] {
            ["server", _, "up"] => ServerUpdate::Status(ServerStatus::Up),
            ["server", _, "down"] => ServerUpdate::Status(ServerStatus::Down),
            ["server", _, "drain"] => ServerUpdate::Status(ServerStatus::Draining),
            ["weight", _, weight] => match weight.parse() {
                Ok(weight) if weight <= WEIGHT_MAX => ServerUpdate::Weight(weight),
                _ => {
                    return Err(ControlError(format!(
                        "expected a weight from 0 to {WEIGHT_MAX}, got `{weight}`"
                    )));
                }
            },
            _ => {
                let forms = "`server [SERVICE/]NAME up|down|drain` or `weight [SERVICE/]NAME N`";
                return Err(ControlError(format!("expected {forms}, got `{command}`")));
            }
        };
        let (service, name) = words[1].split_once('/').map_or((None, words[1]), |(s, name)| (Some(s), name));
        let is_meant = |server: &RealServer| {
            let of = &self.services[usize::from(server.service)].name;
            server.name == name && service.is_none_or(|service| of == service)
        };
        let servers = self.servers.iter().enumerate().filter(|(_, server)| is_meant(server));
        let servers: Vec<_> = servers.map(|(number, _)| number).collect();
        if servers.is_empty() {
            let known: Vec<_> = self.server_names().take(SERVERS_NAMED_MAX).collect();
            let more = if self.servers.len() > known.len() { ", ..." } else { "" };
            let known = known.join(", ");
            return Err(ControlError(format!(
                "there is no server `{}`; known servers: {known}{more}",
                words[1]
            )));
        }
        Ok((change, servers))
    }

    fn rebuild(&mut self, number: usize) {
        let service = &mut self.services[number];
        let candidates: Vec<_> = service
            .members
            .clone()
            .map(|number| (number, &self.servers[number]))
            .filter(|(_, server)| server.status == ServerStatus::Up)
            .map(|(number, server)| Candidate {
                number: number as u16,
                name: &server.name,
                weight: server.weight,
            })
            .collect();
        service.table = match service.scheduler {
            Scheduler::Maglev => MaglevTable::maglev(&candidates, service.table_size, self.seed),
            Scheduler::Hash => MaglevTable::modulo(&candidates),
        };
    }
}

impl VirtualService {
    /// Returns the server for a connection with this hash; none if no server is up.
    #[inline]
    pub fn pick(&self, hash: u64) -> Option<u16> {
        self.table.pick(hash)
    }
}

#[derive(Clone, Copy)]
enum ServerUpdate {
    Status(ServerStatus),
    Weight(u16),
}

impl ServerUpdate {
    fn apply(self, server: &mut RealServer) {
        match self {
            ServerUpdate::Status(status) => server.status = status,
            ServerUpdate::Weight(weight) => server.weight = weight,
        }
    }
}
