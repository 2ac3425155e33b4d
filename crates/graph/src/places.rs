//! Places of ports: they distinguish flows with the same addresses and ports that enter at
//! different ports.
//!
//! A port's place is its tenant and its segment, a part of each key of packets that enter there.
//! Packets of a flow that leave by a port of another place have replies with that place in their
//! keys, so it is the alias's.

use nf::record::RecordHeader;
use packet::{FlowKey, Side, TENANT_MAX, Transit};
use zerocopy::{FromBytes, IntoBytes};

/// The place of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPlace {
    /// Number of the port.
    pub port: u16,
    /// The side that packets enter by there; `None` if they may take edges of both directions.
    pub side: Option<Side>,
    /// See [`FlowKey::place`].
    pub place: u16,
    /// It belongs to an external node, so the flow continues in another segment.
    pub is_of_node: bool,
}

/// The places of a graph's ports; none if all have the same.
#[derive(Default)]
pub(crate) struct Places {
    /// By number of the port.
    by_port: Vec<Option<u16>>,
    /// For each side, the place of its ports, in a graph that is a line: all ports of a side have
    /// the same.
    by_side: [u16; 2],
    /// A flow may have its ends in different segments.
    are_crossed: bool,
}

impl Places {
    /// Creates the places of these ports.
    pub fn new(ports: &[PortPlace]) -> Places {
        let of_side = |side| ports.iter().find(|of| of.side == Some(side)).map_or(0, |of| of.place);
        let len = ports.iter().map(|of| usize::from(of.port) + 1).max().unwrap_or(0);
        let mut by_port = vec![None; len];
        ports.iter().for_each(|of| by_port[usize::from(of.port)] = Some(of.place));
        let are_crossed = ports.iter().any(|of| of.is_of_node);
        Places { by_port, by_side: [Side::Inside, Side::Outside].map(of_side), are_crossed }
    }

    /// Returns the place of a port; `None` if it has none, or all have the same.
    #[inline]
    pub fn of_port(&self, port: u16) -> Option<u16> {
        self.by_port.get(usize::from(port)).copied().flatten()
    }

    /// Changes a key to that of a packet that arrives where this one leaves.
    pub fn leave(&self, key: &mut FlowKey, transit: &Transit) {
        if !self.by_port.is_empty() {
            // In a line, packets leave by the other side, and no edge names the port.
            let opposite = self.by_side[transit.side.other() as usize];
            key.place = self.of_port(transit.egress).unwrap_or(opposite);
        }
    }

    /// Returns an alias as messages between nodes have it: without its segment, which is that of
    /// its flow's key. Programs of the version before know no other segments than those between
    /// external nodes.
    pub fn alias_to_send(&self, mut alias: FlowKey) -> FlowKey {
        if !self.are_crossed {
            alias.place = FlowKey::place_of(alias.tenant(), 0);
        }
        alias
    }

    /// Returns a sent alias of the flow with this key as it is.
    pub fn sent_alias(&self, mut alias: FlowKey, key: &FlowKey) -> FlowKey {
        if !self.are_crossed {
            alias.place = FlowKey::place_of(alias.tenant(), key.segment());
        }
        alias
    }

    /// Removes the segments from the keys of a saved record: they follow from the ports of its
    /// route, so that programs of the version before can read it, too.
    pub fn strip(record: &mut [u8]) {
        Places::change(record, |header| {
            for key in [&mut header.key, &mut header.alias] {
                key.place = FlowKey::place_of(key.tenant(), 0);
            }
        });
    }

    /// Sets the segments in the keys of a saved record to those of the ports at the ends of its
    /// route.
    pub fn set(&self, record: &mut [u8], (from, to): (u16, u16)) {
        // The saved tenant stays.
        let at = |port, key: &FlowKey| Some(self.of_port(port)? & !TENANT_MAX | key.tenant());
        Places::change(record, |header| {
            header.key.place = at(from, &header.key).unwrap_or(header.key.place);
            if header.has(RecordHeader::FLAG_ALIAS) {
                header.alias.place = at(to, &header.alias).unwrap_or(header.alias.place);
            }
        });
    }

    /// Sets the segment in the key of a saved second pass to that of its flow's.
    pub fn set_as(second: &mut [u8], record: &[u8]) {
        let Ok((flow, _)) = RecordHeader::read_from_prefix(record) else { return };
        Places::change(second, |header| {
            header.key.place = FlowKey::place_of(header.key.tenant(), flow.key.segment());
        });
    }

    fn change(record: &mut [u8], change: impl FnOnce(&mut RecordHeader)) {
        if let Ok((mut header, _)) = RecordHeader::read_from_prefix(record) {
            change(&mut header);
            record[..size_of::<RecordHeader>()].copy_from_slice(header.as_bytes());
        }
    }

    /// Returns true if all ports have one place.
    pub fn is_empty(&self) -> bool {
        self.by_port.is_empty()
    }
}
