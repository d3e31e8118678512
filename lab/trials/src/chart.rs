//! Charts as SVG that needs nothing but itself: colours come from the page, so that they suit light and dark.

use std::fmt::Write as _;

use crate::html::escaped;

mod marker;

/// Size of the drawing; the page scales it to its column.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// Room around the field: for numbers and words.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 54.0;
/// Height of one line of a forest plot.
const LINE: f64 = 44.0;
/// Height of a word beside a vertical line, as large as a phone shows it.
const MARK: f64 = 20.0;
/// Colours that the page has for series; beyond them they repeat.
pub(crate) const COLOURS: usize = 6;

/// A drawing.
pub(crate) enum Chart {
    /// Points in a field with two axes.
    Field(Field),
    /// Ratios with their intervals, one per line.
    Forest(Forest),
    /// Shares of a whole, one bar per line.
    Bars(Bars),
}

/// Points in a field.
pub(crate) struct Field {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    /// Vertical lines with a word.
    pub(crate) marks: Vec<(f64, String)>,
}

/// The range of an axis.
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) is_log: bool,
}

/// Points of one kind.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether a line joins them.
    pub(crate) is_joined: bool,
    /// Colour and shape; `None`: by the place among the series.
    pub(crate) look: Option<usize>,
}

/// Ratios.
pub(crate) struct Forest {
    pub(crate) title: String,
    pub(crate) lines: Vec<Interval>,
}

/// One ratio: 1 is no difference.
pub(crate) struct Interval {
    pub(crate) label: String,
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Shares.
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) lines: Vec<Bar>,
}

/// One share of a whole, 0 to 1.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) share: f64,
    /// Bars of one kind have one colour.
    pub(crate) kind: usize,
}

impl Chart {
    /// There is nothing to see.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Field(field) => field.series.iter().all(|series| series.points.is_empty()),
            Self::Forest(forest) => forest.lines.is_empty(),
            Self::Bars(bars) => bars.lines.is_empty(),
        }
    }

    pub(crate) fn title(&self) -> &str {
        match self {
            Self::Field(field) => &field.title,
            Self::Forest(forest) => &forest.title,
            Self::Bars(bars) => &bars.title,
        }
    }

    pub(crate) fn svg(&self) -> String {
        match self {
            Self::Field(field) => field.svg(),
            Self::Forest(forest) => forest.svg(),
            Self::Bars(bars) => bars.svg(),
        }
    }
}

/// From values to a place on the drawing.
struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, is_log: bool, (from, to): (f64, f64)) -> Self {
        let usable = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let bounds =
            usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = match bounds {
            (low, high) if low > high => (1.0, 10.0),
            // Room beyond the outermost points, and never a field without width.
            (low, high) if is_log => (low / 1.25, high * 1.25),
            (_, high) => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
        };
        Self { low, high, is_log, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let map = |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let share = (map(value) - map(self.low)) / (map(self.high) - map(self.low));
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values within the bounds: 1, 2, 5 times powers of ten.
    fn ticks(&self) -> Vec<f64> {
        let within = |value: &f64| (self.low..=self.high).contains(value);
        if self.is_log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let all = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(decade)));
            let ticks: Vec<f64> = all.filter(within).collect();
            if ticks.len() < 2 {
                return vec![self.low, self.high];
            }
            let is_wide = ticks.len() > 8;
            return ticks.into_iter().filter(|tick| !is_wide || tick.log10().fract().abs() < 1e-9).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * unit).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * unit);
        (0..=10).map(|index| f64::from(index) * step).filter(within).collect()
    }
}

