//! Charts as SVG: the same data, the same bytes. Colours follow the reader's scheme, light or dark.

mod axis;
mod canvas;

use crate::chart::{AxisScale, ChartAxis, ChartMark, ChartSeries, FigureChart};
use axis::Axis;
use canvas::{Anchor, Canvas};

/// Width of a picture, in pixels: that of a page.
const WIDTH: f64 = 800.0;

/// Heights of the plots of a chart that has the whole width, and half of it.
const PLOT_HEIGHTS: [f64; 2] = [300.0, 190.0];

/// Space left and right of a plot.
const LEFT: f64 = 74.0;
const RIGHT: f64 = 18.0;

/// Space for the title, and for each line of the legend.
const TITLE: f64 = 34.0;
const LEGEND_LINE: f64 = 20.0;

/// Space below a plot for the labels, by their lines, and the name of the axis.
const LABEL_LINE: f64 = 15.0;
const BELOW: f64 = 44.0;

/// Mean width of a character in the legend and in labels.
const CHARACTER: f64 = 7.1;

/// A line with more points than this is drawn without them.
const POINTS_SHOWN: usize = 40;

/// Charts up to this number have the whole width each.
const WIDE_MAX: usize = 3;

/// Returns these charts as a picture.
pub fn svg(charts: &[FigureChart]) -> String {
    let columns = if charts.len() > WIDE_MAX { 2 } else { 1 };
    let width = WIDTH / columns as f64;
    let mut canvas = Canvas::default();
    let mut top = 0.0;
    for row in charts.chunks(columns) {
        let layouts: Vec<Layout> = row.iter().map(|chart| Layout::of(chart, width, columns > 1)).collect();
        let head = layouts.iter().map(|layout| layout.head).fold(0.0, f64::max);
        let below = layouts.iter().map(|layout| layout.below).fold(0.0, f64::max);
        for (place, (chart, layout)) in row.iter().zip(&layouts).enumerate() {
            layout.draw(&mut canvas, chart, (place as f64 * width, top, head));
        }
        top += head + layouts[0].plot + below;
    }
    canvas.finish(WIDTH, top.max(LABEL_LINE))
}

/// Sizes of a chart's parts.
struct Layout {
    width: f64,
    /// Height of the title and the legend.
    head: f64,
    /// Height of the plot.
    plot: f64,
    /// Height of labels below it.
    below: f64,
    /// Lines of the legend.
    legend: Vec<Vec<LegendEntry>>,
}

/// An entry of the legend: the number of a series, or the mark of published values.
#[derive(Clone, Copy, PartialEq)]
enum LegendEntry {
    Series(usize),
    Published,
}

impl Layout {
    fn of(chart: &FigureChart, width: f64, is_narrow: bool) -> Layout {
        let mut entries: Vec<LegendEntry> = Vec::new();
        if chart.series.len() > 1 {
            entries.extend((0..chart.series.len()).map(LegendEntry::Series));
        }
        if chart.series.iter().any(|series| !series.published.is_empty()) {
            entries.push(LegendEntry::Published);
        }
        let mut legend: Vec<Vec<LegendEntry>> = Vec::new();
        let mut left = f64::INFINITY;
        for entry in entries {
            let needed = entry_width(chart, entry);
            if left + needed > width - RIGHT {
                legend.push(Vec::new());
                left = LEFT;
            }
            left += needed;
            legend.iter_mut().last().into_iter().for_each(|line| line.push(entry));
        }
        let labels = Axis::new(chart, &chart.x, width - LEFT - RIGHT, |point| point.0).label_lines();
        Layout {
            width,
            head: TITLE + LEGEND_LINE * legend.len() as f64 + 8.0,
            plot: PLOT_HEIGHTS[usize::from(is_narrow)],
            below: BELOW + LABEL_LINE * labels as f64,
            legend,
        }
    }

