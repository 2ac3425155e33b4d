//! The screen.

use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use serde_json::Value;

use super::rates::ReportRates;
use crate::eve::timestamp;
use crate::text::{duration, rate, thousands};

/// The screen's content and settings.
pub struct LiveView {
    address: String,
    is_paused: bool,
    shows_keys: bool,
    sort: Sort,
    is_reversed: bool,
    /// Error of the last request.
    said: Option<String>,
}

/// Sort order of the functions.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Graph,
    Packets,
    Drops,
    Cycles,
}

impl Sort {
    const ALL: [(Sort, &str); 4] = [
        (Sort::Graph, "position"),
        (Sort::Packets, "packets"),
        (Sort::Drops, "drops"),
        (Sort::Cycles, "cycles"),
    ];

    fn name(self) -> &'static str {
        Sort::ALL.iter().find(|(sort, _)| *sort == self).map_or("", |(_, name)| name)
    }

    fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|(sort, _)| *sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()].0
    }
}

impl LiveView {
    /// Creates the view of the Rivulet at this address.
    pub fn new(address: &str) -> LiveView {
        LiveView {
            address: address.to_owned(),
            is_paused: false,
            shows_keys: false,
            sort: Sort::Graph,
            is_reversed: false,
            said: None,
        }
    }

    /// Returns whether updates are paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Sets the error to show.
    pub fn say(&mut self, said: Option<String>) {
        self.said = said;
    }

    /// Handles a key.
    pub fn key(&mut self, letter: char) {
        match letter {
            'p' | ' ' => self.is_paused = !self.is_paused,
            's' => self.sort = self.sort.next(),
            'r' => self.is_reversed = !self.is_reversed,
            '?' | 'h' => self.shows_keys = !self.shows_keys,
            _ => {}
        }
    }

