//! Charts as SVG: the same data, the same bytes.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::chart::{AxisScale, ChartAxis, ChartMark, ChartSeries, FigureChart};

/// Pixels of a chart.
const SIZE: (u32, u32) = (800, 400);

/// Of these, the ones at the right that the legend takes.
const LEGEND: u32 = 190;

/// Colours that people who see red and green alike tell apart: those of Okabe and Ito (2008), and
/// three more.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 130, 0),
    RGBColor(150, 140, 220),
    RGBColor(120, 60, 20),
];

/// A line with more points than this is drawn without them.
const POINTS_SHOWN: usize = 40;

/// Colour of references.
const GREY: RGBColor = RGBColor(150, 150, 150);

/// The drawing library refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot draw: {0}")]
pub struct DrawError(String);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// These charts as a picture, two in a row.
///
/// # Errors
/// If the drawing library refuses.
pub fn svg(charts: &[FigureChart]) -> Result<String, DrawError> {
    let columns = charts.len().clamp(1, 2) as u32;
    let rows = (charts.len() as u32).div_ceil(columns).max(1);
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (SIZE.0 * columns, SIZE.1 * rows)).into_drawing_area();
        root.fill(&WHITE).map_err(refused)?;
        for (area, chart) in root.split_evenly((rows as usize, columns as usize)).iter().zip(charts) {
            draw(area, chart)?;
        }
        root.present().map_err(refused)?;
    }
    Ok(text)
}

fn refused(error: impl ToString) -> DrawError {
    DrawError(error.to_string())
}

/// Axes are of different types, one for each scale; names lie evenly.
fn draw(area: &Area<'_>, chart: &FigureChart) -> Result<(), DrawError> {
    let (area, legend) = area.split_horizontally(SIZE.0 - LEGEND);
    draw_legend(&legend, chart)?;
    let (x, y) = (extent(chart, &chart.x, |p| p.0), extent(chart, &chart.y, |p| p.1));
    let is_log = |axis: &ChartAxis| axis.scale == AxisScale::Logarithmic;
    match (is_log(&chart.x), is_log(&chart.y)) {
        (false, false) => draw_on(&area, chart, x.clone(), y.clone(), &x, &y),
        (false, true) => draw_on(&area, chart, x.clone(), y.clone().log_scale(), &x, &y),
        (true, false) => draw_on(&area, chart, x.clone().log_scale(), y.clone(), &x, &y),
        (true, true) => draw_on(&area, chart, x.clone().log_scale(), y.clone().log_scale(), &x, &y),
    }
}

/// From where to where an axis goes.
fn extent(chart: &FigureChart, axis: &ChartAxis, of: fn(&(f64, f64)) -> f64) -> Range<f64> {
    let values = || chart.series.iter().flat_map(|s| &s.points).map(of).filter(|value| value.is_finite());
    let most = values().fold(0.0, f64::max);
    match &axis.scale {
        AxisScale::Names(names) => -0.5..names.len() as f64 - 0.5,
        AxisScale::Linear => 0.0..if most > 0.0 { most * 1.05 } else { 1.0 },
        AxisScale::Logarithmic => {
            let least = values().filter(|&value| value > 0.0).fold(f64::INFINITY, f64::min);
            let (least, most) = if least <= most { (least, most) } else { (1.0, 10.0) };
            decade(least, f64::floor)..decade(most * 1.001, f64::ceil)
        }
    }
}

/// The power of ten next to a value.
fn decade(value: f64, round: fn(f64) -> f64) -> f64 {
    10f64.powf(round(value.log10()))
}

