//! Chooses the plots of a section.

use super::Section;
use super::chart::{Bar, Bars, Line, Lines, Scale};
use crate::figures::{Case, Figure, Row};

/// A plot.
pub(crate) struct Plot {
    /// The table to which it belongs.
    pub(crate) case: String,
    pub(crate) title: String,
    pub(crate) file: String,
    pub(crate) svg: String,
}

/// Draws all plots for which the section has figures.
pub(crate) fn draw(section: &Section) -> Vec<Plot> {
    section.cases.iter().flat_map(plots_of).collect()
}

fn plots_of(case: &Case) -> Vec<Plot> {
    match case.workload.as_str() {
        "load-curve" => vec![
            curve(
                case,
                Figure::RequestsPerSecond,
                "Responses per second against offered requests per second",
                Scale::Linear,
            ),
            curve(
                case,
                Figure::P99Us,
                "p99 of the responses (µs) against offered requests per second",
                Scale::Logarithmic,
            ),
        ],
        "applications" | "http2" | "tls" => {
            let has = |figure| case.rows.iter().any(|row| row.figures.contains_key(&figure));
            let memory = || bars(case, Figure::BytesPerConnection, "Private bytes per connection");
            let plots = [has(Figure::CpuUs).then(|| cpu(case)), has(Figure::BytesPerConnection).then(memory)];
            plots.into_iter().flatten().collect()
        }
        "idle" => vec![bars(case, Figure::BytesPerConnection, "Private bytes per idle connection")],
        "cold" | "slow" => vec![bars(case, Figure::P99Us, "p99 of the ordinary traffic (µs)")],
        "cores" => vec![cpu(case)],
        _ => vec![cpu(case), bars(case, Figure::P99Us, "p99 at half load (µs)")],
    }
}

fn plot(case: &Case, suffix: &str, title: &str, svg: String) -> Plot {
    Plot { case: case.name.clone(), title: title.to_owned(), file: format!("{}{suffix}.svg", case.name), svg }
}

fn suffix(figure: Figure) -> &'static str {
    match figure {
        Figure::P99Us => "-p99",
        Figure::BytesPerConnection => "-memory",
        _ => "",
    }
}

fn label(row: &Row) -> String {
    if row.condition.is_empty() { row.server.clone() } else { format!("{}, {}", row.server, row.condition) }
}

/// Draws user and system time as stacked bars, the cheapest server first.
fn cpu(case: &Case) -> Plot {
    let title = "CPU microseconds per request: user (dark) and system (light)";
    let figure = |row: &Row, figure| row.figures.get(&figure).copied().unwrap_or(0.0);
    let rows = case.rows.iter().filter(|row| row.figures.contains_key(&Figure::CpuUs));
    let bars = rows
        .map(|row| Bar {
            label: label(row),
            server: row.server.clone(),
            dark: figure(row, Figure::UserUs),
            light: figure(row, Figure::SystemUs),
        })
        .collect();
    plot(case, "", title, Bars { title, subtitle: &case.title, bars, decimals: 2 }.svg())
}

fn bars(case: &Case, figure: Figure, title: &str) -> Plot {
    let bars = case
        .rows
        .iter()
        .filter_map(|row| {
            let value = *row.figures.get(&figure)?;
            Some(Bar { label: label(row), server: row.server.clone(), dark: value, light: 0.0 })
        })
        .collect();
    plot(case, suffix(figure), title, Bars { title, subtitle: &case.title, bars, decimals: figure.column().1 }.svg())
}

fn curve(case: &Case, figure: Figure, title: &str, scale: Scale) -> Plot {
    let mut lines: Vec<Line> = Vec::new();
    for row in &case.rows {
        let point = row.figures.get(&Figure::OfferedPerSecond).copied().zip(row.figures.get(&figure).copied());
        let Some(point) = point else { continue };
        match lines.iter_mut().find(|line| line.server == row.server) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { server: row.server.clone(), points: vec![point] }),
        }
    }
    plot(case, suffix(figure), title, Lines { title, subtitle: &case.title, lines, scale }.svg())
}
