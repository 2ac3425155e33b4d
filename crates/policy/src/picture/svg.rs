//! Layout by rank, and SVG.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Drawing, Shape};

const BOX_WIDTH: f64 = 120.0;
const BOX_HEIGHT: f64 = 44.0;
const ROW: f64 = 76.0;
const MARGIN: f64 = 20.0;
/// Gap between columns without labels.
const GAP_MIN: f64 = 60.0;
/// Width of a character of a label.
const CHARACTER: f64 = 6.4;
/// Limit on the characters of a label; the rest is in the tooltip.
const LABEL_MAX: usize = 40;

const STYLE: &str = "\
svg { background: #fff; font-family: ui-sans-serif, system-ui, sans-serif; }
.box { fill: #f6f8fa; stroke: #57606a; }
.port { fill: #ddf4ff; stroke: #0969da; }
.drop { fill: #ffebe9; stroke: #cf222e; }
.name { font-size: 13px; font-weight: 600; fill: #1f2328; text-anchor: middle; }
.kind { font-size: 11px; fill: #57606a; text-anchor: middle; }
.edge { fill: none; stroke: #57606a; stroke-width: 1.4; }
.filter { font-size: 11px; font-family: ui-monospace, monospace; fill: #1f2328; text-anchor: middle;
  paint-order: stroke; stroke: #fff; stroke-width: 4px; }
.note { fill: #0969da; }
";

/// Draws the graph from left to right.
pub(super) fn draw(drawing: &Drawing) -> String {
    let columns = drawing.nodes.iter().map(|node| node.rank + 1).max().unwrap_or(0);
    let rows = rows(drawing, columns);
    let left = lefts(drawing, columns);
    let at = |node: usize| {
        let (rank, row) = (drawing.nodes[node].rank, rows[node]);
        (left[rank], MARGIN + row * ROW)
    };
    let height_rows = rows.iter().fold(0.0f64, |most, row| most.max(*row));
    let width = left.last().map_or(0.0, |left| left + BOX_WIDTH) + MARGIN;
    let height = MARGIN * 2.0 + height_rows * ROW + BOX_HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<style>\n{STYLE}</style>\n<defs><marker id=\"head\" viewBox=\"0 0 8 8\" \
         refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto-start-reverse\">\
         <path d=\"M0 0 8 4 0 8z\" fill=\"#57606a\"/></marker></defs>\n"
    );
    let mut labels = String::new();
    let mut twins: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for edge in &drawing.edges {
        let ((from_x, from_y), (to_x, to_y)) = (at(edge.from), at(edge.to));
        // Edges between the same nodes are drawn in parallel.
        let twin = twins.entry((edge.from, edge.to)).or_insert(0.0);
        let shift = 16.0 * *twin;
        *twin += 1.0;
        let (x1, y1) = (from_x + BOX_WIDTH, from_y + BOX_HEIGHT / 2.0 + shift);
        let (x2, y2) = (to_x, to_y + BOX_HEIGHT / 2.0 + shift);
        let bend = (x2 - x1) / 2.0;
        let start = if edge.is_both_ways { " marker-start=\"url(#head)\"" } else { "" };
        let _ = writeln!(
            svg,
            "<path class=\"edge\" d=\"M{x1:.1} {y1:.1}C{:.1} {y1:.1} {:.1} {y2:.1} {x2:.1} {y2:.1}\"{start} \
             marker-end=\"url(#head)\"/>",
            x1 + bend,
            x2 - bend
        );
        // Nearer to the source than to the target: edges part there.
        let (x, mut y) = (x1 + (x2 - x1) * 0.45, y1 + (y2 - y1) * 0.42 + 4.0);
        if let Some(filter) = &edge.filter {
            let _ = writeln!(
                labels,
                "<text class=\"filter\" x=\"{x:.1}\" y=\"{y:.1}\"><title>{}</title>{}</text>",
                escaped(filter),
                escaped(&shortened(filter))
            );
            y += 13.0;
        }
        if let Some(note) = &edge.note {
            let _ = writeln!(
                labels,
                "<text class=\"filter note\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
                escaped(note)
            );
        }
    }
    for (number, node) in drawing.nodes.iter().enumerate() {
        let (x, y) = at(number);
        let class = match node.shape {
            Shape::Port => "box port",
            Shape::Nf => "box",
            Shape::Drop => "box drop",
        };
        let middle = x + BOX_WIDTH / 2.0;
        let name_y = y + if node.kind.is_empty() { 26.0 } else { 19.0 };
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\"/>\
             <text class=\"name\" x=\"{middle:.1}\" y=\"{name_y:.1}\">{}</text>\
             <text class=\"kind\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
            escaped(&node.name),
            y + 35.0,
            escaped(&node.kind)
        );
    }
    svg + &labels + "</svg>\n"
}

/// Returns the row of each node: near the rows of the nodes before it, one node per place.
fn rows(drawing: &Drawing, columns: usize) -> Vec<f64> {
    let mut rows = vec![0.0; drawing.nodes.len()];
    let mut before = vec![Vec::new(); drawing.nodes.len()];
    drawing.edges.iter().for_each(|edge| before[edge.to].push(edge.from));
    for rank in 0..columns {
        let mut column: Vec<(f64, usize)> = Vec::new();
        for (number, _) in drawing.nodes.iter().enumerate().filter(|(_, node)| node.rank == rank) {
            let sum: f64 = before[number].iter().map(|from| rows[*from]).sum();
            column.push((sum / before[number].len().max(1) as f64, number));
        }
        column.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = 0.0f64;
        for (wanted, number) in column {
            rows[number] = free.max(wanted);
            free = rows[number] + 1.0;
        }
    }
    rows
}

/// Returns the left side of each column: the gap before it has room for the labels of its edges.
fn lefts(drawing: &Drawing, columns: usize) -> Vec<f64> {
    let mut lefts = Vec::with_capacity(columns);
    let mut left = MARGIN;
    for rank in 0..columns {
        if rank > 0 {
            let of_gap = drawing.edges.iter().filter(|edge| drawing.nodes[edge.from].rank + 1 == rank);
            let longest = of_gap.flat_map(|edge| {
                let filter = edge.filter.as_deref().map(|filter| shortened(filter).chars().count());
                filter.into_iter().chain(edge.note.as_ref().map(|note| note.chars().count()))
            });
            let label = longest.max().map_or(0.0, |count| count as f64 * CHARACTER + 50.0);
            left += BOX_WIDTH + label.max(GAP_MIN);
        }
        lefts.push(left);
    }
    lefts
}

fn shortened(filter: &str) -> String {
    let line = filter.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= LABEL_MAX {
        return line;
    }
    line.chars().take(LABEL_MAX - 1).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
