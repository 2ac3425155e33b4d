//! Charts, as data.

/// A chart: lines, points or bars over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureChart {
    /// Its title.
    pub title: String,
    /// From left to right.
    pub x: ChartAxis,
    /// From bottom to top.
    pub y: ChartAxis,
    /// Its series.
    pub series: Vec<ChartSeries>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartAxis {
    /// The quantity, with its unit.
    pub label: String,
    /// Its scale.
    pub scale: AxisScale,
}

/// The scale of an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum AxisScale {
    /// Evenly, from 0.
    Linear,
    /// By their logarithms. What is not above 0 is not drawn.
    Logarithmic,
    /// The numbers 0, 1, 2... stand for these names.
    Names(Vec<String>),
}

/// Things of one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartSeries {
    /// Its text in the legend.
    pub name: String,
    /// Its mark.
    pub mark: ChartMark,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// Values that papers print.
    pub published: Vec<(f64, f64)>,
}

/// The mark of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartMark {
    /// A line, with a point at each place if there are few.
    Line,
    /// A thick grey line: what others are measured by.
    Reference,
    /// Points only.
    Points,
    /// Bars from the axis, side by side with those of other series.
    Bars,
    /// Boxes from the 25th to the 75th percentile, with a line at the median, and whiskers to the
    /// 1st and the 99th: five points for each, in order.
    Boxes,
}

impl ChartAxis {
    /// Evenly, from 0.
    pub fn linear(label: impl Into<String>) -> ChartAxis {
        ChartAxis { label: label.into(), scale: AxisScale::Linear }
    }

    /// By logarithms.
    pub fn logarithmic(label: impl Into<String>) -> ChartAxis {
        ChartAxis { label: label.into(), scale: AxisScale::Logarithmic }
    }

    /// Names in place of numbers.
    pub fn names<T: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = T>) -> ChartAxis {
        let names = names.into_iter().map(Into::into).collect();
        ChartAxis { label: label.into(), scale: AxisScale::Names(names) }
    }
}

impl ChartSeries {
    /// A series of this name.
    pub fn new(
        name: impl Into<String>,
        mark: ChartMark,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> ChartSeries {
        ChartSeries { name: name.into(), mark, points: points.into_iter().collect(), published: Vec::new() }
    }

    /// The same with values that papers print.
    pub fn published(self, points: impl IntoIterator<Item = (f64, f64)>) -> ChartSeries {
        ChartSeries { published: points.into_iter().collect(), ..self }
    }
}
