//! Charts, as data.

/// A chart: lines, points or bars over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it counts, with the unit.
    pub label: String,
    /// How its numbers lie.
    pub scale: Scale,
}

/// How the numbers of an axis lie.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By their logarithms. What is not above 0 is not drawn.
    Logarithmic,
    /// The numbers 0, 1, 2... stand for these names.
    Names(Vec<String>),
}

/// Things of one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// How they are drawn.
    pub mark: Mark,
    /// Where they are.
    pub points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line, with a point at each place if there are few.
    Line,
    /// A thick grey line: what others are measured by.
    Reference,
    /// Points only.
    Points,
    /// Bars from the axis, side by side with those of other series.
    Bars,
}

impl Axis {
    /// Evenly, from 0.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear }
    }

    /// By logarithms.
    pub fn logarithmic(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Logarithmic }
    }

    /// Names in place of numbers.
    pub fn names<T: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = T>) -> Axis {
        let names = names.into_iter().map(Into::into).collect();
        Axis { label: label.into(), scale: Scale::Names(names) }
    }
}

impl Series {
    /// A series of this name.
    pub fn new(name: impl Into<String>, mark: Mark, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        Series { name: name.into(), mark, points: points.into_iter().collect() }
    }
}