fn draw_on<X, Y>(
    area: &Area<'_>,
    chart: &FigureChart,
    x_axis: X,
    y_axis: Y,
    x: &Range<f64>,
    y: &Range<f64>,
) -> Result<(), DrawError>
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
    Y: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let mut context = ChartBuilder::on(area)
        .caption(&chart.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(68)
        .build_cartesian_2d(x_axis, y_axis)
        .map_err(refused)?;
    let name_of = |value: &f64| label(&chart.x.scale, *value);
    let mut mesh = context.configure_mesh();
    mesh.x_desc(&chart.x.label).y_desc(&chart.y.label);
    mesh.light_line_style(WHITE.mix(0.0)).bold_line_style(BLACK.mix(0.12));
    mesh.label_style(("sans-serif", 12)).axis_desc_style(("sans-serif", 13));
    mesh.x_label_formatter(&name_of).y_label_formatter(&number);
    if let AxisScale::Names(names) = &chart.x.scale {
        mesh.x_labels(names.len()).disable_x_mesh();
    }
    mesh.draw().map_err(refused)?;
    let bars = chart.series.iter().filter(|series| series.mark == ChartMark::Bars).count();
    let mut bar = 0;
    for (series, colour) in chart.series.iter().zip(colours(chart)) {
        let points = visible(series, x, y);
        let drawn = match series.mark {
            ChartMark::Line => {
                let size = if series.points.len() <= POINTS_SHOWN { 2 } else { 0 };
                context.draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(size))
            }
            ChartMark::Reference => context.draw_series(LineSeries::new(points, colour.stroke_width(5))),
            ChartMark::Points => {
                context.draw_series(points.map(|point| Circle::new(point, 4, colour.filled())))
            }
            ChartMark::Bars => {
                let (width, place, floor) = (0.8 / bars as f64, bar as f64, y.start);
                bar += 1;
                context.draw_series(points.map(move |(at, height)| {
                    let left = at - 0.4 + width * place;
                    Rectangle::new([(left, floor), (left + width * 0.92, height)], colour.filled())
                }))
            }
        };
        drawn.map_err(refused)?;
    }
    Ok(())
}

/// The colours of a chart's series, in order.
fn colours(chart: &FigureChart) -> Vec<RGBColor> {
    let mut others = COLOURS.iter().cycle().copied();
    let colour = |series: &ChartSeries| match series.mark {
        ChartMark::Reference => Some(GREY),
        _ => others.next(),
    };
    chart.series.iter().filter_map(colour).collect()
}

/// Draws the legend, a line per series.
fn draw_legend(area: &Area<'_>, chart: &FigureChart) -> Result<(), DrawError> {
    for (row, (series, colour)) in (0..).zip(chart.series.iter().zip(colours(chart))) {
        let top = 44 + 20 * row;
        area.draw(&Rectangle::new([(4, top), (20, top + 10)], colour.filled())).map_err(refused)?;
        let text = Text::new(series.name.as_str(), (28, top - 2), ("sans-serif", 12));
        area.draw(&text).map_err(refused)?;
    }
    Ok(())
}

/// The points that lie on the axes.
fn visible<'a>(
    series: &'a ChartSeries,
    x: &Range<f64>,
    y: &Range<f64>,
) -> impl Iterator<Item = (f64, f64)> + 'a + use<'a> {
    let (x, y) = (x.clone(), y.clone());
    let is_on = |range: &Range<f64>, value: f64| value >= range.start && value <= range.end;
    series.points.iter().copied().filter(move |&(at, height)| is_on(&x, at) && is_on(&y, height))
}

/// Returns the label at a value of the axis.
fn label(scale: &AxisScale, value: f64) -> String {
    let AxisScale::Names(names) = scale else { return number(&value) };
    let is_place = (value - value.round()).abs() < 0.01 && value > -0.4;
    names.get(value.round().max(0.0) as usize).filter(|_| is_place).cloned().unwrap_or_default()
}

/// A number without digits that say nothing.
fn number(value: &f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-3..1e5).contains(&size) => format!("{value:.0e}"),
        _ => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(mark: ChartMark, y: ChartAxis) -> FigureChart {
        let points = [(0.0, 5.0), (1.0, 0.0), (2.0, 4e6)];
        FigureChart {
            title: "a < b".to_owned(),
            x: ChartAxis::names("what", ["one", "two", "three"]),
            y,
            series: vec![ChartSeries::new("first", mark, points), ChartSeries::new("second", mark, points)],
        }
    }

    #[test]
    fn the_same_data_give_the_same_picture() {
        for mark in [ChartMark::Line, ChartMark::Reference, ChartMark::Points, ChartMark::Bars] {
            for y in [ChartAxis::linear("time, ns"), ChartAxis::logarithmic("time, ns")] {
                let charts = [chart(mark, y.clone()), chart(mark, y)];
                let picture = svg(&charts).unwrap();
                assert_eq!(svg(&charts).unwrap(), picture);
                assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
                for part in ["a &lt; b", "time, ns", "two", "first", "second"] {
                    assert!(picture.contains(part), "{part}");
                }
            }
        }
    }

    #[test]
    fn charts_of_nothing_are_pictures_too() {
        let empty = FigureChart { series: vec![], ..chart(ChartMark::Line, ChartAxis::logarithmic("ns")) };
        assert!(svg(&[empty]).unwrap().contains("</svg>"));
        assert!(svg(&[]).unwrap().contains("</svg>"));
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 0.5, 1234.5, 1e6, 2e-9, -3.0];
        assert_eq!(numbers.map(|n| number(&n)), ["0", "0.5", "1234.5", "1e6", "2e-9", "-3"]);
    }
}
