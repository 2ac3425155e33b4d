//! How a demonstration looks: a live view on terminals, a line for each second elsewhere, and a
//! summary.

use console::Term;
use runtime::Report;

use super::sample::{Now, Outcome, Second};
use crate::output::{Table, duration, thousands};

/// Where progress is shown.
pub enum Screen {
    /// Nowhere.
    Silent,
    /// A line each second.
    Lines,
    /// A view that is drawn over and over in place.
    Live {
        /// The terminal.
        term: Term,
        /// Lines that the view takes now.
        lines: usize,
    },
}

impl Screen {
    /// The terminal on standard output.
    pub fn live() -> Screen {
        Screen::Live { term: Term::buffered_stdout(), lines: 0 }
    }

    /// A second is over.
    pub fn line(&self, second: &Second) -> std::io::Result<()> {
        let Screen::Lines = self else { return Ok(()) };
        let Second { second, packets_in, packets_out, dropped, bits_in, flows, nat_ports, units } = second;
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

    /// Something has happened that is worth a word; a live view has it in itself.
    pub fn event(&self, event: &str) -> std::io::Result<()> {
        let Screen::Lines = self else { return Ok(()) };
        crate::output::print(&format!("      {event}\n"))
    }

    /// Draws how things stand, if there is a view; `seconds` is how long all will take.
    pub fn draw(&mut self, now: &Now<'_>, seconds: u64) -> std::io::Result<()> {
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

    /// Takes the view away.
    pub fn clear(&mut self) -> std::io::Result<()> {
        let Screen::Live { term, lines } = self else { return Ok(()) };
        term.clear_last_lines(*lines)?;
        *lines = 0;
        term.flush()
    }
}

/// The live view.
fn live(now: &Now<'_>, seconds: u64) -> String {
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
        "{:>12} in   {} out   {} made   {} dropped\n",
        thousands(report.packets_in),
        thousands(report.packets_out),
        thousands(report.packets_made),
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

/// What is said in the end.
pub fn summary(outcome: &Outcome) -> String {
    let report = &outcome.report;
    let accounted =
        if report.adds_up() { "every one is accounted for" } else { "THE ACCOUNTS DO NOT ADD UP" };
    let mut text = format!(
        "\n{:.1} s: {} packets in, {} out, {} dropped, {} held; {accounted}.\n",
        outcome.seconds,
        thousands(report.packets_in),
        thousands(report.packets_out),
        thousands(report.dropped()),
        thousands(report.packets_held),
    );
    let seconds: Vec<_> = outcome.each_second.iter().map(|second| second.packets_in as f64).collect();
    if seconds.len() > 1 {
        text += &format!("Packets second by second: {}\n", sparkline(&seconds));
    }
    text += "\n";
    text += &drops(report);
    text += "\n";
    text += &functions(report);
    text += "\n";
    text += &servers(outcome);
    if let Some(units) = &report.units {
        text += "\nTraffic grew and shrank like a tide, and units came and went with it. A unit processes a share of the flows; a flowlet is a\n\
                 burst of one flow's packets, which is given to a unit whole. Bars: \u{2588} what traffic asked for, \u{2591} what units could do beyond\n\
                 it, x what they could not do. The traffic is made up; all figures are measured on this machine.\n";
        text += &crate::units::summary(units);
    }
    text += "\n";
    text += &format!(
        "{} flows began, {} were open at once at most; the NAT lent {} ports at most at once.\n",
        thousands(report.flows.started),
        thousands(report.flows.peak),
        thousands(nat_ports_peak(report))
    );
    if let Some(victim) = outcome.servers.iter().find(|server| server.went_down) {
        text += &format!(
            "Half way, {} went down: {} of its flows went on with another server.\n",
            victim.name,
            thousands(outcome.flows_moved)
        );
    }
    if outcome.answers_unsent > 0 {
        text += &format!("{} answers of servers were too many to send.\n", thousands(outcome.answers_unsent));
    }
    let timing = &report.timing;
    if let (Some(&median), Some(&p99)) = (timing.latency_ns.get("p50"), timing.latency_ns.get("p99")) {
        text += &format!(
            "One core could do {} packets/s; a batch took {} (median), {} (99th percentile).\n",
            thousands(timing.packets_per_second as u64),
            duration(median),
            duration(p99)
        );
    }
    if outcome.took.as_secs_f64() > outcome.seconds * 1.05 + 0.2 {
        text += &format!(
            "The machine was too slow for this rate: it took {:.1} s. Try a lower --rate.\n",
            outcome.took.as_secs_f64()
        );
    }
    text + "\nNext: `rivulet nf list` shows the functions, `rivulet run --help` how to run your own policy.\n"
}

/// The units that run, a bar each, with as many as fit beside each other.
fn units(units: &[(u16, f64, u32)]) -> String {
    let mut text = format!(
        "{:>12} units run: each processes a share of the flows; they come and go with the traffic. Bars: load of each\n",
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
    let mut table = Table::new(&["dropped: attacks and broken packets", "packets", "meaning"]);
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

/// A rate in bits per second in the unit that suits it.
fn bits(rate: f64) -> String {
    match rate {
        ..1e6 => format!("{:.0} kbit/s", rate / 1e3),
        ..1e9 => format!("{:.0} Mbit/s", rate / 1e6),
        _ => format!("{:.2} Gbit/s", rate / 1e9),
    }
}

/// Values as a row of bars, the highest of them full.
fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(1.0, f64::max);
    values.iter().map(|value| BARS[((value / most * 8.0) as usize).min(7)]).collect()
}

/// A share of 0 to 1 as a bar of up to 30 characters.
fn bar(share: f64) -> String {
    "█".repeat((share * 30.0).round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_is_as_high_as_its_values() {
        assert_eq!(sparkline(&[0.0, 50.0, 100.0]), "▁▅█");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[0.0]), "▁");
    }

    #[test]
    fn rates_have_the_unit_that_suits_them() {
        assert_eq!(bits(1_500.0), "2 kbit/s");
        assert_eq!(bits(25e6), "25 Mbit/s");
        assert_eq!(bits(1.234e9), "1.23 Gbit/s");
    }
}