    /// Draws a chart at a place; its plot begins `head` below.
    fn draw(&self, canvas: &mut Canvas, chart: &FigureChart, (left, top, head): (f64, f64, f64)) {
        canvas.title(left + LEFT, top + 22.0, &chart.title);
        for (line, entries) in (0..).zip(&self.legend) {
            let mut x = left + LEFT;
            for &entry in entries {
                self.draw_entry(canvas, chart, (x, top + TITLE + 4.0 + LEGEND_LINE * f64::from(line)), entry);
                x += entry_width(chart, entry);
            }
        }
        let (x0, y0) = (left + LEFT, top + head);
        let (width, height) = (self.width - LEFT - RIGHT, self.plot);
        let x = Axis::new(chart, &chart.x, width, |point| point.0);
        let y = Axis::new(chart, &chart.y, height, |point| point.1);
        for (at, label) in y.ticks() {
            let at = y0 + height - at;
            canvas.line("g", &[(x0, at), (x0 + width, at)]);
            canvas.text(x0 - 8.0, at + 4.5, Anchor::End, &label);
        }
        for (at, label) in x.ticks() {
            canvas.line("a", &[(x0 + at, y0 + height), (x0 + at, y0 + height + 5.0)]);
            for (line, text) in (1..).zip(x.broken(&label)) {
                canvas.text(x0 + at, y0 + height + 5.0 + LABEL_LINE * f64::from(line), Anchor::Middle, &text);
            }
        }
        canvas.line("a", &[(x0, y0), (x0, y0 + height), (x0 + width, y0 + height)]);
        let below = y0 + height + 26.0 + LABEL_LINE * x.label_lines() as f64;
        canvas.text(x0 + width / 2.0, below, Anchor::Middle, &chart.x.label);
        canvas.upright(left + 16.0, y0 + height / 2.0, &chart.y.label);
        let place = |&(px, py): &(f64, f64)| Some((x0 + x.place(px)?, y0 + height - y.place(py)?));
        let bars = Bars { count: chart.series.iter().filter(|s| s.mark == ChartMark::Bars).count(), x: &x };
        let mut bar = 0;
        let mut published = Vec::new();
        for (number, series) in chart.series.iter().enumerate() {
            let shift = if series.mark == ChartMark::Bars { bars.shift(bar) } else { 0.0 };
            draw_series(canvas, series, number, &place, (shift, bars.width(), y0 + height));
            bar += usize::from(series.mark == ChartMark::Bars);
            // On a line the mark has the line's colour; on an area it would not be seen.
            let class = if series.mark == ChartMark::Line { fill(number) } else { String::new() };
            let values = series.published.iter().filter_map(place);
            published.extend(values.map(|(px, py)| (px + shift, py, class.clone())));
        }
        published.into_iter().for_each(|(px, py, class)| canvas.diamond(&class, px, py));
    }

    fn draw_entry(&self, canvas: &mut Canvas, chart: &FigureChart, (x, y): (f64, f64), entry: LegendEntry) {
        let text = match entry {
            LegendEntry::Published => {
                canvas.diamond("", x + 8.0, y + 6.0);
                PUBLISHED
            }
            LegendEntry::Series(number) => {
                let series = &chart.series[number];
                match series.mark {
                    ChartMark::Bars | ChartMark::Boxes => {
                        canvas.rectangle(&fill(number), (x, y), (16.0, 12.0));
                    }
                    ChartMark::Points => canvas.marker(number, x + 8.0, y + 6.0),
                    ChartMark::Reference => canvas.line("r", &[(x, y + 6.0), (x + 18.0, y + 6.0)]),
                    ChartMark::Line => {
                        canvas.line(&stroke(number), &[(x, y + 6.0), (x + 18.0, y + 6.0)]);
                        if series.points.len() <= POINTS_SHOWN {
                            canvas.marker(number, x + 9.0, y + 6.0);
                        }
                    }
                }
                &series.name
            }
        };
        canvas.text(x + 24.0, y + 11.0, Anchor::Start, text);
    }
}

/// The legend of values that papers print.
const PUBLISHED: &str = "published";

fn entry_width(chart: &FigureChart, entry: LegendEntry) -> f64 {
    let name = match entry {
        LegendEntry::Series(number) => chart.series[number].name.as_str(),
        LegendEntry::Published => PUBLISHED,
    };
    name.chars().count() as f64 * CHARACTER + 42.0
}

/// The places of bars side by side.
struct Bars<'a> {
    count: usize,
    x: &'a Axis,
}

