//! A port of the policy on its interface.

use io::port::{Interface, LinkState, TransmitBurst};
use l3::{EgressAction, IngressAction};
use packet::wire::MacAddress;
use packet::{DropReason, LinkType, Packet, PacketClass};

use super::Intake;
use super::l3::PortL3;
use crate::assembly::Assembly;
use crate::external::streams::StreamNode;
use crate::external::{NodeGate, PortTags};
use crate::report::InterfaceReport;
use crate::runner::{Frame, Ingress, Runner};

/// A port, its interface, and the L3 in between.
pub(super) struct LivePort {
    pub number: u16,
    pub interface: Interface,
    pub l3: PortL3,
    is_up: bool,
    /// For a port of an external node.
    gate: Option<NodeGate>,
    /// For a port of an external node through which attributes travel.
    tags: Option<PortTags>,
    /// For a port to a program that gets streams.
    streams: Option<StreamNode>,
    /// Packets that go past the node of the other port, with their tags in the graph's layout.
    bypassed: Vec<(Vec<u8>, u64)>,
    /// Frames to transmit.
    outbox: TransmitBurst,
    /// Buffer for a frame without its VLAN tag.
    untagged: Vec<u8>,
    /// Buffer for a frame that gets a tag.
    plain: Vec<u8>,
}

/// A change of an interface's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// The interface's name.
    pub interface: String,
    /// False if it is down or gone.
    pub is_up: bool,
    /// If another driver is in use now, the reason.
    pub fallback: Option<String>,
    /// The cause, if it is known: the peer that connected, or why the link is down.
    pub cause: Option<String>,
}

/// Outcome of a look at an interface.
pub(super) struct LinkCheck {
    pub change: Option<LinkChange>,
    /// The current state, unless the interface is gone.
    pub link: Option<LinkState>,
    /// The link came up, or the interface is another one of the same name.
    pub came_up: bool,
}

