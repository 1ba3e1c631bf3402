//! The report as Markdown.

use super::{Section, plots};
use crate::figures::{Case, Figure, Row};
use crate::names::{bench_folder, is_selvedge};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

/// Why a result of `writeln!` is ignored.
const IN_MEMORY: &str = "writing to a string cannot fail";

/// Returns the whole report.
pub(crate) fn report(sections: &[Section]) -> String {
    let mut text = String::from(
        "# Selvedge and other servers\n\n\
         Each server runs on one core and the load generator on another, over loopback. Each round measures every server once; \
         the figures are medians. Processor time is that of the server's processes alone. Latencies are from an open loop at \
         half of the server's capacity (a quarter in `cold`). They count from the time at which a request was due, if it had to \
         wait for a connection, to the time at which the kernel received the response. Each section has the date, machine and \
         command of its measurement.\n",
    );
    for section in sections {
        text += &environment(section);
        let plots = plots::draw(section);
        for case in &section.cases {
            text += &table(case);
            for plot in plots.iter().filter(|plot| plot.case == case.name) {
                writeln!(text, "\n![{}]({})", plot.title, plot.file).expect(IN_MEMORY);
            }
        }
    }
    text + &configurations(sections)
}

fn environment(section: &Section) -> String {
    let machine = &section.machine;
    let mut text = format!(
        "\n## Workload {}\n\n{}, revision {}. {}, {} cores, {} GiB; {}, {}; {}. {} rounds of {} s.\n\n    {}\n",
        section.workload,
        machine.date,
        machine.revision,
        machine.processor,
        machine.cores,
        machine.memory_gib,
        machine.kernel,
        machine.system,
        machine.compiler,
        section.rounds,
        section.seconds,
        section.command,
    );
    if !machine.congestion.is_empty() {
        write!(text, "\nThe congestion control of the system is `{}`.\n", machine.congestion).expect(IN_MEMORY);
    }
    for missing in &section.missing {
        write!(text, "\n- Missing: {} ({}; `{}`)", missing.name, missing.reason, missing.install).expect(IN_MEMORY);
    }
    text + if section.missing.is_empty() { "" } else { "\n" }
}

/// Returns the tables of a section without the text around them.
pub(crate) fn tables(section: &Section) -> String {
    section.cases.iter().map(table).collect()
}

fn table(case: &Case) -> String {
    let used: BTreeSet<Figure> = case.rows.iter().flat_map(|row| row.figures.keys().copied()).collect();
    let has_conditions = case.rows.iter().any(|row| !row.condition.is_empty());
    let mut text = format!("\n### {}\n\n{}.\n\n", case.name, case.title);
    let mut cells = vec!["server".to_owned()];
    cells.extend(has_conditions.then(|| "condition".to_owned()));
    cells.extend(used.iter().map(|figure| figure.column().0.to_owned()));
    let lines = std::iter::once("---").chain(cells.iter().skip(1).map(|_| "--:")).collect::<Vec<_>>().join(" | ");
    writeln!(text, "| {} |\n| {lines} |", cells.join(" | ")).expect(IN_MEMORY);
    for row in &case.rows {
        let mut cells = line(row, &used);
        if has_conditions {
            cells.insert(1, row.condition.clone());
        }
        writeln!(text, "| {} |", cells.join(" | ")).expect(IN_MEMORY);
    }
    for note in &case.notes {
        write!(text, "\n- {note}").expect(IN_MEMORY);
    }
    text + "\n"
}

fn line(row: &Row, used: &BTreeSet<Figure>) -> Vec<String> {
    let name = if is_selvedge(&row.server) { format!("**{}**", row.server) } else { row.server.clone() };
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
    let (integer, fraction) = text
        .split_once('.')
        .map_or((text.as_str(), String::new()), |(integer, fraction)| (integer, format!(".{fraction}")));
    let mut grouped = String::new();
    for (index, digit) in integer.chars().enumerate() {
        if index > 0 && (integer.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &fraction
}

/// Returns the table of servers, with one row for each measured version, and their configuration files.
fn configurations(sections: &[Section]) -> String {
    let mut text =
        String::from("\n## Versions and configurations\n\n| server | version | command |\n| --- | --- | --- |\n");
    let servers = || sections.iter().flat_map(|section| &section.servers);
    let mut known = BTreeSet::new();
    for server in servers().filter(|server| known.insert((&server.name, &server.version, &server.command))) {
        writeln!(text, "| {} | {} | `{}` |", server.name, server.version, server.command).expect(IN_MEMORY);
    }
    let mut known = BTreeSet::new();
    for config in servers().filter_map(|server| server.config.as_ref()).filter(|config| known.insert(*config)) {
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