    /// Renders the view as text of up to this size.
    pub fn print(&self, rates: &ReportRates, (columns, lines): (u16, u16)) -> String {
        let Ok(mut terminal) = ratatui::Terminal::new(TestBackend::new(columns, lines));
        let Ok(_) = terminal.draw(|frame| self.draw(frame, rates));
        let buffer = terminal.backend().buffer();
        let line = |y| {
            (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n"
        };
        let text: String = (0..lines).map(line).collect();
        text.trim_end().to_owned() + "\n"
    }

    /// Draws the view.
    pub fn draw(&self, frame: &mut Frame<'_>, rates: &ReportRates) {
        let report = rates.now();
        let count = |name: &str| report[name].as_object().map_or(0, serde_json::Map::len) as u16;
        let functions = report["functions"].as_array().map_or(0, Vec::len) as u16;
        let rules = rules_of(rates);
        // Without rules there is no table of them.
        let rules_height = if rules.is_empty() { 0 } else { rules.len() as u16 + 3 };
        let nodes_height = if count("programs") == 0 { 0 } else { count("programs") + 3 };
        let edges_height = if count("edges") == 0 { 0 } else { count("edges") + 3 };
        let heights = [
            Constraint::Length(3),
            Constraint::Length(6),
            Constraint::Length(count("ports") + 3),
            Constraint::Length(nodes_height),
            Constraint::Length(functions + 3),
            Constraint::Length(edges_height),
            Constraint::Length(rules_height),
            Constraint::Min(3),
            Constraint::Length(1),
        ];
        let [head, picture, ports, nodes, functions, edges, rules_area, drops, foot] =
            Layout::vertical(heights).areas(frame.area());
        self.draw_head(frame, head, rates);
        draw_picture(frame, picture, rates);
        draw_ports(frame, ports, rates);
        if nodes_height > 0 {
            draw_nodes(frame, nodes, rates);
        }
        if edges_height > 0 {
            draw_edges(frame, edges, rates);
        }
        self.draw_functions(frame, functions, rates);
        if rules_height > 0 {
            draw_rules(frame, rules_area, rules);
        }
        draw_drops(frame, drops, rates);
        frame.render_widget(self.foot(), foot);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect, rates: &ReportRates) {
        let report = rates.now();
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let seconds = report["timing"]["seconds"].as_f64().unwrap_or(0.0);
        let paused = if self.is_paused { "  PAUSED" } else { "" };
        let first = format!(
            "{} at {}, up {}{paused}",
            text(&report["policy"]),
            self.address,
            duration((seconds * 1e9) as u64)
        );
        let dropped: f64 = names(&report["drops"]).map(|reason| rates.per_second(&drop_of(reason))).sum();
        let latency = |percentile: &str| duration(rates.total(&format!("/timing/latency_ns/{percentile}")));
        let others = [
            ("flows evicted/s", rates.per_second("/flows/ended/evicted")),
            ("records not written/s", not_written(rates)),
        ];
        let others = others.into_iter().filter(|&(_, count)| count > 0.0);
        let others: String =
            others.map(|(what, count)| format!(", {} {what}", thousands(count.ceil() as u64))).collect();
        let second = format!(
            "{} packets/s, {}, {} drops/s, {} frames lost/s{others}",
            thousands(rates.per_second("/packets_in") as u64),
            rate(8.0 * rates.per_second("/bytes_in")),
            thousands(dropped as u64),
            thousands(frames_lost(rates).ceil() as u64),
        );
        let units = report["units"].as_object().map_or_else(String::new, |units| {
            let number = |name: &str| units.get(name).and_then(Value::as_u64).unwrap_or(0);
            format!(", {} units", number("units_running"))
        });
        let workers = match report["workers"].as_array().map(Vec::len) {
            Some(count) => format!(", {count} workers"),
            None => String::new(),
        };
        let third = format!(
            "{} flows ({} started/s), {} alerts, latency {} (median), {} (99th percentile){units}{workers}",
            thousands(rates.total("/flows/live")),
            thousands(rates.per_second("/flows/started") as u64),
            thousands(rates.total("/alerts")),
            latency("p50"),
            latency("p99"),
        );
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let lines = vec![Line::styled(first, bold), Line::from(second), Line::from(third)];
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn draw_functions(&self, frame: &mut Frame<'_>, area: Rect, rates: &ReportRates) {
        let functions = rates.now()["functions"].as_array().map_or(&[][..], Vec::as_slice);
        let mut rows: Vec<_> = functions
            .iter()
            .enumerate()
            .map(|(at, function)| {
                let per_second = |what: &str| rates.per_second(&format!("/functions/{at}/{what}"));
                let name = function["name"].as_str().unwrap_or("");
                let cycles = rates.now()["timing"]["cycles_per_packet"][name].as_f64();
                let key = match self.sort {
                    Sort::Graph => -(at as f64),
                    Sort::Packets => per_second("packets"),
                    Sort::Drops => per_second("drops"),
                    Sort::Cycles => cycles.unwrap_or(0.0),
                };
                let cells = [
                    name.to_owned(),
                    function["type"].as_str().unwrap_or("").to_owned(),
                    thousands(per_second("packets") as u64),
                    rate(8.0 * per_second("bytes")),
                    thousands(per_second("drops") as u64),
                    cycles.map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.0}")),
                ];
                (key, cells)
            })
            .collect();
        rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        if self.is_reversed {
            rows.reverse();
        }
        let head = ["function", "type", "packets/s", "rate", "drops/s", "cycles/packet"];
        let title = format!("functions, by {}", self.sort.name());
        table(frame, area, &title, head, rows.into_iter().map(|(_, cells)| cells).collect());
    }

    fn foot(&self) -> Paragraph<'_> {
        if let Some(said) = &self.said {
            return Paragraph::new(said.as_str()).style(Style::new().fg(Color::Red));
        }
        let keys = "q quit  p pause  s sort functions by the next column  r reverse the order  ? hide this";
        Paragraph::new(if self.shows_keys { keys } else { "q quit  p pause  s sort  r reverse  ? help" })
            .style(Style::new().add_modifier(Modifier::DIM))
    }
}

