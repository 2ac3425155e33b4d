//! The division of external ports and blocks among affinity groups, so that several nodes of a
//! cluster never allocate the same one. On one machine everything is one share.

use std::ops::Range;

use nf::{AffinityGroup, AffinityGroups};
use packet::{Packet, PacketClass, Side};
use values::ConfigError;

use super::config::{BlockConfig, Config, MappingBehaviour};
use super::net::{PortRange, v4};
use super::space::{ExternalPort, PortClass};
use super::{Nat, PRIVILEGED};

/// External ports per affinity group below which a NAT is refused: one of each parity.
const SHARE_MIN: u32 = 2;

/// The shares of affinity groups in the ports and blocks of each external address.
pub struct PortShares {
    groups: Option<AffinityGroups>,
    /// All ports; ICMP identifiers are allocated from these.
    all: PortRange,
    /// Ranges from which privileged and all other ports are allocated.
    low: Option<PortRange>,
    high: PortRange,
    /// Ports per block and blocks per address, if ports are allocated in blocks.
    blocks: Option<(u16, u32)>,
}

impl PortShares {
    /// Divides the ports of a configuration among these groups.
    pub fn new(config: &Config, groups: Option<AffinityGroups>) -> Result<PortShares, ConfigError> {
        let range = |first, last| config.ports.overlap(PortRange { first, last });
        let low = range(1, PRIVILEGED - 1);
        // If the configuration excludes one range, the other range serves both.
        let high = range(PRIVILEGED, u16::MAX).unwrap_or(config.ports);
        let blocks =
            config.blocks.map(|BlockConfig { size, .. }| (size, high.count() / u32::from(size.max(1))));
        let shares = PortShares { groups, all: config.ports, low, high, blocks };
        if let Some(groups) = groups.filter(|_| !config.external.is_empty()) {
            shares.check(config, groups)?;
        }
        Ok(shares)
    }

    /// Checks that each group gets a share, and that mappings can move.
    fn check(&self, config: &Config, groups: AffinityGroups) -> Result<(), ConfigError> {
        let count = u32::from(groups.count());
        if config.mapping != MappingBehaviour::EndpointIndependent {
            return Err(ConfigError::new(
                "mapping: where units are at several nodes, expected `endpoint_independent`: other mappings \
                 cannot move",
            ));
        }
        if let Some((_, per_address)) = self.blocks.filter(|(_, per_address)| *per_address < count) {
            return Err(ConfigError::new(format!(
                "blocks: {per_address} blocks per address, expected at least one for each of {count} affinity \
                 groups; make `size` smaller, or set `affinity_groups`"
            )));
        }
        if self.high.count() < SHARE_MIN * count {
            return Err(ConfigError::new(format!(
                "ports: {} ports, expected at least {SHARE_MIN} for each of {count} affinity groups; widen \
                 `ports`, or set `affinity_groups`",
                self.high.count()
            )));
        }
        Ok(())
    }

    /// Returns the range for an inside port (RFC 4787 REQ-3).
    pub fn range_for(&self, class: PortClass, inside: u16) -> PortRange {
        match self.low {
            _ if class == PortClass::Icmp => self.all,
            Some(low) if inside < PRIVILEGED && self.divides(low) => low,
            _ => self.high,
        }
    }

    /// Returns the ports for an inside port that a flow of this group may have; none of a flow
    /// without a group if there are groups.
    pub fn share_for(
        &self,
        class: PortClass,
        inside: u16,
        group: Option<AffinityGroup>,
    ) -> Option<PortRange> {
        let range = self.range_for(class, inside);
        let Some(groups) = self.groups else { return Some(range) };
        let share = groups.share(group?, range.count());
        // Within the range, so both fit 16 bits.
        let [first, end] = [share.start, share.end].map(|at| u32::from(range.first) + at);
        (first < end).then(|| PortRange { first: first as u16, last: (end - 1) as u16 })
    }

    /// Returns the blocks of one address that a flow of this group may have.
    pub fn blocks_for(&self, group: Option<AffinityGroup>) -> Range<u32> {
        let per_address = self.blocks_per_address();
        match (self.groups, group) {
            (None, _) => 0..per_address,
            (Some(groups), Some(group)) => groups.share(group, per_address),
            (Some(_), None) => 0..0,
        }
    }

    /// Returns the number of blocks of one address.
    pub fn blocks_per_address(&self) -> u32 {
        self.blocks.map_or(0, |(_, per_address)| per_address)
    }

    /// Returns the ports from 1024 on, which blocks divide.
    pub fn high(&self) -> PortRange {
        self.high
    }

    /// Returns a port's group.
    pub fn group_of(&self, class: PortClass, port: u16) -> Option<AffinityGroup> {
        let groups = self.groups?;
        let of_range = |range: PortRange| {
            let number = u32::from(port.checked_sub(range.first)?);
            groups.of_numbered(number, range.count())
        };
        if let Some((size, per_address)) = self.blocks {
            let number = u32::from(port.checked_sub(self.high.first)?) / u32::from(size);
            return groups.of_numbered(number, per_address);
        }
        match self.low {
            _ if class == PortClass::Icmp => of_range(self.all),
            Some(low) if low.contains(port) && low != self.high => {
                of_range(low).filter(|_| self.divides(low))
            }
            _ => of_range(self.high),
        }
    }

    /// Returns true if each group gets a share of a range.
    fn divides(&self, range: PortRange) -> bool {
        self.groups.is_none_or(|groups| range.count() >= SHARE_MIN * u32::from(groups.count()))
    }
}

