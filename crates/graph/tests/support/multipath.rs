//! Multipath TCP connections, as their hosts send them (RFC 8684).
#![allow(dead_code)] // Not every test needs all of it.

use packet::mptcp::MptcpVersion;
use packet::wire::mptcp::*;
use packet::{Endpoint, Packet};

use super::packets::tcp_with_options_and_payload;

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;

/// A connection.
#[derive(Clone, Copy, Debug)]
pub struct MultipathConnection {
    pub version: MptcpVersion,
    /// Keys of the host that begins it, and of the other one.
    pub keys: [u64; 2],
}

/// A sub-flow of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Subflow {
    /// The end that begins the sub-flow, and the other one.
    pub ends: [Endpoint; 2],
    /// Sequence numbers of their SYNs.
    pub first: [u32; 2],
    /// Bytes that they have sent.
    pub sent: [u32; 2],
    /// Random numbers, for a sub-flow that joins.
    pub nonces: [u32; 2],
}

impl Subflow {
    pub fn new(begins: Endpoint, accepts: Endpoint, number: u32) -> Subflow {
        let first = [number.wrapping_mul(0x9e37_79b9), number.wrapping_mul(0x85eb_ca6b)];
        Subflow { ends: [begins, accepts], first, sent: [0; 2], nonces: [!first[0], !first[1]] }
    }

    /// Returns a packet from one end, with these options of Multipath TCP.
    fn packet(&self, from: usize, flags: u8, options: &[Repr], payload: &[u8]) -> Vec<u8> {
        let after_syn = u32::from(flags & SYN == 0);
        let sequence = self.first[from].wrapping_add(after_syn).wrapping_add(self.sent[from]);
        let acknowledged = match flags & ACK {
            0 => 0,
            _ => self.first[1 - from].wrapping_add(1).wrapping_add(self.sent[1 - from]),
        };
        let mut bytes = Vec::new();
        for option in options {
            let len = option.buffer_len();
            bytes.extend([30, 2 + len as u8]);
            bytes.resize(bytes.len() + len, 0);
            let at = bytes.len() - len;
            option.emit(&mut bytes[at..]).unwrap();
        }
        bytes.resize(bytes.len().next_multiple_of(4), 1);
        tcp_with_options_and_payload(
            self.ends[from],
            self.ends[1 - from],
            flags,
            [sequence, acknowledged],
            &bytes,
            payload,
        )
    }
}

impl MultipathConnection {
    pub fn new(version: MptcpVersion, number: u64) -> MultipathConnection {
        let key = |salt: u64| (number ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        MultipathConnection { version, keys: [key(0x5bd1_e995), key(0xc2b2_ae35)] }
    }

    fn capable(&self, keys: CapableKeys) -> Repr {
        let version = self.version as u8;
        Repr::Capable(MptcpCapable { version, checksums: false, uses_hmac: true, keys })
    }

    /// The three packets that begin the connection; the first and the last one are of the host that
    /// begins it.
    pub fn begin(&self, subflow: &Subflow) -> [Vec<u8>; 3] {
        let [sender, receiver] = self.keys;
        let of_syn = match self.version {
            MptcpVersion::V0 => CapableKeys::Sender(sender),
            MptcpVersion::V1 => CapableKeys::None,
        };
        let both = CapableKeys::Both { sender, receiver, data: None };
        [
            subflow.packet(0, SYN, &[self.capable(of_syn)], &[]),
            subflow.packet(1, SYN | ACK, &[self.capable(CapableKeys::Sender(receiver))], &[]),
            subflow.packet(0, ACK, &[self.capable(both)], &[]),
        ]
    }

    /// The first data of the host that begins the connection, in version 1: its third packet again.
    pub fn first_data(&self, subflow: &mut Subflow, payload: &[u8]) -> Vec<u8> {
        let [sender, receiver] = self.keys;
        let both = CapableKeys::Both { sender, receiver, data: Some((payload.len() as u16, None)) };
        let packet = subflow.packet(0, PSH | ACK, &[self.capable(both)], payload);
        subflow.sent[0] += payload.len() as u32;
        packet
    }

    /// Returns the three packets that join a sub-flow from a host of the connection; host 0 began
    /// it.
    pub fn join(&self, subflow: &Subflow, host: usize) -> [Vec<u8>; 3] {
        let ([own, others], [nonce, answer]) = ([self.keys[host], self.keys[1 - host]], subflow.nonces);
        let token = self.version.token(others);
        let syn = MptcpJoin::Syn { backup: false, address_id: 1, token, nonce };
        let code = self.version.join_hmac([others, own], [answer, nonce]);
        let hmac = *code.first_chunk().unwrap();
        let syn_ack = MptcpJoin::SynAck { backup: false, address_id: 0, hmac, nonce: answer };
        let ack = MptcpJoin::Ack { hmac: self.version.join_hmac([own, others], subflow.nonces) };
        [
            subflow.packet(0, SYN, &[Repr::Join(syn)], &[]),
            subflow.packet(1, SYN | ACK, &[Repr::Join(syn_ack)], &[]),
            subflow.packet(0, ACK, &[Repr::Join(ack)], &[]),
        ]
    }

    /// Data of a host, from the `offset`th byte of its stream on, from the `from`th end of a
    /// sub-flow.
    pub fn data(
        &self,
        subflow: &mut Subflow,
        (from, host): (usize, usize),
        offset: u32,
        payload: &[u8],
    ) -> Vec<u8> {
        let first = self.version.initial_data_number(self.keys[host]) as u32;
        let mapping = DataMapping {
            data: DataNumber::Short(first.wrapping_add(1).wrapping_add(offset)),
            subflow: 1 + subflow.sent[from],
            len: payload.len() as u16,
            checksum: None,
        };
        let ack = Some(DataNumber::Short(0));
        let signal = DataSequenceSignal { data_fin: false, ack, mapping: Some(mapping) };
        let packet = subflow.packet(from, PSH | ACK, &[Repr::DataSequence(signal)], payload);
        subflow.sent[from] += payload.len() as u32;
        packet
    }

    /// A segment of these bytes of a sub-flow with this mapping.
    pub fn segment(&self, subflow: &Subflow, mapping: Option<DataMapping>, payload: &[u8]) -> Vec<u8> {
        let signal = DataSequenceSignal { data_fin: false, ack: Some(DataNumber::Short(0)), mapping };
        subflow.packet(0, ACK, &[Repr::DataSequence(signal)], payload)
    }
}

/// Returns a parsed packet.
pub fn parsed(network: &[u8]) -> Packet {
    let mut packet = Packet::from_bytes(&super::packets::frame(network));
    packet::Parser::new(packet::FlowHasher::new(0)).parse(&mut packet).unwrap();
    packet
}
