//! Bar charts and line charts as SVG.

use crate::names::{BASELINE_PREFIX, SELVEDGE, is_selvedge};
use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const IN_MEMORY: &str = "writing to a string cannot fail";
/// The colour of Selvedge, then the colours of the other servers in their order.
const ACCENT: &str = "#c2410c";
const PEER_COLOURS: [&str; 10] =
    ["#2563eb", "#059669", "#7c3aed", "#db2777", "#0891b2", "#ca8a04", "#4f46e5", "#65a30d", "#be123c", "#0f766e"];
const BASELINE_COLOUR: &str = "#94a3b8";

/// A bar, which may have two parts.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) server: String,
    pub(super) dark: f64,
    pub(super) light: f64,
}

/// A chart of horizontal bars.
pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    pub(super) subtitle: &'a str,
    pub(super) bars: Vec<Bar>,
    pub(super) decimals: usize,
}

/// The line of one server.
pub(super) struct Line {
    pub(super) server: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// The scale of the vertical axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

/// A chart of lines over a common axis.
pub(super) struct Lines<'a> {
    pub(super) title: &'a str,
    pub(super) subtitle: &'a str,
    pub(super) lines: Vec<Line>,
    pub(super) scale: Scale,
}

fn svg_start(height: f64, title: &str, subtitle: &str) -> String {
    let (title, subtitle) = (escape(title), escape(&shorten(subtitle, 120)));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"10\" fill=\"#ffffff\" stroke=\"#e2e8f0\"/>\n\
         <text x=\"24\" y=\"34\" font-size=\"17\" font-weight=\"600\" fill=\"#0f172a\">{title}</text>\n\
         <text x=\"24\" y=\"55\" font-size=\"12\" fill=\"#64748b\">{subtitle}</text>\n"
    )
}

fn shorten(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        text.to_owned()
    } else {
        text.chars().take(longest - 1).chain(['…']).collect()
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn colour(server: &str, index: usize) -> &'static str {
    match server {
        SELVEDGE => ACCENT,
        _ if server.starts_with(BASELINE_PREFIX) => BASELINE_COLOUR,
        _ => PEER_COLOURS[index % PEER_COLOURS.len()],
    }
}

/// Returns a round step for an axis, with at most six steps up to `largest`.
fn axis_step(largest: f64) -> f64 {
    let rough = (largest / 5.0).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|axis_step| *axis_step >= rough)
        .unwrap_or(rough)
}

fn short_number(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", trim(v / 1e6)),
        v if v >= 1e3 => format!("{}k", trim(v / 1e3)),
        v => trim(v),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Bars<'_> {
    pub(super) fn svg(mut self) -> String {
        const TOP: f64 = 76.0;
        const ROW: f64 = 26.0;
        const LEFT: f64 = 220.0;
        const RIGHT: f64 = 90.0;
        self.bars.sort_by(|a, b| (a.dark + a.light).total_cmp(&(b.dark + b.light)));
        let largest = self.bars.iter().map(|bar| bar.dark + bar.light).fold(0.0, f64::max).max(1e-9);
        let height = TOP + ROW * self.bars.len() as f64 + 18.0;
        let scale = (WIDTH - LEFT - RIGHT) / largest;
        let mut svg = svg_start(height, self.title, self.subtitle);
        for (index, bar) in self.bars.iter().enumerate() {
            let y = TOP + ROW * index as f64;
            let fill = if is_selvedge(&bar.server) {
                ACCENT
            } else if bar.server.starts_with(BASELINE_PREFIX) {
                BASELINE_COLOUR
            } else {
                "#475569"
            };
            let weight = if is_selvedge(&bar.server) { "700" } else { "400" };
            let (dark, light) = (bar.dark * scale, bar.light * scale);
            let text = y + 15.0;
            writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{text:.1}\" font-size=\"13\" font-weight=\"{weight}\" fill=\"#0f172a\" text-anchor=\"end\">{}</text>\n\
                 <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{dark:.1}\" height=\"19\" rx=\"2\" fill=\"{fill}\"/>\n\
                 <rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{light:.1}\" height=\"19\" rx=\"2\" fill=\"{fill}\" fill-opacity=\"0.45\"/>\n\
                 <text x=\"{:.1}\" y=\"{text:.1}\" font-size=\"12\" fill=\"#334155\">{:.*}</text>",
                LEFT - 10.0,
                escape(&bar.label),
                LEFT + dark,
                LEFT + dark + light + 7.0,
                self.decimals,
                bar.dark + bar.light,
            )
            .expect(IN_MEMORY);
        }
        svg + "</svg>\n"
    }
}