impl Nat {
    /// Returns the affinity group of the flow that this packet begins: the subscriber's, which the
    /// external port has, too. Protocols without ports meet by their outside host, since two inside
    /// hosts must not get one external address towards it.
    pub(super) fn affinity_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup> {
        let meta = packet.meta();
        // The key of an ICMP error is that of the flow that it is about.
        let has_ports = meta.class != PacketClass::LaterFragment && meta.class != PacketClass::NotIp;
        if meta.version != 4 || !has_ports {
            return None; // Prefixes are translated without state.
        }
        let class = PortClass::of(meta.key.protocol);
        let (source, destination) = meta.key.ends(meta.reversed);
        match (meta.transit.side, class) {
            (Side::Inside, PortClass::Other) => Some(groups.of_remote(destination.addr, &meta.key)),
            (Side::Outside, PortClass::Other) => Some(groups.of_remote(source.addr, &meta.key)),
            (Side::Inside, _) => Some(groups.of_subscriber(source.addr, &meta.key)),
            (Side::Outside, _) => match self.forwards.inwards(class, destination) {
                Some(internal) => Some(groups.of_subscriber(internal.addr, &meta.key)),
                None => {
                    self.space.number_of(v4(destination.addr)?)?;
                    self.shares.group_of(class, destination.port)
                }
            },
        }
    }

    /// Returns true if flows of this group may use the mapping of this port. Another group may be
    /// at another node.
    pub(super) fn is_in_reach(&self, place: ExternalPort, group: Option<AffinityGroup>) -> bool {
        match self.shares.group_of(place.class, place.port) {
            Some(of_port) => group == Some(of_port),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shares(config: &Config, groups: u16) -> Result<PortShares, ConfigError> {
        PortShares::new(config, AffinityGroups::new(groups, 3))
    }

    fn config(ports: PortRange, size: Option<u16>) -> Config {
        let external = vec!["203.0.113.1".to_owned().try_into().unwrap()];
        let blocks = size.map(|size| BlockConfig { size, max: 1 });
        Config { external, ports, blocks, ..Config::default() }
    }

    proptest! {
        /// Each port that a group may get belongs to that group, so no two groups share one.
        #[test]
        fn port_names_the_group_that_may_have_it(first in 1u16..3000, count in 300u16..60_000, groups in 1u16..129) {
            let ports = PortRange { first, last: first.saturating_add(count) };
            // Fewer ports from 1024 on are refused.
            let high = ports.overlap(PortRange { first: PRIVILEGED, last: u16::MAX }).unwrap_or(ports);
            prop_assume!(high.count() >= SHARE_MIN * u32::from(groups));
            let shares = shares(&config(ports, None), groups).unwrap();
            for group in (0..groups).map(AffinityGroup) {
                for (class, inside) in [(PortClass::Tcp, 80), (PortClass::Udp, 5000), (PortClass::Icmp, 80)] {
                    let share = shares.share_for(class, inside, Some(group)).unwrap();
                    prop_assert!(share.count() >= 2);
                    for port in [share.first, share.first + 1, share.last] {
                        prop_assert_eq!(shares.group_of(class, port), Some(group));
                    }
                }
            }
            prop_assert_eq!(shares.share_for(PortClass::Tcp, 80, None), None);
        }

        /// The same with blocks: a port's group is that of its block.
        #[test]
        fn block_names_the_group_that_may_have_it(size in 1u16..500, groups in 1u16..129) {
            let shares = shares(&config(PortRange { first: 1, last: u16::MAX }, Some(size)), groups).unwrap();
            for group in (0..groups).map(AffinityGroup) {
                let blocks = shares.blocks_for(Some(group));
                prop_assert!(!blocks.is_empty());
                for block in [blocks.start, blocks.end - 1] {
                    let port = shares.high().first + (block * u32::from(size)) as u16;
                    for port in [port, port + (size - 1)] {
                        prop_assert_eq!(shares.group_of(PortClass::Udp, port), Some(group));
                    }
                }
            }
        }
    }

    #[test]
    fn one_machine_has_everything() {
        let shares = PortShares::new(&config(PortRange { first: 1, last: u16::MAX }, None), None).unwrap();
        assert_eq!(shares.share_for(PortClass::Tcp, 80, None), Some(PortRange { first: 1, last: 1023 }));
        assert_eq!(shares.group_of(PortClass::Tcp, 80), None);
    }

    #[test]
    fn privileged_ports_that_cannot_be_divided_are_not_used() {
        let shares = shares(&config(PortRange { first: 1000, last: 65_000 }, None), 64).unwrap();
        let share = shares.share_for(PortClass::Tcp, 80, Some(AffinityGroup(0))).unwrap();
        assert_eq!(share.first, 1024);
        assert_eq!(shares.group_of(PortClass::Tcp, 1010), None);
    }

    #[test]
    fn too_few_ports_or_blocks_are_refused() {
        let few = config(PortRange { first: 5000, last: 5100 }, None);
        assert!(shares(&few, 64).err().unwrap().to_string().contains("at least 2 for each of 64"));
        let large = config(PortRange { first: 1, last: u16::MAX }, Some(2048));
        assert!(shares(&large, 64).err().unwrap().to_string().contains("31 blocks per address"));
        let mapping = MappingBehaviour::AddressDependent;
        let other = Config { mapping, ..config(PortRange { first: 1, last: u16::MAX }, None) };
        assert!(shares(&other, 64).err().unwrap().to_string().contains("endpoint_independent"));
    }
}
