//! IPv6-to-IPv6 network prefix translation (RFC 6296): stateless and checksum-neutral.

use std::collections::BTreeSet;

use nf::{Context, LinkAddresses};
use packet::{Addr, Side, split_mix};
use values::ConfigError;

use super::config::Nptv6Config;

/// Maximum number of prefix pairs.
pub const RULES_MAX: usize = 64;

/// Maximum number of configured hosts.
pub const HOSTS_MAX: usize = 1_024;
/// Maximum number of hosts inside that are known to use an outside address; the first one is
/// forgotten.
pub const HOSTS_SEEN_MAX: u32 = 65_536;
/// Index of their set in the descriptor.
pub const HOSTS: usize = 1;

/// Outside addresses that stand for hosts inside, where neighbours may have others of the prefix.
pub struct OutsideHosts {
    /// Those of configured hosts.
    configured: BTreeSet<Addr>,
    links: LinkAddresses,
    has_neighbours: bool,
}

impl OutsideHosts {
    /// Translates the configured hosts of these pairs.
    pub fn new(
        pairs: &[Nptv6Config],
        rules: &[Nptv6Rule],
        links: &LinkAddresses,
    ) -> Result<OutsideHosts, ConfigError> {
        let mut configured = BTreeSet::new();
        for (pair, rule) in pairs.iter().zip(rules) {
            for &host in &pair.hosts {
                let Some(Translated::To(outside)) = rule.outwards(host.into()) else {
                    let message = format!("nptv6: hosts: {host} has no address of the outside prefix");
                    return Err(ConfigError::new(message));
                };
                configured.insert(outside);
            }
        }
        if configured.len() > HOSTS_MAX {
            return Err(ConfigError::new(format!("nptv6: more than {HOSTS_MAX} hosts")));
        }
        let has_neighbours = rules.iter().any(|rule| {
            let (first, last) = rule.outside();
            links.overlaps(first, last)
        });
        Ok(OutsideHosts { configured, links: links.clone(), has_neighbours })
    }

    /// Returns the outside addresses of configured hosts.
    pub fn configured(&self) -> impl Iterator<Item = Addr> {
        self.configured.iter().copied()
    }

    /// Returns true if neighbours may have addresses of an outside prefix.
    pub fn has_neighbours(&self) -> bool {
        self.has_neighbours
    }

    /// Notes that a host inside uses this outside address.
    pub fn note(&self, outside: Addr, context: &mut Context<'_>) {
        if self.has_neighbours {
            let now_ns = context.now_ns();
            context.set(HOSTS).add(member(outside), now_ns);
        }
    }

    /// Returns true if a packet from inside to an outside address is a neighbour's: one may have
    /// the address, and no host inside is known to use it.
    pub fn is_neighbour(&self, destination: Addr, context: &mut Context<'_>) -> bool {
        self.has_neighbours
            && context.side() == Side::Inside
            && self.links.may_have(destination)
            && !self.configured.contains(&destination)
            && context.set(HOSTS).added_ns(member(destination)).is_none()
    }
}

/// Returns an address as a member of a set.
fn member(address: Addr) -> u64 {
    let number = address.to_u128();
    split_mix(&mut (number as u64 ^ split_mix(&mut ((number >> 64) as u64))))
}

/// A prefix pair with its checksum adjustment.
#[derive(Clone, Copy, Debug)]
pub struct Nptv6Rule {
    inside: u128,
    outside: u128,
    mask: u128,
    /// One's complement addend to one word of each outgoing address (RFC 6296 3.1).
    adjustment: u16,
    /// If set, the adjusted word is the subnet, bits 48 to 63 (prefixes up to /48); otherwise it is
    /// a word of the interface identifier.
    in_subnet: bool,
}

/// Result of translating an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translated {
    /// Address on the other side.
    To(Addr),
    /// The prefix matches, but the other side has no such address (RFC 6296 3.3, 3.5).
    Unmappable,
}

impl Nptv6Rule {
    /// Builds the rule of a configured pair. Pads the shorter prefix with zeros (RFC 6296 3.1).
    pub fn new(pair: &Nptv6Config) -> Result<Nptv6Rule, ConfigError> {
        let len = pair.inside.len.max(pair.outside.len);
        if len > 64 || len == 0 {
            return Err(ConfigError::new("nptv6: prefixes have 1 to 64 bits (RFC 6296 3.5)"));
        }
        Ok(Nptv6Rule {
            inside: pair.inside.network,
            outside: pair.outside.network,
            mask: u128::MAX << (128 - u32::from(len)),
            adjustment: subtract(sum(pair.inside.network), sum(pair.outside.network)),
            in_subnet: len <= 48,
        })
    }

    /// Returns the first and the last address of the outside prefix.
    pub fn outside(&self) -> (Addr, Addr) {
        (Addr::from_u128(self.outside), Addr::from_u128(self.outside | !self.mask))
    }

    /// Translates an inside address; none without the inside prefix.
    pub fn outwards(&self, address: Addr) -> Option<Translated> {
        let outer = self.translate(address, self.inside, self.outside, self.adjustment)?;
        Some(if self.is_for_routers(address) { Translated::Unmappable } else { outer })
    }

