//! Ports, network interfaces, and what L3 does for them.

use serde::Serialize;
use telemetry::record;

record! {
    /// Packets and bytes of a port.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct PortReport [port] {
        /// Packets received by a port.
        pub packets_in: u64 = counter("port_packets_received"),
        /// Bytes received by a port.
        pub bytes_in: u64 = counter("port_bytes_received"),
        /// Packets sent by a port.
        pub packets_out: u64 = counter("port_packets_sent"),
        /// Bytes sent by a port.
        pub bytes_out: u64 = counter("port_bytes_sent"),
    }
}

record! {
    /// The program of an external node.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct ProgramReport [program] {
        /// `legacy` or `native`.
        pub kind: String,
        /// 1 while the node's program runs and its ports are up, else 0.
        pub up: u64 = gauge("program_up"),
        /// Starts of the program after it ended.
        pub restarts: u64 = counter("program_restarts"),
        /// Packets that arrived at the node while it was down, and were dropped: `node-down`.
        pub dropped: u64 = counter("program_packets_dropped"),
        /// Packets that bypassed the node while it was down. They count as sent by one of its ports
        /// and received by the other.
        pub bypassed: u64 = counter("program_packets_bypassed"),
        /// Packets to the program that are too long for the tunnel of their tags, and were lost.
        /// They count as sent by the node's port.
        pub too_long: u64 = counter("program_packets_too_long"),
        /// Packets that came back from the program without a tag, though attributes travel with
        /// them. Their attributes are 0.
        pub untagged: u64 = counter("program_packets_untagged"),
        /// Tags of the program with bits that no attribute has, or malformed. The packet's
        /// attributes are 0; without a readable tunnel header, it is dropped (`tunnel-malformed`).
        pub bad_tags: u64 = counter("program_tags_bad"),
        /// Packets that passed the node as if its program had forwarded them: only `rivulet up`
        /// runs it. They count as sent by one of its ports and received by the other.
        pub assumed: u64 = counter("program_packets_assumed"),
        /// Lines of the program's output that are not in the log: more than 500 at once or 20 per
        /// second.
        pub lines_dropped: u64 = counter("program_output_lines_dropped"),
        /// Lines of the program's output that are cut in the log, after 1,024 bytes.
        pub lines_cut: u64 = counter("program_output_lines_cut"),
        /// Answers of a program that gets streams.
        pub answers: u64 = counter("program_answers"),
        /// Frames of a program that gets streams that are no answers.
        pub bad_answers: u64 = counter("program_answers_bad"),
        /// The reason of the program's last end; empty if it has not ended.
        pub last_end: String,
    }
}

record! {
    /// The frames of a port's network interface.
    ///
    /// On a wire, `received` is the port's `packets_in`, and `sent`, `too_long`, `no_room` and
    /// `down` together are its `packets_out`. With L3 between them, `received` and the host's
    /// `returned` are `packets_in` and the host's `consumed`; frames sent or lost are `packets_out`
    /// without the host's `withheld`, and with its `generated`.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct InterfaceReport [interface] {
        /// The interface's name.
        pub name: String,
        /// The [driver](drivers/README.md) and its mode: `packet`, `xdp_driver_zero_copy`,
        /// `xdp_driver_copy`, `xdp_generic_copy`, `tap`, `memif` or `dpdk`.
        pub driver: String,
        /// Frames and bytes.
        #[serde(flatten)]
        pub counters: io::port::Counters = hidden_sum(),
        /// L3 of a port with addresses, or of a wire's that answers for a function's; see below.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub host: Option<HostReport> = nested(),
    }
}

impl InterfaceReport {
    /// Returns the frames that were not received or not sent.
    pub fn lost(&self) -> u64 {
        let io::port::Counters { missed, unreadable, too_long, no_room, down, .. } = self.counters;
        missed + unreadable + too_long + no_room + down
    }
}

record! {
    /// The work of L3 at a port.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct HostReport [interface] {
        /// Counters of the port.
        #[serde(flatten)]
        pub counters: l3::Counters = hidden_sum(),
        /// Packets that wait for a neighbour's address.
        pub pending: u64 = gauge("l3_packets_pending"),
    }
}
