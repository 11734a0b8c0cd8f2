//! A small writer of pictures: horizontal bars and lines, both on logarithmic scales, as SVG. Figures here lie between a
//! microsecond and minutes, so a linear scale would show the slowest only.

use std::fmt::Write as _;

/// Colours that people tell apart who see fewer of them, in the order in which subjects take them.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b",
];
const WIDTH: f64 = 760.0;
const RIGHT: f64 = 84.0;
const LABELS: f64 = 270.0;
const ROW: f64 = 26.0;
const TOP: f64 = 44.0;
const PLOT_HEIGHT: f64 = 300.0;
const AXIS: f64 = 46.0;

/// A bar: what is measured, whose it is, the median, and the interval that holds the true one.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) group: usize,
    pub(super) value: f64,
    pub(super) interval: Option<(f64, f64)>,
}

/// A line of a diagram.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// What is written at an axis.
pub(super) struct Axis {
    pub(super) title: &'static str,
    /// How a value is written.
    pub(super) tick: fn(f64) -> String,
}

/// Bars below each other, each with its value.
pub(super) fn bars(title: &str, axis: &Axis, bars: &[Bar]) -> String {
    let ends = bars.iter().flat_map(|bar| {
        let (low, high) = bar.interval.unwrap_or((bar.value, bar.value));
        [bar.value, low, high]
    });
    let scale = Scale::of(ends, LABELS, WIDTH - RIGHT);
    let bottom = TOP + ROW * count(bars.len());
    let mut out = begin(title, bottom + AXIS);
    across(&mut out, axis, &scale, bottom);
    for (number, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * count(number);
        let (colour, end) = (COLOURS[bar.group % COLOURS.len()], scale.at(bar.value));
        text(&mut out, LABELS - 8.0, y + 17.0, "end", &bar.label);
        rect(
            &mut out,
            [LABELS, y + 5.0, end - LABELS, ROW - 10.0],
            colour,
        );
        let mut after = end;
        if let Some((low, high)) = bar.interval {
            let (low, high) = (scale.at(low), scale.at(high));
            line(&mut out, [low, y + 13.0, high, y + 13.0], "#111", 1.5);
            after = after.max(high);
        }
        text(
            &mut out,
            after + 6.0,
            y + 17.0,
            "start",
            &(axis.tick)(bar.value),
        );
    }
    out + "</svg>\n"
}

/// Lines with a mark at each point, and their names on the right of their ends or above.
pub(super) fn lines(title: &str, [x, y]: [&Axis; 2], lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let legend = TOP + 18.0 * count(lines.len().div_ceil(2));
    let bottom = legend + PLOT_HEIGHT;
    let across_scale = Scale::of(points().map(|point| point.0), 78.0, WIDTH - 30.0);
    let up = Scale::of(points().map(|point| point.1), bottom, legend + 8.0);
    let mut out = begin(title, bottom + AXIS);
    across(&mut out, x, &across_scale, bottom);
    for value in up.ticks() {
        let at = up.at(value);
        line(&mut out, [78.0, at, WIDTH - 30.0, at], "#ddd", 1.0);
        text(&mut out, 72.0, at + 4.0, "end", &(y.tick)(value));
    }
    text(&mut out, 14.0, legend - 4.0, "start", y.title);
    for (number, drawn) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let place = (
            300.0 + 225.0 * count(number % 2),
            TOP + 18.0 * count(number / 2),
        );
        rect(&mut out, [place.0, place.1 - 9.0, 12.0, 10.0], colour);
        text(&mut out, place.0 + 18.0, place.1, "start", &drawn.name);
        let at = |point: &(f64, f64)| (across_scale.at(point.0), up.at(point.1));
        for pair in drawn.points.windows(2) {
            let ((x1, y1), (x2, y2)) = (at(&pair[0]), at(&pair[1]));
            line(&mut out, [x1, y1, x2, y2], colour, 2.0);
        }
        for (x, y) in drawn.points.iter().map(at) {
            let _ = writeln!(
                out,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}"/>"#
            );
        }
    }
    out + "</svg>\n"
}

/// The scale below a plot, with a line up from each tick.
fn across(out: &mut String, axis: &Axis, scale: &Scale, bottom: f64) {
    for value in scale.ticks() {
        let at = scale.at(value);
        line(out, [at, TOP, at, bottom], "#ddd", 1.0);
        text(out, at, bottom + 18.0, "middle", &(axis.tick)(value));
    }
    text(out, WIDTH - 30.0, bottom + 38.0, "end", axis.title);
}

/// A logarithmic scale.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale from the power of ten below the least value to that above the greatest, drawn between two places.
    fn of(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let drawn = values.filter(|value| *value > 0.0);
        let (least, most) = drawn.fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        let low = least.min(most).log10().floor();
        let high = most.log10().ceil().max(low + 1.0);
        Self {
            low,
            high,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.max(f64::MIN_POSITIVE).log10() - self.low) / (self.high - self.low);
        self.from + (self.to - self.from) * part.clamp(0.0, 1.0)
    }

    /// The powers of ten.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (mut exponent, high) = (self.low, self.high);
        std::iter::from_fn(move || {
            let tick = (exponent <= high).then(|| 10_f64.powf(exponent));
            exponent += 1.0;
            tick
        })
    }
}

fn begin(title: &str, height: f64) -> String {
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="12" fill="#222">
<rect width="100%" height="100%" rx="6" fill="#fff"/>
"##
    );
    let _ = writeln!(
        out,
        r#"<text x="14" y="24" font-size="15" font-weight="600">{}</text>"#,
        escaped(title)
    );
    out
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{words}</text>"#
    );
}

fn rect(out: &mut String, [x, y, width, height]: [f64; 4], colour: &str) {
    let width = width.max(1.0);
    let _ = writeln!(
        out,
        r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
    );
}

fn line(out: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str, width: f64) {
    let _ = writeln!(
        out,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="{width}"/>"#
    );
}

/// Text as it stands in XML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[expect(clippy::cast_precision_loss, reason = "a few rows of a picture")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXIS: Axis = Axis {
        title: "ms",
        tick: |value| format!("{value}"),
    };

    #[test]
    fn a_decade_is_as_wide_as_another() {
        let scale = Scale::of([2.0, 300.0].into_iter(), 0.0, 300.0);
        let near = |value: f64, place: f64| (scale.at(value) - place).abs() < 1e-9;
        assert!(near(1.0, 0.0) && near(10.0, 100.0) && near(1000.0, 300.0));
        assert_eq!(scale.ticks().count(), 4);
    }

    #[test]
    fn a_picture_is_xml_whatever_a_subject_is_called() {
        let bar = |label: &str, value| Bar {
            label: label.to_owned(),
            group: 0,
            value,
            interval: Some((value / 2.0, value * 2.0)),
        };
        let drawn = bars("a & b", &AXIS, &[bar("<x>", 1.0), bar("\"y\"", 20.0)]);
        assert!(
            drawn.contains("&lt;x&gt;") && drawn.contains("a &amp; b"),
            "{drawn}"
        );
        let line = Line {
            name: "x<y".to_owned(),
            points: vec![(1.0, 1.0), (10.0, 5.0)],
        };
        let also = lines("c", [&AXIS, &AXIS], &[line]);
        for picture in [drawn, also] {
            assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
            assert!(
                !picture.contains("NaN") && !picture.contains("inf"),
                "{picture}"
            );
        }
    }

    #[test]
    fn nothing_measured_is_an_empty_picture() {
        let drawn = bars("none", &AXIS, &[]);
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }
}
