//! Elements of an SVG picture.

use std::fmt::Write;

/// Colours of series, each for a light and a dark page: those of Okabe and Ito (2008), which people
/// who see red and green alike tell apart, and more, with enough contrast.
const PALETTE: [(&str, &str); 10] = [
    ("#0072b2", "#56b4e9"),
    ("#c65102", "#f0965a"),
    ("#00855f", "#3fd0a0"),
    ("#b2558c", "#e7a3cb"),
    ("#9a6a00", "#e6b84a"),
    ("#2f8fc4", "#9ad0f0"),
    ("#57606a", "#c4ccd4"),
    ("#7a6a00", "#d6cb5c"),
    ("#6a5cc4", "#b3a9f5"),
    ("#7a3e14", "#cf9468"),
];

/// Number of colours.
pub const COLOURS: usize = PALETTE.len();

/// Dashes of lines, in turn.
const DASHES: [&str; 4] = ["none", "7 4", "2 3", "9 3 2 3"];

/// Styles of the other elements: text, title, grid, axes, references, medians, published values,
/// background.
const LIGHT: &str = "text{fill:#24292f}.g{stroke:#d8dee4}.a{stroke:#57606a}.r{stroke:#b3bac2}\
                     .m{stroke:#ffffff}.p{stroke:#24292f;fill:#ffffff}.b{fill:#ffffff}";
const DARK: &str = "text{fill:#e6edf3}.g{stroke:#30363d}.a{stroke:#8b949e}.r{stroke:#59626c}\
                    .m{stroke:#0d1117}.p{stroke:#e6edf3;fill:#0d1117}.b{fill:#0d1117}";

/// The place of a text relative to a point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// Ends there.
    End,
}

/// A picture that is being drawn.
#[derive(Default)]
pub struct Canvas {
    body: String,
}

// Writing to a string cannot fail.
impl Canvas {
    /// Adds a line through these points.
    pub fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        if points.is_empty() {
            return;
        }
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, "<polyline class=\"l {class}\" points=\"{}\"/>", points.join(" "));
    }

    /// Adds a rectangle.
    pub fn rectangle(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }

    /// Adds the mark of a series: a circle, a square or a triangle.
    pub fn marker(&mut self, number: usize, x: f64, y: f64) {
        let class = format!("f{}", number % COLOURS);
        match number % 3 {
            0 => {
                let _ =
                    writeln!(self.body, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
            }
            1 => self.rectangle(&class, (x - 3.5, y - 3.5), (7.0, 7.0)),
            _ => self.polygon(&class, &[(x, y - 4.5), (x + 4.5, y + 3.5), (x - 4.5, y + 3.5)]),
        }
    }

    /// Adds the mark of a published value, of this class besides.
    pub fn diamond(&mut self, class: &str, x: f64, y: f64) {
        self.polygon(
            format!("p {class}").trim_end(),
            &[(x, y - 6.5), (x + 6.5, y), (x, y + 6.5), (x - 6.5, y)],
        );
    }

    fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, "<polygon class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }

    /// Adds a text.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        let class = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " class=\"c\"",
            Anchor::End => " class=\"e\"",
        };
        let _ = writeln!(self.body, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text));
    }

    /// Adds a title.
    pub fn title(&mut self, x: f64, y: f64, text: &str) {
        let _ = writeln!(self.body, "<text class=\"h\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text));
    }

    /// Adds a text from bottom to top with its middle at this point.
    pub fn upright(&mut self, x: f64, y: f64, text: &str) {
        let _ = writeln!(
            self.body,
            "<text class=\"c\" x=\"{x:.1}\" y=\"{y:.1}\" transform=\"rotate(-90 {x:.1} {y:.1})\">{}</text>",
            escaped(text)
        );
    }

    /// Returns the picture of this size.
    pub fn finish(self, width: f64, height: f64) -> String {
        let colours = |of: fn(&(&'static str, &'static str)) -> &'static str| -> String {
            let classes = PALETTE.iter().enumerate().map(|(number, colour)| {
                let colour = of(colour);
                format!(".f{number}{{fill:{colour}}}.s{number}{{stroke:{colour}}}")
            });
            classes.collect()
        };
        let dashes: String =
            (0..COLOURS).map(|n| format!(".s{n}{{stroke-dasharray:{}}}", DASHES[n % DASHES.len()])).collect();
        let [light, dark] = [colours(|colour| colour.0), colours(|colour| colour.1)];
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\">\n\
             <style>\n\
             text{{font:13px system-ui,'DejaVu Sans',sans-serif}}.h{{font-size:15px;font-weight:600}}\
             .c{{text-anchor:middle}}.e{{text-anchor:end}}\n\
             .l{{fill:none;stroke-width:2}}.g,.a{{stroke-width:1}}.r{{stroke-width:5}}.p{{stroke-width:2}}\n\
             {dashes}\n{LIGHT}\n{light}\n\
             @media (prefers-color-scheme: dark){{\n{DARK}\n{dark}\n}}\n\
             </style>\n\
             <rect class=\"b\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// A text without characters of markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