fn draw_picture(frame: &mut Frame<'_>, area: Rect, rates: &ReportRates) {
    let block = Block::bordered().title("packets/s");
    let width = usize::from(block.inner(area).width);
    let mut values: Vec<_> = rates.history().take(width).collect();
    values.reverse();
    frame.render_widget(Sparkline::default().block(block).data(values), area);
}

fn draw_edges(frame: &mut Frame<'_>, area: Rect, rates: &ReportRates) {
    let rows = names(&rates.now()["edges"]).map(|edge| {
        let per_second = |what: &str| rates.per_second(&format!("/edges/{}/{what}", escaped(edge)));
        let packets = rates.now()["edges"][edge]["packets"].as_u64().unwrap_or_default();
        [
            edge.to_owned(),
            thousands(per_second("packets") as u64),
            rate(8.0 * per_second("bytes")),
            thousands(packets),
        ]
    });
    table(frame, area, "edges", ["edge", "packets/s", "rate", "packets"], rows.collect());
}

fn draw_ports(frame: &mut Frame<'_>, area: Rect, rates: &ReportRates) {
    let rows = names(&rates.now()["ports"]).map(|port| {
        let per_second = |what: &str| rates.per_second(&format!("/ports/{}/{what}", escaped(port)));
        let interface = &rates.now()["interfaces"][port];
        let lost = |ways: &[&str]| thousands(ways.iter().filter_map(|&way| interface[way].as_u64()).sum());
        [
            port.to_owned(),
            interface["name"].as_str().unwrap_or("-").to_owned(),
            thousands(per_second("packets_in") as u64),
            rate(8.0 * per_second("bytes_in")),
            thousands(per_second("packets_out") as u64),
            rate(8.0 * per_second("bytes_out")),
            lost(&["missed", "unreadable"]),
            lost(&["no_room", "too_long"]),
            lost(&["down"]),
        ]
    });
    let head = ["port", "interface", "in/s", "rate in", "out/s", "rate out", "missed", "not sent", "down"];
    table(frame, area, "ports", head, rows.collect());
}

/// Draws the external nodes.
fn draw_nodes(frame: &mut Frame<'_>, area: Rect, rates: &ReportRates) {
    let rows = names(&rates.now()["programs"]).map(|name| {
        let node = &rates.now()["programs"][name];
        let count = |what: &str| node[what].as_u64().unwrap_or(0);
        let per_second = |what: &str| rates.per_second(&format!("/programs/{}/{what}", escaped(name)));
        let text = |what: &str| node[what].as_str().unwrap_or("").to_owned();
        [
            name.to_owned(),
            text("kind"),
            if count("up") == 1 { "up" } else { "down" }.to_owned(),
            thousands(count("restarts")),
            thousands(per_second("dropped") as u64),
            thousands(per_second("bypassed") as u64),
            text("last_end"),
        ]
    });
    let head = ["node", "kind", "state", "restarts", "dropped/s", "bypassed/s", "last end"];
    table(frame, area, "external nodes", head, rows.collect());
}

/// Rules that are shown, those with the highest current rates first, then those with most packets.
const RULES_SHOWN: usize = 8;

/// Cells of a rule's row.
type RuleCells = [String; 9];

