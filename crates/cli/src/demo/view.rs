//! Views of a demonstration: a live view on terminals, a line each second elsewhere, and a summary.

use console::Term;
use runtime::Report;

use super::sample::{LiveSample, Outcome, SecondSample};
use crate::output::{Table, duration, thousands};

/// The display of progress.
pub enum Screen {
    /// Nowhere.
    Silent,
    /// A line each second.
    Lines,
    /// A view that is redrawn in place.
    Live {
        term: Term,
        /// Lines of the current view.
        lines: usize,
    },
}

impl Screen {
    /// Creates a live view on standard output.
    pub fn live() -> Screen {
        Screen::Live { term: Term::buffered_stdout(), lines: 0 }
    }

    /// Prints a second's figures, unless there is a live view.
    pub fn line(&self, second: &SecondSample) -> std::io::Result<()> {
        let Screen::Lines = self else { return Ok(()) };
        let SecondSample { second, packets_in, packets_out, dropped, bits_in, flows, nat_ports, units } =
            second;
        crate::output::print(&format!(
            "{second:>3} s  {:>9} in  {:>9} out  {:>7} dropped  {:>9}  {:>7} flows  {:>6} NAT ports  {units:>3} units\n",
            thousands(*packets_in),
            thousands(*packets_out),
            thousands(*dropped),
            bits(*bits_in as f64),
            thousands(*flows),
            thousands(*nat_ports),
        ))
    }

    /// Prints an event, unless there is a live view.
    pub fn event(&self, event: &str) -> std::io::Result<()> {
        let Screen::Lines = self else { return Ok(()) };
        crate::output::print(&format!("      {event}\n"))
    }

    /// Draws the live view, if there is one; `seconds` is the duration of the demonstration.
    pub fn draw(&mut self, now: &LiveSample<'_>, seconds: u64) -> std::io::Result<()> {
        let Screen::Live { term, lines } = self else { return Ok(()) };
        let (rows, columns) = term.size();
        term.clear_last_lines(*lines)?;
        *lines = 0;
        for line in live(now, seconds).lines().take(usize::from(rows.saturating_sub(1))) {
            let line: String = line.chars().take(usize::from(columns)).collect();
            term.write_line(&line)?;
            *lines += 1;
        }
        term.flush()
    }

    /// Removes the live view.
    pub fn clear(&mut self) -> std::io::Result<()> {
        let Screen::Live { term, lines } = self else { return Ok(()) };
        term.clear_last_lines(*lines)?;
        *lines = 0;
        term.flush()
    }
}

/// Returns the live view.
fn live(now: &LiveSample<'_>, seconds: u64) -> String {
    let report = &now.report;
    let mut text = format!(
        "rivulet demo   clients -> nat -> firewall -> balancer -> monitor -> servers   {:.1} of {seconds} s\n\n",
        now.elapsed_ns as f64 / 1e9
    );
    text += &format!(
        "{:>12} packets/s  {:>10}  {}\n",
        thousands(now.packets_per_second as u64),
        bits(now.bits_per_second),
        sparkline(now.throughput)
    );
    text += &format!(
        "{:>12} in   {} out   {} generated   {} dropped\n",
        thousands(report.packets_in),
        thousands(report.packets_out),
        thousands(report.packets_generated),
        thousands(report.dropped())
    );
    text += &format!(
        "{:>12} flows   {} NAT ports in use   {} flows moved between servers\n",
        thousands(report.flows.live),
        thousands(now.nat_ports),
        thousands(now.moved)
    );
    text += &format!("{:>12} {}\n\n", "", now.event);
    text += &units(&now.units);
    text += "\n";
    text += &functions(report);
    text += "\n";
    for (server, share) in now.servers.iter().zip(&now.shares) {
        let state = if server.went_down { "  down" } else { "" };
        let packets = thousands(server.packets_before + server.packets_after);
        text += &format!(
            "{:<8} {:>5.1}%  {:<30}{packets:>12} packets{state}\n",
            server.name,
            share * 100.0,
            bar(*share)
        );
    }
    text += "\n";
    text += &drops(report);
    text
}

