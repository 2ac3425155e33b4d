//! Summary of a simulation as text.

use ::sim::{LatencyReport, Report};

use crate::output::{Table, duration, thousands};
use observe::picture;

/// Renders a report, with a line for each interval if `intervals`.
pub fn of(report: &Report, intervals: bool) -> String {
    let mut text = format!(
        "{}, seed {}: {:.1} s of virtual time\n\n",
        report.mode,
        report.seed,
        report.time_ns as f64 * 1e-9
    );
    text += &picture::draw(&report.intervals);
    text += "\n";
    text += &latencies(report);
    text += "\n";
    text += &story(report);
    if intervals {
        text += "\n";
        text += &epoch_table(report);
    }
    text
}

fn latencies(report: &Report) -> String {
    let mut table =
        Table::new(&["latency", "mean", "p1", "p25", "p50", "p75", "p99", "p99.9", "longest", "packets"]);
    for (name, latency) in
        [("at the unit", &report.latency_at_unit), ("from the dispatcher", &report.latency)]
    {
        let LatencyReport { count, mean_ns, p1_ns, p25_ns, p50_ns, p75_ns, p99_ns, p99_9_ns, max_ns } =
            *latency;
        let mut row = vec![name.to_owned()];
        let values = [mean_ns.round() as u64, p1_ns, p25_ns, p50_ns, p75_ns, p99_ns, p99_9_ns, max_ns];
        row.extend(values.map(duration));
        row.push(thousands(count));
        table.row(row);
    }
    table.render()
}

fn story(report: &Report) -> String {
    let Report { workload, assignment, state, tracking, bill, checked, .. } = report;
    let mut table = Table::new(&["", ""]);
    let mut line = |name: &str, text: String| table.row(vec![name.to_owned(), text]);
    line(
        "workload",
        format!(
            "{} packets of {} flows, median {} bytes, {} of flows above 10 KB, {:.2} Gbit/s",
            thousands(workload.packets),
            thousands(workload.flows),
            workload.packet_median_bytes,
            percent(workload.flows_above_10kb),
            workload.rate_mean_bps * 1e-9
        ),
    );
    line(
        "flowlets",
        format!(
            "{} ({} after a gap, {} by size), {:.2} per flow; {} assignments, {} to another unit than before",
            thousands(assignment.flowlets),
            thousands(assignment.flowlets_by_gap),
            thousands(assignment.flowlets_by_size),
            assignment.flowlets_per_flow,
            thousands(assignment.assignments),
            thousands(assignment.moved)
        ),
    );
    line(
        "states",
        format!(
            "{} present in time ({}), {} pulled; {} replicas sent, {:.2} Mbit/s",
            thousands(state.seamless),
            state.seamless_share.map_or_else(|| "-".to_owned(), percent),
            thousands(state.pulls),
            thousands(state.replicas),
            state.rate_bps * 1e-6
        ),
    );
    line(
        "units",
        format!(
            "{:.1} to {:.1}, mean {:.2}, {:.3} unit-seconds; {} started, {} stopped",
            tracking.units_min,
            tracking.units_max,
            tracking.units_mean,
            tracking.unit_seconds,
            assignment.units_started,
            assignment.units_stopped
        ),
    );
    if let Some(warm) = &report.warm {
        line(
            "warm units",
            format!(
                "{} warm starts, {} cold starts; {:.3} unit-seconds of waiting, which cost {:.3e}",
                warm.warm_starts, warm.cold_starts, warm.unit_seconds, warm.cost
            ),
        );
    }
    line(
        "capacity",
        format!(
            "mean deviation from the demand {:.2} Gbit/s; intervals overloaded {}, less than half used {}",
            tracking.error_mean_bps * 1e-9,
            percent(tracking.overloaded),
            percent(tracking.underloaded)
        ),
    );
    let money = &bill.total;
    line(
        "bill",
        format!(
            "{:.3e} per packet, {:.3e} with flowlets, {:.3e} by time; the units cost {:.3e}",
            money.per_packet, money.per_packet_and_flowlet, money.per_unit_time, money.cost
        ),
    );
    for (reason, count) in &report.drops {
        line("dropped", format!("{} {reason}", thousands(*count)));
    }
    line(
        "checks",
        format!(
            "all {} packets accounted for, {} processed in order on the right state; {} states compared",
            thousands(checked.packets),
            thousands(checked.processed),
            thousands(checked.states)
        ),
    );
    table.render().trim_start().to_owned()
}

fn epoch_table(report: &Report) -> String {
    let mut table =
        Table::new(&["from", "Gbit/s", "units", "packets", "flowlets", "queue", "load of each unit, %"]);
    for interval in &report.intervals {
        let loads: Vec<String> =
            interval.utilisation.iter().map(|(unit, load)| format!("{unit}:{:.0}", load * 100.0)).collect();
        table.row(vec![
            format!("{:.2} s", interval.start_ns as f64 * 1e-9),
            format!("{:.2}", interval.demand_bps * 1e-9),
            format!("{:.1}", interval.units),
            thousands(interval.packets),
            thousands(interval.flowlets),
            thousands(interval.queue_peak),
            loads.join(" "),
        ]);
    }
    table.render()
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}
