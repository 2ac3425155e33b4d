//! Events of the log: transitions of units, flows, ports and policies.
//!
//! [`EVENTS`] and the functions that emit them are generated from one declaration. An event without
//! a listener costs a comparison; none is emitted per packet of a known flow. Texts are
//! [`shown`](crate::shown): others may have chosen them.

use std::fmt::Display;

use tracing::Level;

/// Declaration of an event.
#[derive(Debug)]
pub struct LogEvent {
    /// Name.
    pub name: &'static str,
    /// Subsystem; filters select by it.
    pub target: &'static str,
    /// Severity.
    pub level: Level,
    /// Text of the log line.
    pub message: &'static str,
    /// Explanation, in the Markdown of the documentation.
    pub help: &'static str,
    /// Names of its fields.
    pub fields: &'static [&'static str],
}

macro_rules! events {
    ($(
        $(#[doc = $doc:literal])+
        $level:ident $target:literal $name:ident($($field:ident: $type:ident),*) = $message:literal;
    )+) => {
        /// All events.
        pub const EVENTS: &[LogEvent] = &[$(LogEvent {
            name: stringify!($name),
            target: $target,
            level: Level::$level,
            message: $message,
            help: concat!($($doc),+).trim_ascii(),
            fields: &[$(stringify!($field)),*],
        }),+];

        $(
            $(#[doc = $doc])+
            #[inline]
            pub fn $name($($field: parameter!($type)),*) {
                emit!([$level $target stringify!($name), $message] [] $($field: $type,)*);
            }
        )+
    };
}

macro_rules! parameter {
    (text) => { &dyn Display };
    ($number:ident) => { $number };
}

/// Emits an event; fields are taken one by one into the brackets.
macro_rules! emit {
    ([$level:ident $target:literal $name:expr, $message:literal] [$($done:tt)*]) => {
        tracing::event!(name: $name, target: $target, Level::$level, $($done)* $message)
    };
    ($head:tt [$($done:tt)*] $field:ident: text, $($rest:tt)*) => {
        emit!($head [$($done)* $field = %$crate::shown($field),] $($rest)*)
    };
    ($head:tt [$($done:tt)*] $field:ident: $number:ident, $($rest:tt)*) => {
        emit!($head [$($done)* $field,] $($rest)*)
    };
}

events! {
    /// A policy runs: `functions` and `ports` are their numbers.
    INFO "rivulet::policy" policy_applied(policy: text, functions: u64, ports: u64) = "policy applied";
    /// Packets of TCP connections from before the start do not pass these functions; each has what
    /// may be changed.
    INFO "rivulet::policy" connections_forgotten(functions: text) = "TCP connections from before the start end";
    /// There are more than two ports, and none of these has an address: hosts of one network find
    /// none of another.
    WARN "rivulet::policy" networks_unrouted(ports: text) = "ports have no address";
    /// The policy ended: packets received, and packets that left.
    INFO "rivulet::policy" policy_ended(policy: text, packets_in: u64, packets_out: u64) = "policy ended";
    /// Functions see only the outer packets of these tunnels; `advice` names the setting.
    WARN "rivulet::policy" tunnels_unparsed(advice: text) = "tunnels not inspected";
    /// A node of the cluster is connected.
    INFO "rivulet::cluster" peer_connected(node: text, address: text) = "node connected";
    /// A node has ended its link in order: it was drained, or comes back with another policy.
    INFO "rivulet::cluster" peer_left(node: text) = "node disconnected";
    /// A node is given up, or has ended its link: what it had is lost.
    WARN "rivulet::cluster" peer_lost(node: text) = "node lost";
    /// A node sends from another address than before; its link moves there.
    INFO "rivulet::cluster" link_moved(node: text, from: text, to: text) = "link moved";
    /// The largest IP packets that the path to a node carries are known, in bytes.
    INFO "rivulet::cluster" link_mtu_found(node: text, mtu: u64) = "path MTU found";
    /// The path to a node carries only smaller packets than before.
    WARN "rivulet::cluster" link_mtu_lowered(node: text, mtu: u64) = "path MTU lowered";
    /// The path to a node carries larger packets than before.
    INFO "rivulet::cluster" link_mtu_raised(node: text, mtu: u64) = "path MTU raised";
    /// The interface to a node carries no packets of `mtu` bytes, as links need.
    WARN "rivulet::cluster" link_too_narrow(node: text, mtu: u64) = "path MTU too small";
    /// Two nodes have the same name: the one at `address` stays, the `other` one is refused.
    WARN "rivulet::cluster" name_taken(node: text, address: text, other: text) = "node name taken";
    /// A node was silent for this time: it keeps its flows, and new ones go elsewhere.
    WARN "rivulet::cluster" peer_suspect(node: text, silent_ms: u64) = "node suspect";
    /// A node is silent, and its host has refused two connections: the process has ended.
    WARN "rivulet::cluster" process_gone(node: text) = "process gone";
    /// A suspect node answers again, after this time, and gets new flows.
    INFO "rivulet::cluster" peer_heard(node: text, silent_ms: u64) = "node heard again";
    /// A dispatcher begins with this many of the units that it wants.
    INFO "rivulet::cluster" dispatcher_began(ready: u64, wanted: u64) = "dispatcher began";
    /// A dispatcher begins without all units that it wants, and takes the others in when they come.
    WARN "rivulet::cluster" units_missing(ready: u64, wanted: u64, awaited: text) = "units missing";
    /// Another process of a node has replaced one that was alive a moment ago: it was restarted, or
    /// two processes have the same name.
    WARN "rivulet::cluster" peer_replaced(node: text) = "node replaced";
    /// This process did not run for this time, so that others may have given it up: it sends
    /// nothing until they answer.
    WARN "rivulet::cluster" process_stalled(stalled_ms: u64) = "process stalled";
    /// The node runs another policy from now on. The one before may be that of its file, which is
    /// older than that of the cluster.
    INFO "rivulet::cluster" policy_changed(policy: text, number: u64, before: text) = "policy changed";
    /// The policy of the cluster is kept in this folder for the next start.
    INFO "rivulet::cluster" policy_shelf(folder: text) = "policies are kept";
    /// The node begins with the policy that was applied to its cluster, as the store or its own
    /// state has it. Its `file` is another one.
    INFO "rivulet::cluster" policy_from_shelf(policy: text, number: u64, place: text, file: text) = "policy of the cluster in place of the file";
    /// The policy of the cluster could not be kept for the next start. Nodes keep running it.
    WARN "rivulet::cluster" policy_not_kept(policy: text, reason: text) = "policy not kept";
    /// The present policy of the cluster cannot be run at this node, or at another one, which gets
    /// no flows.
    WARN "rivulet::cluster" policy_unfit(policy: text, node: text, reason: text) = "policy cannot be run";
    /// Another policy goes to all nodes.
    INFO "rivulet::cluster" rollout_started(policy: text) = "rollout started";
    /// A node gives its flows away, to come back with the policy.
    INFO "rivulet::cluster" rollout_node(policy: text, node: text) = "rollout reached a node";
    /// All nodes that are there run the policy.
    INFO "rivulet::cluster" rollout_done(policy: text) = "rollout done";
    /// A rollout has stopped.
    WARN "rivulet::cluster" rollout_failed(policy: text, reason: text) = "rollout failed";
    /// A node that connected was refused, or a node could not be reached. `peer`: its name or
    /// address, or both. Further ones of the same peer are counted for 30 seconds.
    WARN "rivulet::cluster" peer_refused(peer: text, reason: text) = "node refused";
    /// The peer was refused as many times again within `seconds`; `reason`: the last time's.
    WARN "rivulet::cluster" peer_refused_again(peer: text, refusals: u64, seconds: u64, reason: text)
        = "node refused again";
    /// The store of the cluster cannot be reached, or has something unexpected. Nodes keep running.
    WARN "rivulet::cluster" store_failed(reason: text) = "store failed";
    /// A node has read its certificate, key, authority or list of revoked certificates again.
    INFO "rivulet::cluster" certificates_read(file: text) = "certificates read";
    /// Changed certificates cannot be used; those of before stay in use.
    WARN "rivulet::cluster" certificates_unusable(file: text, reason: text) = "certificates not used";
    /// The node's own certificate ends soon: renew it (`rivulet cluster renew`).
    WARN "rivulet::cluster" certificate_ends(node: text, hours: u64) = "certificate ends soon";
    /// The node's own certificate has ended: other nodes refuse it, and live links stay up.
    ERROR "rivulet::cluster" certificate_ended(node: text) = "certificate has ended";
    /// The secrets of a link could not be written to the file of RIVULET_KEYLOG.
    WARN "rivulet::cluster" key_log_failed(reason: text) = "secrets not written";
    /// A command of `--control` was executed.
    INFO "rivulet::policy" command_executed(place: text, command: text) = "command executed";
    /// A function refused a command of `--control` at its time.
    WARN "rivulet::policy" command_refused(place: text, command: text, reason: text) = "command refused";
    /// A port was opened with this driver.
    INFO "rivulet::port" driver_chosen(port: text, interface: text, driver: text) = "driver chosen";
    /// The preferred driver does not work here, so another one is in use.
    WARN "rivulet::port" driver_fallback(interface: text, reason: text) = "driver not used";
    /// An interface came up.
    INFO "rivulet::port" port_up(interface: text, cause: text) = "interface up";
    /// An interface went down or is gone.
    WARN "rivulet::port" port_down(interface: text, cause: text) = "interface down";
    /// The program of an external node was started, as this process.
    INFO "rivulet::node" node_started(node: text, process: u64) = "program started";
    /// The program of an external node ended; it is started again.
    WARN "rivulet::node" node_ended(node: text, reason: text) = "program ended";
    /// The program of an external node wrote a line.
    INFO "rivulet::node" node_output(node: text, line: text) = "program output";
    /// The program of an external node writes more, or longer lines, than go to the log. Further
    /// ones are counted in the report; let it write a log of its own.
    WARN "rivulet::node" node_output_limited(node: text) = "program output limited";
    /// A capture ended early, or has packets that are not processed.
    WARN "rivulet::input" input_incomplete(reason: text) = "input incomplete";
    /// An output cannot be written; it is tried again.
    WARN "rivulet::output" output_failed(output: text, reason: text) = "output failed";
    /// A failed output works again.
    INFO "rivulet::output" output_recovered(output: text) = "output recovered";
    /// An output lacks records at the end of the run.
    ERROR "rivulet::output" output_incomplete(reason: text) = "output incomplete";
    /// All outputs were opened again after a signal.
    INFO "rivulet::output" outputs_reopened() = "outputs reopened";
    /// A neighbour did not answer, and packets for it were dropped.
    DEBUG "rivulet::l3" neighbour_unresolved(packets: u64) = "neighbour unresolved";
    /// Code that processes packets panicked at a place for the first time; the process continues.
    ERROR "rivulet::runtime" panicked(place: text, message: text) = "panic contained";
    /// The system has no more memory: the process continues with its reserve, and no new flow
    /// begins.
    WARN "rivulet::runtime" memory_short() = "memory used up";
    /// There is memory for the reserve again: new flows begin.
    WARN "rivulet::runtime" memory_regained() = "memory available again";
    /// A thread of a unit continues after a panic outside of functions; its flows began again.
    ERROR "rivulet::unit" unit_restarted(restarts: u64) = "unit restarted";
    /// The dispatcher orders a unit to start.
    INFO "rivulet::unit" unit_started(unit: u64, running: u64) = "unit started";
    /// The dispatcher takes a unit's flows away, to stop it.
    INFO "rivulet::unit" unit_drained(unit: u64) = "unit drained";
    /// An operator makes a draining unit active again.
    INFO "rivulet::unit" unit_resumed(unit: u64) = "unit resumed";
    /// A drained unit stops.
    INFO "rivulet::unit" unit_stopped(unit: u64) = "unit stopped";
    /// A flowlet was assigned to a unit.
    TRACE "rivulet::flow" flow_assigned(unit: u64, fits: bool) = "flow assigned";
    /// A unit requests a flow's state from the previous owner.
    DEBUG "rivulet::flow" handover_asked(flow: text, epoch: u64, from: text) = "handover asked";
    /// The previous owner sends a flow's state.
    DEBUG "rivulet::flow" handover_answered(flow: text, epoch: u64, to: text) = "handover answered";
    /// The next owner refused a flow's state, so the flow stays.
    WARN "rivulet::flow" handover_refused(flow: text, epoch: u64, from: text) = "handover refused";
    /// A refused state could not be taken back, so its flow began again.
    WARN "rivulet::flow" state_lost(flow: text) = "state lost";
    /// A replica was evicted for others, or had no room.
    DEBUG "rivulet::flow" replica_dropped(flow: text) = "replica dropped";
    /// Another flow has the key that a flow has after its rewrites.
    DEBUG "rivulet::flow" alias_conflict(flow: text) = "alias conflict";
}
