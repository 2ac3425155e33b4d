//! The ingress ports of flows: replies leave by them.
//!
//! Stored apart from flow records: most graphs have one port on each side and do not need it.

use packet::{Meta, NO_PORT};

/// For each record and direction, the last ingress port of the flow's packets.
pub(crate) struct Ingresses {
    of: Vec<[u16; 2]>,
}

impl Ingresses {
    /// Creates the ports of n records.
    pub fn new(records: u32) -> Ingresses {
        Ingresses { of: vec![[NO_PORT; 2]; records as usize] }
    }

    /// Forgets a record's ports: another flow has it.
    pub fn forget(&mut self, record: u32) {
        if let Some(ports) = self.of.get_mut(record as usize) {
            *ports = [NO_PORT; 2];
        }
    }

    /// Notes the ingress port of a packet that has joined its flow. Its egress becomes the ingress
    /// port of the other direction, if one is known.
    #[inline]
    pub fn join(&mut self, meta: &mut Meta) {
        if let Some(ports) = self.of.get_mut(meta.transit.flow as usize) {
            let direction = meta.transit.direction;
            ports[direction.index()] = meta.transit.ingress;
            meta.transit.egress = ports[direction.other().index()];
        }
    }

    /// Sets the egress port of a packet that a function made for the flow.
    pub fn place_made(&self, meta: &mut Meta) {
        let ports = self.of.get(meta.transit.flow as usize);
        meta.transit.egress = ports.map_or(NO_PORT, |ports| ports[meta.transit.direction.other().index()]);
    }
}