/// Renders the summary.
pub fn summary(outcome: &Outcome) -> String {
    let report = &outcome.report;
    let accounted =
        if report.adds_up() { "every packet is accounted for" } else { "THE COUNTERS DO NOT ADD UP" };
    let mut text = format!(
        "\n{:.1} s: {} packets in, {} out, {} dropped, {} pending; {accounted}.\n",
        outcome.seconds,
        thousands(report.packets_in),
        thousands(report.packets_out),
        thousands(report.dropped()),
        thousands(report.packets_pending),
    );
    let seconds: Vec<_> = outcome.each_second.iter().map(|second| second.packets_in as f64).collect();
    if seconds.len() > 1 {
        text += &format!("Packets per second: {}\n", sparkline(&seconds));
    }
    text += "\n";
    text += &drops(report);
    text += "\n";
    text += &functions(report);
    text += "\n";
    text += &servers(outcome);
    if let Some(units) = &report.units {
        text += "\nThe load rose and fell, and units followed it. Each unit processes a share of the flows; a flowlet, a burst of one\n\
                 flow's packets, is assigned to one unit. Bars: \u{2588} demand met, \u{2591} spare capacity, x unmet demand. The traffic is\n\
                 synthetic; all figures were measured on this machine.\n";
        text += &observe::summary::of_units(units);
    }
    text += "\n";
    text += &format!(
        "{} flows started, peak {}; peak of NAT ports {}.\n",
        thousands(report.flows.started),
        thousands(report.flows.peak),
        thousands(nat_ports_peak(report))
    );
    if let Some(victim) = outcome.servers.iter().find(|server| server.went_down) {
        text += &format!(
            "Halfway, {} went down; {} of its flows continued on another server.\n",
            victim.name,
            thousands(outcome.flows_moved)
        );
    }
    if outcome.answers_unsent > 0 {
        text += &format!(
            "{} replies of servers were dropped: too many were pending.\n",
            thousands(outcome.answers_unsent)
        );
    }
    let timing = &report.timing;
    if let (Some(&median), Some(&p99)) = (timing.latency_ns.get("p50"), timing.latency_ns.get("p99")) {
        text += &format!(
            "One core can process {} packets/s; a batch took {} (median), {} (99th percentile).\n",
            thousands(timing.packets_per_second as u64),
            duration(median),
            duration(p99)
        );
    }
    if outcome.took.as_secs_f64() > outcome.seconds * 1.05 + 0.2 {
        text += &format!(
            "The machine is too slow for this rate: it took {:.1} s. Use a lower --rate.\n",
            outcome.took.as_secs_f64()
        );
    }
    text + "\nNext: `rivulet nf list` lists the functions, `rivulet run --help` shows how to run your own policy.\n"
}

/// Renders the running units as bars.
fn units(units: &[(u16, f64, u32)]) -> String {
    let mut text = format!(
        "{:>12} units running, each with a share of the flows; they follow the load. Bars: load of each\n",
        units.len()
    );
    for row in units.chunks(4) {
        let cells = row.iter().map(|(unit, load, _)| {
            format!("{unit:>4} {:<12} {:>4.0}%", bar(load.min(1.2) / 3.0), load * 100.0)
        });
        text += &(cells.collect::<Vec<_>>().join(" ") + "\n");
    }
    text
}

fn functions(report: &Report) -> String {
    let mut table = Table::new(&["function", "packets", "drops", "cycles/packet"]);
    for function in &report.functions {
        let cycles =
            function.cycles_per_packet.map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.0}"));
        let (packets, drops) = (thousands(function.packets), thousands(function.drops));
        table.row(vec![function.name.clone(), packets, drops, cycles]);
    }
    table.render()
}

fn drops(report: &Report) -> String {
    let mut table = Table::new(&["drops: attacks and broken packets", "packets", "meaning"]);
    let mut drops: Vec<_> = report.drops.iter().collect();
    drops.sort_by_key(|&(_, &count)| std::cmp::Reverse(count));
    for (&reason, &count) in drops {
        let meaning = packet::DropReason::ALL.iter().find(|r| r.name() == reason).map_or("", |r| r.meaning());
        table.row(vec![reason.to_owned(), thousands(count), meaning.to_owned()]);
    }
    table.render()
}

fn servers(outcome: &Outcome) -> String {
    let share = |packets: u64, of: u64| format!("{:.1}%", 100.0 * packets as f64 / of.max(1) as f64);
    let before: u64 = outcome.servers.iter().map(|server| server.packets_before).sum();
    let after: u64 = outcome.servers.iter().map(|server| server.packets_after).sum();
    let mut table = Table::new(&["server", "connections", "packets", "first half", "second half"]);
    for server in &outcome.servers {
        table.row(vec![
            server.name.clone(),
            thousands(server.connections),
            thousands(server.packets_before + server.packets_after),
            share(server.packets_before, before),
            share(server.packets_after, after),
        ]);
    }
    table.render()
}

fn nat_ports_peak(report: &Report) -> u64 {
    let pools = report.functions.iter().filter_map(|function| function.pools.get("ports"));
    pools.map(|pool| u64::from(pool.peak)).sum()
}

/// Formats a rate in bits per second with a suitable unit.
fn bits(rate: f64) -> String {
    match rate {
        ..1e6 => format!("{:.0} kbit/s", rate / 1e3),
        ..1e9 => format!("{:.0} Mbit/s", rate / 1e6),
        _ => format!("{:.2} Gbit/s", rate / 1e9),
    }
}

/// Renders values as a row of bars, scaled to the highest.
fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(1.0, f64::max);
    values.iter().map(|value| BARS[((value / most * 8.0) as usize).min(7)]).collect()
}

/// Renders a share of 0 to 1 as a bar of up to 30 characters.
fn bar(share: f64) -> String {
    "█".repeat((share * 30.0).round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_is_scaled_to_its_highest_value() {
        assert_eq!(sparkline(&[0.0, 50.0, 100.0]), "▁▅█");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[0.0]), "▁");
    }

    #[test]
    fn rates_have_suitable_units() {
        assert_eq!(bits(1_500.0), "2 kbit/s");
        assert_eq!(bits(25e6), "25 Mbit/s");
        assert_eq!(bits(1.234e9), "1.23 Gbit/s");
    }
}
