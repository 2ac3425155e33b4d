//! Attack packets. All are IPv4, from the clients' side.

use super::endpoints::Endpoints;
use super::frame::{
    AddressPair, Buffer, ETHERNET_BYTES, Envelope, IPV4_BYTES, Tcp, VLAN_BYTES, flags, fold, sum,
};
use super::generated::FrameKind;
use super::profile::Attacks;
use super::random::Random;

/// Payload of attack datagrams: it makes the shortest frame.
const PAYLOAD: [u8; 18] = [0; 18];

/// Generates attacks.
#[derive(Debug)]
pub(super) struct Attacker {
    shares: Attacks,
    random: Random,
    /// Ports scanned so far.
    scanned: u64,
}

impl Attacker {
    pub fn new(shares: Attacks, random: Random) -> Attacker {
        Attacker { shares, random, scanned: 0 }
    }

    /// Returns the kind of attack of the next packet, if it is one.
    pub fn choose(&mut self) -> Option<FrameKind> {
        let total = self.shares.total();
        if total <= 0.0 {
            return None;
        }
        let mut place = self.random.unit();
        let kinds = [
            (FrameKind::PortScan, self.shares.port_scan),
            (FrameKind::SynFlood, self.shares.syn_flood),
            (FrameKind::UdpFlood, self.shares.udp_flood),
            (FrameKind::Land, self.shares.land),
            (FrameKind::Malformed, self.shares.malformed),
        ];
        for (kind, share) in kinds {
            if place < share {
                return Some(kind);
            }
            place -= share;
        }
        None
    }

    /// Writes a packet of a kind; returns the frame's length. `envelope` has the Ethernet addresses
    /// and the tag.
    pub fn write(
        &mut self,
        kind: FrameKind,
        envelope: Envelope,
        endpoints: &Endpoints,
        buffer: &mut Buffer,
    ) -> usize {
        let draw = self.random.bits();
        let (sequence, port) = (draw as u32, (draw >> 32) as u16);
        let envelope = Envelope { ident: (draw >> 48) as u16, ..envelope };
        let between =
            |source, destination| Envelope { addresses: AddressPair::V4 { source, destination }, ..envelope };
        let syn = |source_port, destination_port| Tcp {
            source_port,
            destination_port,
            sequence,
            acknowledgement: 0,
            flags: flags::SYN,
        };
        let victim = endpoints.server_v4(0);
        match kind {
            FrameKind::PortScan => {
                let servers = endpoints.servers_v4();
                let (server, target_port) = (self.scanned % servers, self.scanned / servers % 65_535 + 1);
                self.scanned += 1;
                let envelope = between(endpoints.client_v4(0), endpoints.server_v4(server));
                envelope.tcp(buffer, &syn(port | 0x8000, target_port as u16), &[])
            }
            FrameKind::SynFlood => {
                let source = spoofed(self.random.bits());
                between(source, victim).tcp(buffer, &syn(port, endpoints.first_server_port()), &[])
            }
            FrameKind::UdpFlood => {
                let bits = self.random.bits();
                between(spoofed(bits), victim).udp(buffer, port, (bits >> 32) as u16, &PAYLOAD)
            }
            FrameKind::Land => {
                let server = endpoints.server_v4(draw >> 32);
                let port = endpoints.first_server_port();
                between(server, server).tcp(buffer, &syn(port, port), &[])
            }
            _ => {
                let source = endpoints.client_v4(draw >> 32);
                self.write_malformed(
                    &between(source, victim),
                    &syn(port | 0x400, endpoints.first_server_port()),
                    buffer,
                )
            }
        }
    }

    /// Writes a whole packet with one defect.
    fn write_malformed(&mut self, envelope: &Envelope, tcp: &Tcp, buffer: &mut Buffer) -> usize {
        let ip = ETHERNET_BYTES + envelope.vlan.map_or(0, |_| VLAN_BYTES);
        let transport = ip + IPV4_BYTES;
        let defect = Defect::ALL[self.random.below(Defect::ALL.len() as u64) as usize];
        let tcp = match defect {
            Defect::TcpSynFin => Tcp { flags: flags::SYN | flags::FIN | flags::RST, ..*tcp },
            Defect::TcpNoFlags => Tcp { flags: 0, ..*tcp },
            _ => *tcp,
        };
        let length = match defect {
            Defect::UdpChecksum
            | Defect::UdpLengthShort
            | Defect::UdpLengthLong
            | Defect::FragmentBeyondEnd => {
                envelope.udp(buffer, tcp.source_port, tcp.destination_port, &PAYLOAD)
            }
            _ => envelope.tcp(buffer, &tcp, &[]),
        };
        let mut set = |at: usize, bytes: &[u8]| buffer[at..at + bytes.len()].copy_from_slice(bytes);
        match defect {
            Defect::IpChecksum | Defect::TcpSynFin | Defect::TcpNoFlags => {}
            Defect::IpVersion => set(ip, &[0x55]),
            Defect::IpHeaderShort => set(ip, &[0x44]),
            Defect::IpHeaderLong => set(ip, &[0x4f]),
            Defect::IpLengthLong => set(ip + 2, &[0xff, 0xff]),
            Defect::IpLengthBelowHeader => set(ip + 2, &[0, 10]),
            Defect::IpLengthCutsTransport => set(ip + 2, &[0, 24]),
            Defect::FragmentBeyondEnd => set(ip + 6, &[0x1f, 0xff]),
            Defect::TcpHeaderShort => set(transport + 12, &[0x20]),
            Defect::TcpHeaderLong => set(transport + 12, &[0xf0]),
            Defect::TcpChecksum => buffer[transport + 16] ^= 0x5a,
            Defect::UdpChecksum => buffer[transport + 6] ^= 0x5a,
            Defect::UdpLengthShort => set(transport + 4, &[0, 3]),
            Defect::UdpLengthLong => set(transport + 4, &[0x20, 0]),
        }
        seal_ipv4(&mut buffer[ip..transport]);
        if defect == Defect::IpChecksum {
            buffer[ip + 10] ^= 0x5a;
        }
        length
    }
}

/// The defect of a malformed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    IpChecksum,
    IpVersion,
    IpHeaderShort,
    IpHeaderLong,
    IpLengthLong,
    IpLengthBelowHeader,
    IpLengthCutsTransport,
    FragmentBeyondEnd,
    TcpHeaderShort,
    TcpHeaderLong,
    TcpSynFin,
    TcpNoFlags,
    TcpChecksum,
    UdpChecksum,
    UdpLengthShort,
    UdpLengthLong,
}

impl Defect {
    const ALL: [Defect; 16] = [
        Defect::IpChecksum,
        Defect::IpVersion,
        Defect::IpHeaderShort,
        Defect::IpHeaderLong,
        Defect::IpLengthLong,
        Defect::IpLengthBelowHeader,
        Defect::IpLengthCutsTransport,
        Defect::FragmentBeyondEnd,
        Defect::TcpHeaderShort,
        Defect::TcpHeaderLong,
        Defect::TcpSynFin,
        Defect::TcpNoFlags,
        Defect::TcpChecksum,
        Defect::UdpChecksum,
        Defect::UdpLengthShort,
        Defect::UdpLengthLong,
    ];
}

/// Returns a spoofed source: an address between 1.0.0.0 and 223.255.255.255, including private and
/// reserved ones.
fn spoofed(bits: u64) -> [u8; 4] {
    let [first, second, third, fourth] = (bits as u32).to_be_bytes();
    [first % 223 + 1, second, third, fourth]
}

/// Corrects an IPv4 header's checksum, so that the other defect is found.
fn seal_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = !fold(sum(header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}