/// Rows of the rules that have matched, up to [`RULES_SHOWN`].
fn rules_of(rates: &ReportRates) -> Vec<RuleCells> {
    let functions = rates.now()["functions"].as_array().map_or(&[][..], Vec::as_slice);
    let mut rows: Vec<_> = functions
        .iter()
        .enumerate()
        .flat_map(|(of, function)| {
            let rules = function["rules"].as_array().map_or(&[][..], Vec::as_slice);
            rules
                .iter()
                .enumerate()
                .map(move |(at, rule)| (format!("/functions/{of}/rules/{at}"), function, rule))
        })
        .filter_map(|(path, function, rule)| {
            let count = |what: &str| rule[what].as_u64();
            // Packets may be counted when their flow ends, flows when they start.
            let [flows, packets] = ["flows", "packets"].map(|what| count(what).unwrap_or(0));
            let per_second = rates.per_second(&format!("{path}/packets"));
            let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
            let cells = [
                text(&function["name"]),
                count("number").unwrap_or(0).to_string(),
                text(&rule["name"]),
                text(&rule["place"]),
                thousands(flows),
                thousands(per_second as u64),
                thousands(packets),
                count("bytes").map_or_else(|| "-".to_owned(), thousands),
                count("last_hit_ns").map_or_else(|| "-".to_owned(), hit_at),
            ];
            (flows + packets > 0).then_some((per_second, (packets, flows), cells))
        })
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    rows.into_iter().take(RULES_SHOWN).map(|(_, _, cells)| cells).collect()
}

/// Formats a time as `2026-01-01 00:00:00`, in UTC.
fn hit_at(ns: u64) -> String {
    let text = timestamp(ns);
    text.get(..19).unwrap_or(&text).replace('T', " ")
}

fn draw_rules(frame: &mut Frame<'_>, area: Rect, rules: Vec<RuleCells>) {
    let head =
        ["function", "rule", "name", "place", "flows", "packets/s", "packets", "bytes", "last hit (UTC)"];
    table(frame, area, "busiest rules", head, rules);
}

fn draw_drops(frame: &mut Frame<'_>, area: Rect, rates: &ReportRates) {
    let mut rows: Vec<_> = names(&rates.now()["drops"])
        .map(|reason| (rates.per_second(&drop_of(reason)), rates.total(&drop_of(reason)), reason))
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    let rows = rows.into_iter().map(|(per_second, total, reason)| {
        let meaning =
            packet::DropReason::ALL.iter().find(|of| of.name() == reason).map_or("", |of| of.meaning());
        [reason.to_owned(), thousands(per_second as u64), thousands(total), meaning.to_owned()]
    });
    table(frame, area, "drops", ["reason", "packets/s", "packets", "meaning"], rows.collect());
}

/// Draws a table with numbers aligned right.
fn table<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    head: [&str; N],
    rows: Vec<[String; N]>,
) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0) as u16
    };
    let widths = (0..N).map(|column| Constraint::Length(width(column)));
    let is_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit() || first == '-');
    let cell = |column: usize, text: &String| {
        let text = match is_number(text) {
            true => format!("{text:>width$}", width = usize::from(width(column))),
            false => text.clone(),
        };
        Cell::from(text)
    };
    let cells =
        rows.iter().map(|row| Row::new(row.iter().enumerate().map(|(column, text)| cell(column, text))));
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::BOLD));
    let shown = Table::new(cells, widths).header(head).column_spacing(2);
    frame.render_widget(shown.block(Block::bordered().title(title.to_owned())), area);
}

fn names(object: &Value) -> impl Iterator<Item = &str> {
    object.as_object().into_iter().flat_map(|object| object.keys().map(String::as_str))
}

/// Returns the frames lost per second, on all interfaces.
fn frames_lost(rates: &ReportRates) -> f64 {
    let ports = names(&rates.now()["interfaces"]);
    let ways = ["missed", "unreadable", "too_long", "no_room", "down"];
    let each = ports.flat_map(|port| ways.map(|way| format!("/interfaces/{}/{way}", escaped(port))));
    each.map(|pointer| rates.per_second(&pointer)).sum()
}

/// Returns the records not written per second, of all outputs.
fn not_written(rates: &ReportRates) -> f64 {
    let outputs = names(&rates.now()["outputs"]);
    outputs.map(|output| rates.per_second(&format!("/outputs/{}/not_written", escaped(output)))).sum()
}

fn drop_of(reason: &str) -> String {
    format!("/drops/{}", escaped(reason))
}