/// The area and axes of a line chart.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x_largest: f64,
    y_smallest: f64,
    y_largest: f64,
    scale: Scale,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * value / self.x_largest
    }

    fn y(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => value / self.y_largest,
            Scale::Logarithmic => {
                (value.max(self.y_smallest) / self.y_smallest).ln() / (self.y_largest / self.y_smallest).ln()
            }
        };
        self.bottom - (self.bottom - self.top) * part
    }

    fn grid(&self, svg: &mut String) {
        let mut x = 0.0;
        while x <= self.x_largest {
            let at = self.x(x);
            writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"#64748b\" text-anchor=\"middle\">{}</text>",
                self.bottom + 18.0,
                short_number(x)
            )
            .expect(IN_MEMORY);
            x += axis_step(self.x_largest);
        }
        for value in self.y_marks() {
            let at = self.y(value);
            writeln!(
                svg,
                "<line x1=\"{}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#e2e8f0\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"#64748b\" text-anchor=\"end\">{}</text>",
                self.left,
                self.right,
                self.left - 8.0,
                at + 4.0,
                short_number(value)
            )
            .expect(IN_MEMORY);
        }
    }

    fn y_marks(&self) -> Vec<f64> {
        let by = axis_step(self.y_largest);
        let linear = (0u32..=12).map(|index| f64::from(index) * by);
        let decades = (0..12).map(|power| 10f64.powi(power));
        let marks: Vec<f64> = if self.scale == Scale::Linear { linear.collect() } else { decades.collect() };
        marks.into_iter().filter(|mark| *mark >= self.y_smallest && *mark <= self.y_largest * 1.0001).collect()
    }
}

impl Lines<'_> {
    pub(super) fn svg(self) -> String {
        const HEIGHT: f64 = 470.0;
        let points = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(1.0, f64::max);
        let smallest = points().map(|point| point.1).fold(f64::INFINITY, f64::min).max(1.0);
        let y_largest = largest(&mut points().map(|point| point.1));
        let logarithmic = self.scale == Scale::Logarithmic;
        let frame = Frame {
            left: 70.0,
            right: WIDTH - 130.0,
            top: 80.0,
            bottom: HEIGHT - 40.0,
            x_largest: largest(&mut points().map(|point| point.0)),
            y_smallest: if logarithmic { 10f64.powf(smallest.log10().floor()) } else { 0.0 },
            y_largest: if logarithmic {
                10f64.powf(y_largest.log10().ceil()).max(smallest * 10.0)
            } else {
                y_largest * 1.05
            },
            scale: self.scale,
        };
        let mut svg = svg_start(HEIGHT, self.title, self.subtitle);
        frame.grid(&mut svg);
        for (index, line) in self.lines.iter().enumerate() {
            let colour = colour(&line.server, index);
            let width = if line.server == SELVEDGE { 3.5 } else { 1.8 };
            let path: Vec<String> =
                line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", frame.x(*x), frame.y(*y))).collect();
            writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>",
                path.join(" ")
            )
            .expect(IN_MEMORY);
            for (x, y) in &line.points {
                writeln!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                    frame.x(*x),
                    frame.y(*y)
                )
                .expect(IN_MEMORY);
            }
            let y = 92.0 + 20.0 * index as f64;
            writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"4\" rx=\"2\" fill=\"{colour}\"/>\n\
                 <text x=\"{:.1}\" y=\"{y:.1}\" font-size=\"12\" fill=\"#0f172a\">{}</text>",
                frame.right + 16.0,
                y - 6.0,
                frame.right + 36.0,
                escape(&line.server)
            )
            .expect(IN_MEMORY);
        }
        svg + "</svg>\n"
    }
}