impl Field {
    fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let xs = points().map(|(x, _)| x).chain(self.marks.iter().map(|(x, _)| *x));
        let x = Scale::of(xs, self.x.is_log, (LEFT, WIDTH - RIGHT));
        let y = Scale::of(points().map(|(_, y)| y), self.y.is_log, (HEIGHT - BOTTOM, TOP));
        let mut svg = open(&self.title, HEIGHT);
        for tick in x.ticks() {
            let at = x.place(tick);
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{:.1}"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 20.0,
                short(tick)
            );
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{at:.1}" y2="{at:.1}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                short(tick)
            );
        }
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text><text transform="translate(16 {:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 8.0,
            self.x.label,
            f64::midpoint(TOP, HEIGHT - BOTTOM),
            self.y.label
        );
        for (row, (value, word)) in self.marks.iter().enumerate() {
            let at = x.place(*value);
            let (anchor, beside) = if at > WIDTH / 2.0 { ("end", -5.0) } else { ("start", 5.0) };
            let _ = write!(
                svg,
                r#"<line class="mark" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{:.1}"/><text x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
                HEIGHT - BOTTOM,
                at + beside,
                TOP + 14.0 + MARK * row as f64,
                escaped(word)
            );
        }
        let looks: Vec<usize> = self.series.iter().enumerate().map(|(at, series)| series.look.unwrap_or(at)).collect();
        for (series, look) in self.series.iter().zip(&looks) {
            series.draw(&mut svg, *look, &x, &y);
        }
        svg.push_str("</svg>");
        let legend = self.series.iter().zip(&looks).map(|(series, look)| {
            let colour = look % COLOURS;
            format!(r#"<span class="key s{colour}">{}{}</span>"#, marker::sample(*look), escaped(&series.name))
        });
        svg.push_str(&format!(r#"<div class="legend">{}</div>"#, legend.collect::<String>()));
        svg
    }
}

impl Series {
    fn draw(&self, svg: &mut String, look: usize, x: &Scale, y: &Scale) {
        let is_shown = |(_, value): &&(f64, f64)| !y.is_log || *value > 0.0;
        let mut points: Vec<(f64, f64)> = self.points.iter().filter(is_shown).copied().collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if self.is_joined && points.len() > 1 {
            let path: Vec<String> =
                points.iter().map(|(a, b)| format!("{:.1},{:.1}", x.place(*a), y.place(*b))).collect();
            let _ = write!(svg, r#"<polyline class="line s{}" points="{}"/>"#, look % COLOURS, path.join(" "));
        }
        for (a, b) in &points {
            let words = format!("{}: {}, {}", escaped(&self.name), short(*a), short(*b));
            svg.push_str(&marker::at(look, x.place(*a), y.place(*b), &words));
        }
    }
}

impl Forest {
    fn svg(&self) -> String {
        let height = TOP + LINE * self.lines.len() as f64 + BOTTOM;
        let left = 20.0;
        let values = self.lines.iter().flat_map(|line| [line.low, line.median, line.high]).chain([1.0]);
        let x = Scale::of(values, true, (left, WIDTH - RIGHT));
        let mut svg = open(&self.title, height);
        let bottom = height - BOTTOM;
        for tick in x.ticks() {
            let at = x.place(tick);
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{bottom:.1}"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                bottom + 20.0,
                short(tick)
            );
        }
        let one = x.place(1.0);
        let _ = write!(
            svg,
            r#"<line class="mark" x1="{one:.1}" x2="{one:.1}" y1="{TOP}" y2="{bottom:.1}"/><text x="{:.1}" y="{:.1}" text-anchor="middle">ratio; 1 is no difference</text>"#,
            f64::midpoint(left, WIDTH - RIGHT),
            height - 8.0
        );
        for (index, line) in self.lines.iter().enumerate() {
            // Below its label.
            let at = TOP + LINE * (index as f64 + 0.75);
            let Interval { label, median, low, high } = line;
            let _ = write!(
                svg,
                r#"<text x="{left}" y="{:.1}">{}</text><line class="line s0" x1="{:.1}" x2="{:.1}" y1="{at:.1}" y2="{at:.1}"/><circle class="dot s0" cx="{:.1}" cy="{at:.1}" r="4"><title>{median:.3} ({low:.3} to {high:.3})</title></circle>"#,
                at - 12.0,
                escaped(label),
                x.place(*low),
                x.place(*high),
                x.place(*median)
            );
        }
        svg.push_str("</svg>");
        svg
    }
}

impl Bars {
    fn svg(&self) -> String {
        let left = 20.0;
        let width = WIDTH - RIGHT - left;
        let mut svg = open(&self.title, TOP + LINE * self.lines.len() as f64);
        for (index, Bar { label, share, kind }) in self.lines.iter().enumerate() {
            let (top, colour) = (TOP + LINE * index as f64, kind % COLOURS);
            let _ = write!(
                svg,
                r#"<text x="{left}" y="{:.1}">{}: {:.0} %</text><rect class="grid" fill="none" x="{left}" y="{:.1}" width="{width}" height="12"/><rect class="bar s{colour}" x="{left}" y="{:.1}" width="{:.1}" height="12"/>"#,
                top + 14.0,
                escaped(label),
                share * 1e2,
                top + 22.0,
                top + 22.0,
                width * share.clamp(0.0, 1.0)
            );
        }
        svg.push_str("</svg>");
        svg
    }
}

fn open(title: &str, height: f64) -> String {
    let title = escaped(title);
    format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}"><title>{title}</title>"#)
}

/// `250`, `1.5k`, `20k`, `0.5`.
fn short(value: f64) -> String {
    let (number, unit) = match value.abs() {
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = if number.abs() >= 100.0 { 0 } else { 2 };
    let text = format!("{number:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &*text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_bounds() {
        let log = Scale::of([90.0, 9_000.0].into_iter(), true, (0.0, 1.0));
        assert_eq!(log.ticks(), [100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0]);
        let linear = Scale::of([10.0, 98.0].into_iter(), false, (0.0, 1.0));
        assert_eq!(linear.ticks(), [0.0, 50.0, 100.0]);
        assert_eq!([250.0, 1_500.0, 20_000.0, 0.5, 2.5e6].map(short), ["250", "1.5k", "20k", "0.5", "2.5M"]);
    }

    #[test]
    fn a_chart_of_nothing_or_one_point_is_still_a_drawing() {
        for points in [vec![], vec![(5.0, 7.0)], vec![(0.0, 0.0)]] {
            let field = Field {
                title: "a < b".to_owned(),
                x: Axis { label: "x", is_log: true },
                y: Axis { label: "y", is_log: false },
                series: vec![Series { name: "s".to_owned(), points, is_joined: true, look: None }],
                marks: vec![],
            };
            let svg = field.svg();
            assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let forest = Forest { title: "f".to_owned(), lines: vec![] };
        assert!(!forest.svg().contains("NaN"));
        let bar = Bar { label: "a < b".to_owned(), share: 1.2, kind: 7 };
        let bars = Bars { title: "b".to_owned(), lines: vec![bar] }.svg();
        assert!(bars.contains("a &lt; b: 120 %") && bars.contains(r#"width="600.0""#), "{bars}");
    }
}