impl LivePort {
    pub fn new(number: u16, interface: Interface, l3: PortL3, assembly: &Assembly) -> LivePort {
        let (gate, tags) = (assembly.gate(number), assembly.port_tags(number));
        let streams = assembly.stream_nodes.iter().find(|node| node.port == number).cloned();
        let is_up = is_up(&interface);
        if let Some(gate) = &gate {
            gate.set_link(is_up);
        }
        LivePort {
            number,
            is_up,
            gate,
            tags,
            streams,
            bypassed: Vec::new(),
            interface,
            l3,
            outbox: TransmitBurst::default(),
            untagged: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// Hands a burst of received frames to the runner, except for frames that L3 consumes or drops.
    /// Returns whether there was one.
    pub fn receive(&mut self, now_ns: u64, runner: &mut Runner, intake: &mut impl Intake) -> bool {
        let (mut has_received, mut has_consumed) = (false, false);
        let received = self.interface.receive(|data| {
            has_received = true;
            if let Some(node) = &self.streams {
                node.answer(data);
                return;
            }
            if let Some(tags) = &self.tags {
                let (data, tags) = tags.read(data, &mut self.untagged);
                let Some(tags) = tags else {
                    return runner.refuse(self.number, data.len(), DropReason::TunnelMalformed);
                };
                let ingress = Ingress::Tagged(self.number, tags);
                return match self.l3.handle_ingress(data, now_ns) {
                    IngressAction::Forward => intake.receive(runner, frame(data, now_ns), ingress),
                    IngressAction::Drop(reason) => runner.refuse(self.number, data.len(), reason),
                    IngressAction::Consumed => has_consumed = true,
                };
            }
            let is_tagged = self.l3.is_router() && l3::untag(data, &mut self.untagged);
            let data = if is_tagged { &self.untagged[..] } else { data };
            match self.l3.handle_ingress(data, now_ns) {
                IngressAction::Forward => {
                    intake.receive(runner, frame(data, now_ns), Ingress::Port(self.number));
                }
                IngressAction::Drop(reason) => runner.refuse(self.number, data.len(), reason),
                IngressAction::Consumed => has_consumed = true,
            }
        });
        if has_consumed {
            // Packets with a newly resolved neighbour leave before this burst.
            self.collect();
        }
        // An interface that went down reports it once; a later look handles it.
        has_received && received.is_ok()
    }

    /// Drops a burst of received frames, which have waited while this process did not run. Returns
    /// whether there was one.
    pub fn drop_burst(&mut self, runner: &mut Runner) -> bool {
        let (number, mut has_received) = (self.number, false);
        let received = self.interface.receive(|data| {
            has_received = true;
            runner.refuse(number, data.len(), DropReason::ProcessStalled);
        });
        has_received && received.is_ok()
    }

    /// Adds a packet that leaves by the port to the burst; L3 may keep it until it knows the
    /// neighbour.
    pub fn enqueue(&mut self, packet: &Packet, now_ns: u64) {
        if self.tags.is_some() {
            return self.enqueue_tagged(packet, now_ns);
        }
        let frame = self.outbox.push(packet.data());
        if self.l3.handle_egress(frame, now_ns) == EgressAction::Consumed {
            self.outbox.pop();
        }
    }

    fn enqueue_tagged(&mut self, packet: &Packet, now_ns: u64) {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        plain.extend_from_slice(packet.data());
        if self.l3.handle_egress(&mut plain, now_ns) == EgressAction::Transmit {
            let (meta, is_ip) = (packet.meta(), packet.meta().class != PacketClass::NotIp);
            self.push_tagged(&plain, meta.transit.tags, if is_ip { meta.hash } else { 0 });
        }
        self.plain = plain;
    }

    /// Adds a frame to the burst, with the tag that these tags of a packet make.
    fn push_tagged(&mut self, plain: &[u8], tags: u64, entropy: u64) {
        let Some(port_tags) = &self.tags else { return };
        if port_tags.write(plain, tags, entropy, &mut self.untagged) {
            self.outbox.push(&self.untagged);
        } else if let Some(gate) = &self.gate {
            gate.count_too_long();
        }
    }

    /// Adds a frame for the program that gets streams of the node with this name. Returns false if
    /// the port is not that node's.
    pub fn enqueue_stream(&mut self, node: &str, frame: &[u8]) -> bool {
        let is_its = self.streams.as_ref().is_some_and(|streams| streams.name == node);
        if is_its {
            self.outbox.push(frame);
        }
        is_its
    }

    /// Returns the port where a packet that leaves here enters again: only at an external node that
    /// is down.
    #[inline]
    pub fn bypass_to(&self) -> Option<u16> {
        self.gate.as_ref().and_then(NodeGate::bypass)
    }

    /// Returns those of a packet's tags that go to a node, or past it.
    pub fn passing_tags(&self, packet: &Packet) -> u64 {
        self.tags.as_ref().map_or(0, |tags| tags.passing(packet.meta().transit.tags))
    }

    /// Keeps a packet that went past the node with these tags, until it enters here.
    pub fn bypass(&mut self, packet: &[u8], tags: u64) {
        self.bypassed.push((packet.to_vec(), tags));
    }

    /// Returns packets that went past the node, and their tags.
    pub fn take_bypassed(&mut self) -> Vec<(Vec<u8>, u64)> {
        std::mem::take(&mut self.bypassed)
    }

    /// Drops packets that went past the node and do not enter any more. Returns packets and bytes.
    pub fn drop_bypassed(&mut self) -> (u64, u64) {
        let packets = self.bypassed.len() as u64;
        if let Some(gate) = &self.gate {
            gate.count_drops(packets);
        }
        (packets, self.bypassed.drain(..).map(|(packet, _)| packet.len() as u64).sum())
    }

    /// Adds L3's frames to the burst.
    pub fn collect(&mut self) {
        for frame in self.l3.take_frames() {
            if self.tags.is_some() {
                self.push_tagged(&frame, 0, 0);
            } else {
                self.outbox.push(&frame);
            }
        }
    }

    /// Transmits the burst.
    pub fn transmit(&mut self) {
        self.collect();
        self.interface.send(&mut self.outbox);
    }

    /// Looks for a change of the interface's state, and opens it again if it was gone.
    pub fn check_link(&mut self) -> LinkCheck {
        let mode = self.interface.mode();
        // As long as there is no interface, the next look tries again.
        let is_another = self.interface.reopen().unwrap_or(false);
        let was_up = std::mem::replace(&mut self.is_up, is_up(&self.interface));
        if let Some(gate) = &self.gate {
            gate.set_link(self.is_up);
        }
        if let Some(node) = &self.streams {
            node.set_link(self.is_up);
        }
        let fallback = (self.interface.mode() != mode).then(|| self.interface.fallback()).flatten();
        let fallback = fallback.map(ToString::to_string);
        let cause = self.interface.take_reason();
        let has_changed = was_up != self.is_up || fallback.is_some() || cause.is_some();
        let change = has_changed.then(|| LinkChange {
            interface: self.interface.name().to_owned(),
            is_up: self.is_up,
            fallback,
            cause,
        });
        let came_up = is_another || change.as_ref().is_some_and(|change| change.is_up);
        LinkCheck { change, link: self.interface.link().ok(), came_up }
    }

    pub fn report(&mut self) -> InterfaceReport {
        InterfaceReport {
            name: self.interface.name().to_owned(),
            driver: self.interface.mode().to_owned(),
            counters: self.interface.counters(),
            host: self.l3.report(),
        }
    }
}

/// Returns the Ethernet addresses of the interfaces.
pub(super) fn mac_addresses<'a>(interfaces: impl Iterator<Item = &'a Interface>) -> Vec<MacAddress> {
    interfaces.filter_map(|interface| interface.link().ok()?.address.map(MacAddress)).collect()
}

pub(super) fn frame(data: &[u8], now_ns: u64) -> Frame<'_> {
    Frame { timestamp_ns: now_ns, link: LinkType::Ethernet, wire_len: data.len() as u32, data }
}

fn is_up(interface: &Interface) -> bool {
    interface.link().is_ok_and(|link| link.is_up)
}