impl Bars<'_> {
    /// Width of a bar, with the gap to the next one.
    fn width(&self) -> f64 {
        self.x.step() * 0.8 / self.count.max(1) as f64
    }

    /// Distance of the middle of a bar from the middle of its group.
    fn shift(&self, number: usize) -> f64 {
        (number as f64 + 0.5 - self.count as f64 / 2.0) * self.width()
    }
}

type Place<'a> = dyn Fn(&(f64, f64)) -> Option<(f64, f64)> + 'a;

/// Draws a series; bars have a shift, a width and a floor.
fn draw_series(
    canvas: &mut Canvas,
    series: &ChartSeries,
    number: usize,
    place: &Place<'_>,
    (shift, width, floor): (f64, f64, f64),
) {
    let points: Vec<(f64, f64)> = series.points.iter().filter_map(place).collect();
    match series.mark {
        ChartMark::Line => {
            canvas.line(&stroke(number), &points);
            if points.len() <= POINTS_SHOWN {
                points.iter().for_each(|&(x, y)| canvas.marker(number, x, y));
            }
        }
        ChartMark::Reference => canvas.line("r", &points),
        ChartMark::Points => points.iter().for_each(|&(x, y)| canvas.marker(number, x, y)),
        ChartMark::Bars => points.iter().for_each(|&(x, y)| {
            let left = x + shift - width * 0.46;
            canvas.rectangle(&fill(number), (left, y), (width * 0.92, (floor - y).max(0.0)));
        }),
        ChartMark::Boxes => {
            for percentiles in series.points.chunks(5) {
                let placed: Vec<(f64, f64)> = percentiles.iter().filter_map(place).collect();
                if let [low, first, median, third, high] = placed[..] {
                    let (x, half) = (median.0, 14.0);
                    canvas.line(&stroke(number), &[low, first]);
                    canvas.line(&stroke(number), &[third, high]);
                    canvas.line(&stroke(number), &[(x - half / 2.0, low.1), (x + half / 2.0, low.1)]);
                    canvas.line(&stroke(number), &[(x - half / 2.0, high.1), (x + half / 2.0, high.1)]);
                    let size = (2.0 * half, (first.1 - third.1).max(4.0));
                    canvas.rectangle(&fill(number), (x - half, first.1 - size.1), size);
                    if size.1 > 12.0 {
                        canvas.line("m", &[(x - half, median.1), (x + half, median.1)]);
                    }
                }
            }
        }
    }
}

/// The class of a series' areas.
fn fill(number: usize) -> String {
    format!("f{}", number % canvas::COLOURS)
}

/// The class of a series' lines.
fn stroke(number: usize) -> String {
    format!("s{}", number % canvas::COLOURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(mark: ChartMark, y: ChartAxis) -> FigureChart {
        let points = [(0.0, 5.0), (1.0, 0.0), (2.0, 4e6)];
        let series = |name| ChartSeries::new(name, mark, points).published([(1.0, 7.0)]);
        FigureChart {
            title: "a < b".to_owned(),
            x: ChartAxis::names("what", ["one", "two", "three"]),
            y,
            series: vec![series("first"), series("second")],
        }
    }

    #[test]
    fn the_same_data_give_the_same_picture() {
        let marks =
            [ChartMark::Line, ChartMark::Reference, ChartMark::Points, ChartMark::Bars, ChartMark::Boxes];
        for mark in marks {
            for y in [ChartAxis::linear("time, ns"), ChartAxis::logarithmic("time, ns")] {
                let charts = [chart(mark, y.clone()), chart(mark, y)];
                let picture = svg(&charts);
                assert_eq!(svg(&charts), picture);
                assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
                for part in ["a &lt; b", "time, ns", "two", "first", "second", PUBLISHED, "color-scheme"] {
                    assert!(picture.contains(part), "{part}");
                }
            }
        }
    }

    #[test]
    fn charts_of_nothing_are_pictures_too() {
        let empty = FigureChart { series: vec![], ..chart(ChartMark::Line, ChartAxis::logarithmic("ns")) };
        assert!(svg(&[empty]).contains("</svg>"));
        assert!(svg(&[]).contains("</svg>"));
    }
}
