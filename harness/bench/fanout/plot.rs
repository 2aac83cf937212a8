//! The convergence curves as a picture: SVG, written by hand.
//!
//! Invariant: time is drawn on a logarithmic axis, because the lines lie two orders of magnitude apart. Deliberately
//! absent: everything that a chart library could do and a handful of lines does not need.

use std::fmt::Write as _;
use std::time::Duration;

use super::curve::Curve;

/// A curve with its name.
pub(super) struct Line<'a> {
    pub(super) name: String,
    pub(super) curve: &'a Curve,
}

/// The picture of some curves.
pub(super) fn svg(title: &str, lines: &[Line<'_>]) -> String {
    let slowest = lines.iter().filter_map(|line| line.curve.points().pop());
    let scale = Scale::reaching(slowest.map(|(time, _)| time).max().unwrap_or_default());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    grid(&mut svg, scale);
    for (number, line) in lines.iter().enumerate() {
        draw(&mut svg, scale, number, line);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Powers of ten of milliseconds from left to right.
#[derive(Debug, Clone, Copy)]
struct Scale {
    decades: u32,
}

impl Scale {
    fn reaching(time: Duration) -> Self {
        let mut decades = 1;
        while FIRST * 10_u32.pow(decades) < time && decades < 6 {
            decades += 1;
        }
        Self { decades }
    }

    fn x(self, time: Duration) -> f64 {
        let decade = time.max(FIRST).as_secs_f64() / FIRST.as_secs_f64();
        LEFT + (RIGHT - LEFT) * decade.log10() / f64::from(self.decades)
    }
}

fn y(per_mille: usize) -> f64 {
    let share = f64::from(u32::try_from(per_mille).unwrap_or(1000)) / 1000.0;
    BOTTOM - (BOTTOM - TOP) * share
}

fn grid(svg: &mut String, scale: Scale) {
    // Writing to a string cannot fail.
    for decade in 0..=scale.decades {
        let time = FIRST * 10_u32.pow(decade);
        let x = scale.x(time);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {TOP}V{BOTTOM}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            BOTTOM + 18.0,
            time.as_secs_f64()
        );
    }
    for percent in [0, 25, 50, 75, 99] {
        let y = y(percent * 10);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
}

fn draw(svg: &mut String, scale: Scale, number: usize, line: &Line<'_>) {
    let colour = COLOURS[number % COLOURS.len()];
    let mut path = format!("M{LEFT} {BOTTOM}");
    for (time, per_mille) in line.curve.points() {
        let _ = write!(path, "H{:.1}V{:.1}", scale.x(time), y(per_mille));
    }
    let legend = TOP + 16.0 + 18.0 * f64::from(u32::try_from(number).unwrap_or_default());
    let _ = write!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
         <path d=\"M{:.1} {:.1}h22\" stroke=\"{colour}\" stroke-width=\"3\"/>\
         <text x=\"{:.1}\" y=\"{legend:.1}\">{}</text>\n",
        RIGHT + 12.0,
        legend - 4.0,
        RIGHT + 40.0,
        escaped(&line.name)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Where the axis begins.
const FIRST: Duration = Duration::from_millis(100);
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 660.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 350.0;
/// Told apart also by those who do not see red and green as others do.
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#555",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_from_the_corner_to_its_last_point() {
        let curve = Curve::new(vec![Duration::from_secs(1), Duration::from_secs(10)], 2);
        let lines = [Line {
            name: "a < b".to_owned(),
            curve: &curve,
        }];
        let svg = svg("title", &lines);
        // Two decades: 1 s is in the middle, 10 s at the right; half of all, then all.
        assert!(svg.contains("M60 350H360.0V197.0H660.0V44.0"), "{svg}");
        assert!(
            svg.contains("a &lt; b") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
    }

    #[test]
    fn the_axis_reaches_the_slowest() {
        for (millis, decades) in [(50, 1), (1_000, 1), (1_001, 2), (999_000, 4)] {
            assert_eq!(
                Scale::reaching(Duration::from_millis(millis)).decades,
                decades,
                "{millis}"
            );
        }
    }
}
