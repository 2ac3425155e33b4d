//! Addresses on the links of a policy's ports.

use packet::Addr;

/// Addresses on the links of a policy's ports, if the policy gives them.
#[derive(Clone, Debug)]
pub struct LinkAddresses {
    /// The first and the last address of each port's networks; `None` if ports have none, as on a
    /// wire: any address may be on their links.
    networks: Option<Vec<(Addr, Addr)>>,
    /// Addresses that no function can have, each with its role on the link.
    taken: Vec<(Addr, String)>,
}

impl Default for LinkAddresses {
    /// Returns links with nothing on them, as of captures.
    fn default() -> LinkAddresses {
        LinkAddresses { networks: Some(Vec::new()), taken: Vec::new() }
    }
}

impl LinkAddresses {
    /// Returns unknown links.
    pub fn unknown() -> LinkAddresses {
        LinkAddresses { networks: None, taken: Vec::new() }
    }

    /// Adds a network on a link, by its first and last address.
    pub fn add_network(&mut self, first: Addr, last: Addr) {
        self.networks.get_or_insert_default().push((first, last));
    }

    /// Adds an address that is no host's, or a neighbour's: its role names it in messages, such as
    /// "the gateway of `outside`".
    pub fn add_taken(&mut self, address: Addr, role: String) {
        self.taken.push((address, role));
    }

    /// Checks if a neighbour may have the address.
    pub fn may_have(&self, address: Addr) -> bool {
        let number = address.to_u128();
        let contains = |&(first, last): &(Addr, Addr)| (first.to_u128()..=last.to_u128()).contains(&number);
        self.networks.as_ref().is_none_or(|networks| networks.iter().any(contains))
    }

    /// Checks if a neighbour may have an address of the range.
    pub fn overlaps(&self, first: Addr, last: Addr) -> bool {
        let (first, last) = (first.to_u128(), last.to_u128());
        let overlaps = |(from, to): &(Addr, Addr)| from.to_u128() <= last && first <= to.to_u128();
        self.networks.as_ref().is_none_or(|networks| networks.iter().any(overlaps))
    }

    /// Returns the role of an address that no function can have.
    pub fn role_of(&self, address: Addr) -> Option<&str> {
        self.taken.iter().find(|(taken, _)| *taken == address).map(|(_, role)| &**role)
    }

    /// Returns the addresses of a range that no function can have, with their roles.
    pub fn taken_in(&self, first: Addr, last: Addr) -> impl Iterator<Item = (Addr, &str)> {
        let range = first.to_u128()..=last.to_u128();
        let within = self.taken.iter().filter(move |(address, _)| range.contains(&address.to_u128()));
        within.map(|(address, role)| (*address, &**role))
    }
}