/// Escapes a name for a JSON pointer (RFC 6901 3).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(seconds: f64, packets: u64) -> Value {
        json!({
            "policy": "site.rvl",
            "packets_in": packets, "bytes_in": packets * 100,
            "drops": {"filter": packets / 10},
            "flows": {"live": 3, "started": 4},
            "alerts": 2,
            "ports": {"inside": {"packets_in": packets, "bytes_in": packets * 100, "packets_out": 0, "bytes_out": 0}},
            "interfaces": {"inside": {"name": "eth0", "missed": 7}},
            "functions": [
                {"name": "first", "type": "nat", "packets": packets, "bytes": 0, "drops": 0},
                {"name": "second", "type": "firewall", "packets": 2 * packets, "bytes": 0, "drops": 0, "rules": [
                    {"number": 1, "name": "web", "place": "acl.rules:3", "flows": 1, "packets": packets / 4, "bytes": 5 * packets, "last_hit_ns": 1_767_225_600_000_000_000_u64},
                    {"number": 2, "name": "never", "place": "acl.rules:4", "flows": 0, "packets": 0, "bytes": 0},
                    {"number": 0, "name": "default", "place": "", "flows": 9, "packets": packets / 2},
                ]},
            ],
            "timing": {
                "seconds": seconds,
                "latency_ns": {"p50": 1_500, "p99": 20_000},
                "cycles_per_packet": {"first": 90.0, "second": 50.0},
            },
        })
    }

    #[test]
    fn rates_between_two_reports_are_shown() {
        let mut rates = ReportRates::new(report(10.0, 0));
        rates.take(report(12.0, 4_000));
        let mut view = LiveView::new("127.0.0.1:9600");
        let shown = view.print(&rates, (110, 40));
        for what in [
            "site.rvl at 127.0.0.1:9600",
            "2,000 packets/s",
            "200 drops/s",
            "latency 1.5 us (median)",
            "eth0",
            "filter",
        ] {
            assert!(shown.contains(what), "{what}: {shown}");
        }
        // Rules that matched, the busiest first.
        let squeezed = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for what in [
            "second 0 default 9 1,000 2,000 - -",
            "second 1 web acl.rules:3 1 500 1,000 20,000 2026-01-01 00:00:00",
        ] {
            assert!(squeezed.contains(what), "{what}: {shown}");
        }
        assert!(shown.find("default") < shown.find("acl.rules:3") && !shown.contains("never"), "{shown}");
        assert!(!shown.contains("external nodes"), "{shown}");
        let order = |view: &LiveView| {
            let shown = view.print(&rates, (110, 40));
            shown.find("first") < shown.find("second")
        };
        assert!(order(&view), "in the order of the policy");
        view.key('s');
        assert!(!order(&view), "by packets");
        view.key('r');
        assert!(order(&view), "reversed");
        view.key('p');
        assert!(view.is_paused() && view.print(&rates, (110, 40)).contains("PAUSED"));
        // A small terminal shows a part.
        view.print(&rates, (20, 5));
        view.print(&rates, (1, 1));
    }
    #[test]
    fn external_nodes_are_shown() {
        let report = |seconds: f64, dropped: u64| {
            let squid = json!({"kind": "legacy", "up": 0, "restarts": 2, "dropped": dropped, "bypassed": 0, "last_end": "signal 9"});
            let other = json!({"kind": "native", "up": 1, "restarts": 0, "dropped": 0, "bypassed": 2 * dropped, "last_end": ""});
            let mut report = report(seconds, 0);
            report["programs"] = json!({"squid": squid, "cache/1": other});
            report
        };
        let mut rates = ReportRates::new(report(10.0, 0));
        rates.take(report(12.0, 5_000));
        let shown = LiveView::new("127.0.0.1:9600").print(&rates, (110, 40));
        let squeezed = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for what in ["squid legacy down 2 2,500 0 signal 9", "cache/1 native up 0 0 5,000"] {
            assert!(squeezed.contains(what), "{what}: {shown}");
        }
    }
}
