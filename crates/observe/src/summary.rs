//! Summary of a run as text.

use std::collections::BTreeMap;

use ::io::port::Counters;
use runtime::Report;
use runtime::elastic::UnitsReport;
use runtime::report::{RuleReport, WorkerReport};

use crate::picture;
use crate::text::{Table, duration, rate, thousands};

/// Rules of a function that are shown, those with the most packets.
const RULES_SHOWN: usize = 10;

fn most_hit(rules: &[RuleReport]) -> Vec<&RuleReport> {
    let mut hit: Vec<_> = rules.iter().filter(|rule| rule.flows + rule.packets > 0).collect();
    hit.sort_by_key(|rule| std::cmp::Reverse(rule.packets));
    hit.truncate(RULES_SHOWN);
    hit
}

/// Renders the report as text.
pub fn of(report: &Report) -> String {
    let mut text = String::new();
    let mut totals = Table::new(&["", "packets", "bytes"]);
    let mut total = |name: &str, packets: u64, bytes: Option<u64>| {
        totals.row(vec![name.to_owned(), thousands(packets), bytes.map_or_else(String::new, thousands)]);
    };
    total("in", report.packets_in, Some(report.bytes_in));
    total("generated", report.packets_generated, None);
    total("out", report.packets_out, Some(report.bytes_out));
    total("dropped", report.dropped(), None);
    total("pending", report.packets_pending, None);
    text += &totals.render();
    if !report.drops.is_empty() {
        let mut drops = Table::new(&["drops", "packets", "meaning"]);
        for (&reason, &count) in &report.drops {
            let meaning =
                packet::DropReason::ALL.iter().find(|r| r.name() == reason).map_or("", |r| r.meaning());
            drops.row(vec![reason.to_owned(), thousands(count), meaning.to_owned()]);
        }
        text += "\n";
        text += &drops.render();
    }
    text += &losses(report);
    text += &nodes(report);
    let mut functions = Table::new(&["function", "type", "packets", "drops", "cycles/packet"]);
    for function in &report.functions {
        functions.row(vec![
            function.name.clone(),
            function.kind.to_owned(),
            thousands(function.packets),
            thousands(function.drops),
            function.cycles_per_packet.map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.0}")),
        ]);
    }
    if !report.functions.is_empty() {
        text += "\n";
        text += &functions.render();
    }
    if !report.edges.is_empty() {
        let mut edges = Table::new(&["edge", "packets", "bytes"]);
        for (name, edge) in &report.edges {
            edges.row(vec![name.clone(), thousands(edge.packets), thousands(edge.bytes)]);
        }
        text += "\n";
        text += &edges.render();
    }
    for function in &report.functions {
        let counters: Vec<_> = function.counters.iter().filter(|(_, of)| of.count > 0).collect();
        if !counters.is_empty() {
            let shown = counters.iter().map(|(name, of)| format!("{name} {}", thousands(of.count)));
            text += &format!("\n{}: {}", function.name, shown.collect::<Vec<_>>().join(", "));
        }
        for rule in most_hit(&function.rules) {
            let bytes = rule.bytes.map_or(String::new(), |bytes| format!(", bytes {}", thousands(bytes)));
            let place = if rule.place.is_empty() { String::new() } else { format!(" ({})", rule.place) };
            text += &format!(
                "\n{}: {}{place}: flows {}, packets {}{bytes}",
                function.name,
                rule.name,
                thousands(rule.flows),
                thousands(rule.packets)
            );
        }
        for (name, pool) in &function.pools {
            let (in_use, peak, size) =
                (thousands(pool.in_use.into()), thousands(pool.peak.into()), pool.size);
            text += &format!(
                "\n{}: {name} {in_use} in use, peak {peak}, of {}",
                function.name,
                thousands(size.into())
            );
        }
    }
    let flows = &report.flows;
    text += &format!(
        "\nflows: {} started, peak {}, {} live at the end",
        thousands(flows.started),
        thousands(flows.peak),
        thousands(flows.live)
    );
    if let evicted @ 1.. = report.flows_evicted() {
        text += &format!(", {} evicted", thousands(evicted));
    }
    text += "\n";
    let named = |counts: &BTreeMap<&str, u64>| {
        counts
            .iter()
            .map(|(name, &count)| format!("{name} {}", thousands(count)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if !flows.evicted.is_empty() {
        text += &format!(
            "evicted from a full table of {}, by class: {}; {} of sources above their share\n",
            thousands(flows.size),
            named(&flows.evicted),
            thousands(flows.evicted_over_source)
        );
    }
    if !report.fragments_displaced.is_empty() {
        text += &format!("fragmented datagrams evicted, by limit: {}\n", named(&report.fragments_displaced));
    }
    if report.alerts > 0 {
        text += &format!("alerts: {}\n", thousands(report.alerts));
    }
    if report.events > 0 {
        text += &format!("events: {}\n", thousands(report.events));
    }
    for (what, count) in [
        ("alerts lost", report.alerts_lost),
        ("events lost", report.events_lost),
        ("flow reports lost", report.flow_reports_lost),
        ("packets not generated, no buffer", report.packets_not_generated),
    ] {
        if count > 0 {
            text += &format!("{what}: {}\n", thousands(count));
        }
    }
    for (name, output) in &report.outputs {
        let counts = [(output.not_written, "not written"), (output.suppressed, "suppressed")];
        let others: Vec<_> = counts.iter().filter(|(count, _)| *count > 0).collect();
        if !others.is_empty() {
            let others = others.iter().map(|(count, what)| format!(", {} {what}", thousands(*count)));
            text += &format!("{name}: {} written{}\n", thousands(output.written), others.collect::<String>());
        }
    }
    if let Some(commands) = &report.commands {
        let (done, refused) = (thousands(commands.executed), thousands(commands.refused));
        text += &format!("commands: {done} executed, {refused} refused\n");
    }
    if !report.tunnels_not_looked_into.is_empty() {
        let kinds = report.tunnels_not_looked_into.iter();
        text += &tunnels(kinds.map(|(&kind, &flows)| (kind, flows)));
        text.push('\n');
    }
    for (what, count) in [
        ("timestamps: jumps forward", report.time_jumps.ahead),
        ("timestamps: jumps back, time continued", report.time_jumps.back),
        ("timestamps: broken, replaced by the previous packet's", report.time_jumps.broken),
        ("timestamps: missing, replaced by a neighbour's", report.time_jumps.without_time),
    ] {
        if count > 0 {
            text += &format!("{what}: {}\n", thousands(count));
        }
    }
    if let Some(path) = &report.timing.fast_path {
        let share = 100.0 * path.packets as f64 / report.packets_in.max(1) as f64;
        let cycles = path
            .cycles_per_packet
            .map_or_else(String::new, |cycles| format!(", {cycles:.0} cycles of state functions each"));
        text += &format!(
            "fast path: {} packets ({share:.1} %){cycles}; {} rules predicted, {} packets recorded, {} of them without a rule\n",
            thousands(path.packets),
            thousands(path.predicted),
            thousands(path.recorded),
            thousands(path.failed)
        );
    }
    for (number, WorkerReport { counters, asleep_share }) in report.workers.iter().enumerate() {
        text += &format!(
            "worker {number}: {} packets received, {} handed over, {} processed; asleep {:.1} %\n",
            thousands(counters.received),
            thousands(counters.handed_over),
            thousands(counters.processed),
            100.0 * asleep_share
        );
    }
    if let Some(units) = &report.units {
        text += &of_units(units);
    }
    let latency = &report.timing.latency_ns;
    if let (Some(&p50), Some(&p99)) = (latency.get("p50"), latency.get("p99")) {
        text += &format!(
            "processing: {} packets/s, latency {} (median), {} (99th percentile)\n",
            thousands(report.timing.packets_per_second as u64),
            duration(p50),
            duration(p99)
        );
    }
    text
}

/// Returns the line about tunnels that hide their inner packets from functions.
pub fn tunnels(kinds: impl Iterator<Item = (&'static str, u64)>) -> String {
    let kinds: Vec<_> = kinds.map(|(kind, flows)| format!("{kind} {}", thousands(flows))).collect();
    format!(
        "tunnels not inspected: {} flows; `settings {{ key: inner }}` inspects known kinds",
        kinds.join(", ")
    )
}

/// Returns the table of frames that interfaces did not receive or send; empty if there are none.
fn losses(report: &Report) -> String {
    if report.frames_lost() == 0 {
        return String::new();
    }
    let head = ["frames lost", "interface", "missed", "unreadable", "too long", "no room", "down"];
    let mut table = Table::new(&head);
    for (port, interface) in report.interfaces.iter().filter(|(_, interface)| interface.lost() > 0) {
        let Counters { missed, unreadable, too_long, no_room, down, .. } = interface.counters;
        let counts = [missed, unreadable, too_long, no_room, down];
        let names = [port.clone(), interface.name.clone()];
        table.row(names.into_iter().chain(counts.map(thousands)).collect());
    }
    format!("\n{}", table.render())
}

/// Returns the table of external nodes; empty if there are none.
fn nodes(report: &Report) -> String {
    if report.programs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["node", "state", "restarts", "dropped", "bypassed", "assumed"]);
    for (name, node) in &report.programs {
        let state = match node.up {
            1 => "up",
            // Over captures, no program is run.
            _ if report.interfaces.is_empty() => "assumed",
            _ => "down",
        };
        let counts = [node.restarts, node.dropped, node.bypassed, node.assumed];
        table.row([name.clone(), state.to_owned()].into_iter().chain(counts.map(thousands)).collect());
    }
    format!("\n{}", table.render())
}

/// Renders demand and capacity over time, flowlets, states and the bill.
pub fn of_units(report: &UnitsReport) -> String {
    let UnitsReport { mode, choice, scaling, .. } = report;
    let capacity = rate(report.capacity_bps as f64);
    let mut text = format!("\nunits of {capacity}; assigned by {mode}, {choice}; scaled by {scaling}:\n");
    text += &picture::draw(&report.intervals);
    let UnitsReport { tracking, bill, .. } = report;
    text += &format!(
        "units: {:.1} to {:.1}, mean {:.2}; {} started, {} stopped; mean deviation from the demand {}\n",
        tracking.units_min,
        tracking.units_max,
        tracking.units_mean,
        thousands(report.units_started),
        thousands(report.units_stopped),
        rate(tracking.error_mean_bps)
    );
    text += &format!(
        "flowlets: {} ({} after a gap, {} by size) of {} flows; {} assigned to another unit than before\n",
        thousands(report.flowlets),
        thousands(report.flowlets_by_gap),
        thousands(report.flowlets_by_size),
        thousands(report.flows),
        thousands(report.moved)
    );
    text += &format!(
        "states: {} moved, {} bytes; {} replicas sent, {} bytes; {} present in time, {} pulled\n",
        thousands(report.states_moved),
        thousands(report.state_bytes),
        thousands(report.replicas),
        thousands(report.replica_bytes),
        thousands(report.seamless),
        thousands(report.pulls)
    );
    if let Some(start_ns) = report.start_ns {
        let pulled = report.pull_ns.as_ref().and_then(|pull_ns| pull_ns.get("p50"));
        let pulled = pulled.map_or_else(String::new, |&ns| format!(", state pulls took {}", duration(ns)));
        text += &format!("threads: units started in {}{pulled} (medians)\n", duration(start_ns));
    }
    text += &format!(
        "bill: {:.3e} per packet, {:.3e} with flowlets, {:.3e} by time; the units cost {:.3e}\n",
        bill.total.per_packet, bill.total.per_packet_and_flowlet, bill.total.per_unit_time, bill.total.cost
    );
    text
}

#[cfg(test)]
mod tests {
    use runtime::report::{InterfaceReport, ProgramReport};

    use super::*;

    #[test]
    fn external_nodes_are_shown() {
        let mut report = Report::default();
        assert!(!of(&report).contains("bypassed"));
        let node = ProgramReport { restarts: 2, dropped: 1_000, ..ProgramReport::default() };
        report.programs.insert("squid".to_owned(), node);
        let line = |report: &Report| {
            let text = of(report);
            let line = text.lines().find(|line| line.starts_with("squid")).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(line(&report), ["squid", "assumed", "2", "1,000", "0", "0"]);
        report.interfaces.insert("inside".to_owned(), InterfaceReport::default());
        assert_eq!(line(&report), ["squid", "down", "2", "1,000", "0", "0"]);
    }

    #[test]
    fn lost_frames_and_evictions_are_shown() {
        let mut report = Report::default();
        assert!(!of(&report).contains("lost") && !of(&report).contains("evicted"));
        let interface = InterfaceReport {
            name: "eth1".to_owned(),
            counters: Counters { missed: 16_780, down: 3, ..Counters::default() },
            ..InterfaceReport::default()
        };
        report.interfaces.insert("outside".to_owned(), interface);
        report.interfaces.insert("inside".to_owned(), InterfaceReport::default());
        report.flows.ended.insert("evicted", 2_948);
        let text = of(&report);
        let line = text.lines().find(|line| line.starts_with("outside")).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["outside", "eth1", "16,780", "0", "0", "0", "3"]
        );
        assert!(text.contains("2,948 evicted"), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("inside")), "{text}");
    }
}