    /// Translates an outside address; none without the outside prefix.
    pub fn inwards(&self, address: Addr) -> Option<Translated> {
        match self.translate(address, self.outside, self.inside, subtract(0, self.adjustment))? {
            Translated::To(inner) if self.is_for_routers(inner) => Some(Translated::Unmappable),
            inner => Some(inner),
        }
    }

    /// Returns whether the translation would change an all-zero interface identifier: the
    /// subnet-router anycast address (RFC 6296 3.5).
    fn is_for_routers(&self, inner: Addr) -> bool {
        !self.in_subnet && inner.to_u128() << 64 == 0
    }

    fn translate(&self, address: Addr, from: u128, to: u128, adjustment: u16) -> Option<Translated> {
        let number = address.to_u128();
        if address.is_v4() || number & self.mask != from {
            return None;
        }
        let swapped = number & !self.mask | to;
        // Uses the first word that is not all ones: such a word would come back as all zeros.
        let mut words = if self.in_subnet { 3..4 } else { 4..8 };
        let Some(word) = words.find(|&word| word_of(swapped, word) != 0xffff) else {
            return Some(Translated::Unmappable);
        };
        let adjusted = match add(word_of(swapped, word), adjustment) {
            0xffff => 0,
            adjusted => adjusted,
        };
        let shift = 112 - 16 * word;
        let number = swapped & !(0xffff << shift) | u128::from(adjusted) << shift;
        Some(Translated::To(Addr::from_u128(number)))
    }
}

/// Returns word `word` (0 to 7) of an address.
fn word_of(address: u128, word: u32) -> u16 {
    (address >> (112 - 16 * word)) as u16
}

/// Returns the one's complement sum of an address's words.
fn sum(address: u128) -> u16 {
    (0..8).fold(0, |total, word| add(total, word_of(address, word)))
}

fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

fn subtract(a: u16, b: u16) -> u16 {
    add(a, !b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::net::Prefix6;
    use proptest::prelude::*;
    use std::net::Ipv6Addr;

    fn rule(inside: &str, outside: &str) -> Nptv6Rule {
        let prefix = |text: &str| Prefix6::try_from(text.to_owned()).unwrap();
        let pair = Nptv6Config { inside: prefix(inside), outside: prefix(outside), hosts: Vec::new() };
        Nptv6Rule::new(&pair).unwrap()
    }

    fn addr(text: &str) -> Addr {
        text.parse::<Ipv6Addr>().unwrap().into()
    }

    #[test]
    fn example_of_rfc_6296_section_3_6() {
        let rule = rule("fd01:203:405::/48", "2001:db8:1::/48");
        let (inner, outer) = (addr("fd01:203:405:1::1234"), addr("2001:db8:1:d550::1234"));
        assert_eq!(rule.outwards(inner), Some(Translated::To(outer)));
        assert_eq!(rule.inwards(outer), Some(Translated::To(inner)));
        assert_eq!(rule.outwards(outer), None);
        assert_eq!(rule.outwards(addr("fd01:203:405:ffff::1")), Some(Translated::Unmappable));
    }

    #[test]
    fn longer_prefixes_adjust_the_interface_identifier() {
        let rule = rule("fd01:203:405:100::/56", "2001:db8:1:200::/56");
        for (inner, word) in [("fd01:203:405:1ab::1234", 4), ("fd01:203:405:1ab:ffff:ffff:7:1", 6)] {
            let Some(Translated::To(outer)) = rule.outwards(addr(inner)) else { panic!("{inner}") };
            assert_eq!(word_of(outer.to_u128(), 3), 0x02ab);
            assert_ne!(word_of(outer.to_u128(), word), word_of(addr(inner).to_u128(), word));
            assert_eq!(rule.inwards(outer), Some(Translated::To(addr(inner))));
        }
        assert_eq!(rule.outwards(addr("fd01:203:405:1ab::")), Some(Translated::Unmappable));
        let ones = addr("fd01:203:405:1ab:ffff:ffff:ffff:ffff");
        assert_eq!(rule.outwards(ones), Some(Translated::Unmappable));
    }

    proptest! {
        /// Translation there and back yields the same address and leaves the checksum unchanged.
        #[test]
        fn is_neutral_and_reversible(
            len in 1u8..=64, other in 1u8..=64, inside: u128, outside: u128, host: u128,
        ) {
            let cut = |network: u128, len: u8| Prefix6 {
                network: network & Prefix6 { network: 0, len }.mask(), len,
            };
            let (inside, outside) = (cut(inside, len), cut(outside, other));
            prop_assume!(!Addr::from_u128(inside.network).is_v4());
            let rule = Nptv6Rule::new(&Nptv6Config { inside, outside, hosts: Vec::new() }).unwrap();
            let longest = Prefix6 { network: 0, len: len.max(other) };
            let inner = Addr::from_u128(inside.network | host & !longest.mask());
            match rule.outwards(inner) {
                Some(Translated::To(outer)) => {
                    prop_assert!(outside.contains(outer.to_u128()));
                    prop_assert_eq!(sum(inner.to_u128()) % 0xffff, sum(outer.to_u128()) % 0xffff);
                    prop_assert_eq!(rule.inwards(outer), Some(Translated::To(inner)));
                }
                Some(Translated::Unmappable) => {}
                None => prop_assert!(inner.is_v4()),
            }
        }
    }
}
