//! The report to read.

use super::Report;
use super::plots::Plot;
use crate::figures::{Case, Figure, Row};
use crate::servers::bench_folder;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

/// Writing to a string cannot fail.
const IN_MEMORY: &str = "a string takes what it is given";

/// The whole report.
pub(crate) fn whole(report: &Report, plots: &[Plot]) -> String {
    let mut text = String::from("# Selvedge beside its peers\n\n");
    let machine = &report.machine;
    writeln!(
        text,
        "{}, revision {}. {}, {} cores, {} GiB; {}, {}; {}.\n\n    {}\n\n\
         Each server on one core, the load on another, over loopback. {} rounds of {} s, every server once in every round; \
         the figures are medians. Processor time is that of the server's processes alone. Times are from an open loop at \
         half of what the server can do, counted from the moment a request was meant to leave.\n",
        machine.date,
        machine.revision,
        machine.processor,
        machine.cores,
        machine.memory_gib,
        machine.kernel,
        machine.system,
        machine.compiler,
        report.command,
        report.rounds,
        report.seconds,
    )
    .expect(IN_MEMORY);
    for missing in &report.missing {
        writeln!(text, "- Missing: {} ({}; `{}`)", missing.name, missing.why, missing.install).expect(IN_MEMORY);
    }
    for note in &report.notes {
        writeln!(text, "- {note}").expect(IN_MEMORY);
    }
    for case in &report.cases {
        text += &table(case);
        for plot in plots.iter().filter(|plot| plot.case == case.name) {
            writeln!(text, "\n![{}]({})", plot.title, plot.file).expect(IN_MEMORY);
        }
    }
    text + &configurations(report)
}

/// The tables alone.
pub(crate) fn tables(report: &Report) -> String {
    report.cases.iter().map(table).collect()
}

fn table(case: &Case) -> String {
    let used: BTreeSet<Figure> = case.rows.iter().flat_map(|row| row.figures.keys().copied()).collect();
    let has_conditions = case.rows.iter().any(|row| !row.at.is_empty());
    let mut text = format!("\n## {}\n\n{}.\n\n", case.name, case.title);
    let mut cells = vec!["server".to_owned()];
    cells.extend(has_conditions.then(|| "at".to_owned()));
    cells.extend(used.iter().map(|figure| figure.column().0.to_owned()));
    let lines = std::iter::once("---").chain(cells.iter().skip(1).map(|_| "--:")).collect::<Vec<_>>().join(" | ");
    writeln!(text, "| {} |\n| {lines} |", cells.join(" | ")).expect(IN_MEMORY);
    for row in &case.rows {
        let mut cells = line(row, &used);
        if has_conditions {
            cells.insert(1, row.at.clone());
        }
        writeln!(text, "| {} |", cells.join(" | ")).expect(IN_MEMORY);
    }
    for note in &case.notes {
        write!(text, "\n- {note}").expect(IN_MEMORY);
    }
    text + "\n"
}

fn line(row: &Row, used: &BTreeSet<Figure>) -> Vec<String> {
    let name = if row.server == crate::servers::SELVEDGE { format!("**{}**", row.server) } else { row.server.clone() };
    let mut cells = vec![name];
    cells.extend(
        used.iter().map(|figure| row.figures.get(figure).map_or_else(String::new, |value| cell(*figure, *value))),
    );
    cells
}

fn cell(figure: Figure, value: f64) -> String {
    if figure == Figure::GeneratorLimited {
        return if value > 0.0 { "yes".to_owned() } else { "no".to_owned() };
    }
    let text = format!("{value:.*}", figure.column().1);
    let (whole, rest) =
        text.split_once('.').map_or((text.as_str(), String::new()), |(whole, rest)| (whole, format!(".{rest}")));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}

fn configurations(report: &Report) -> String {
    let mut text =
        String::from("\n## Versions and configurations\n\n| server | version | command |\n| --- | --- | --- |\n");
    for server in &report.servers {
        writeln!(text, "| {} | {} | `{}` |", server.name, server.version, server.command).expect(IN_MEMORY);
    }
    for server in &report.servers {
        let Some(config) = &server.config else { continue };
        let content = fs::read_to_string(bench_folder().join(config)).unwrap_or_default();
        writeln!(text, "\n<details><summary>{config}</summary>\n\n```\n{content}```\n\n</details>").expect(IN_MEMORY);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(cell(Figure::RequestsPerSecond, 1_234_567.4), "1,234,567");
        assert_eq!(cell(Figure::CpuUs, 12.345), "12.35");
        assert_eq!(cell(Figure::Errors, 999.0), "999");
    }
}
