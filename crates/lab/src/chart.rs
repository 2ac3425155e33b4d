//! Charts, as data.

/// A chart: lines, points or bars over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Its title.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// Its series.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// Its scale.
    pub scale: Scale,
}

/// The scale of an axis.
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
    /// Its text in the legend.
    pub name: String,
    /// Its mark.
    pub mark: Mark,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// The mark of a series.
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
