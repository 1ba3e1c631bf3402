//! Writes the results: Markdown, JSON, and SVG plots. Never measures.
//!
//! A folder has one JSON file for each workload, and one README of all files. So an interrupted run keeps its
//! finished workloads, and a repeated workload replaces its own figures only.

mod chart;
pub(crate) mod markdown;
mod plots;

use crate::figures::Case;
use crate::machine;
use crate::servers::{Missing, ServerFacts};
use crate::workloads::WORKLOADS;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The figures of one workload, and the conditions of their measurement.
#[derive(Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) workload: String,
    pub(crate) machine: machine::Facts,
    pub(crate) command: String,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) servers: Vec<ServerFacts>,
    pub(crate) missing: Vec<Missing>,
    pub(crate) cases: Vec<Case>,
}

/// Merges tables of equal name.
pub(crate) fn merge_cases(cases: Vec<Case>) -> Vec<Case> {
    let mut merged: Vec<Case> = Vec::new();
    for case in cases {
        match merged.iter_mut().find(|known| known.name == case.name) {
            Some(known) => {
                known.rows.extend(case.rows);
                known
                    .notes
                    .extend(case.notes.into_iter().filter(|note| !known.notes.contains(note)).collect::<Vec<_>>());
                let order: Vec<String> = known.rows.iter().map(|row| row.server.clone()).collect();
                known.rows.sort_by_key(|row| order.iter().position(|server| *server == row.server));
            }
            None => merged.push(case),
        }
    }
    merged
}

/// Writes a section into a folder, and replaces earlier results of the workload.
pub(crate) fn write(section: &Section, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    for plot in plots::draw(section) {
        fs::write(folder.join(&plot.file), &plot.svg)?;
    }
    fs::write(folder.join(file_of(&section.workload)), serde_json::to_string_pretty(section)? + "\n")?;
    fs::write(folder.join("README.md"), markdown::report(&read(folder)?))?;
    Ok(())
}

/// Reads all sections of a folder, in the order of the workloads.
fn read(folder: &Path) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    for workload in &WORKLOADS {
        let path = folder.join(file_of(workload.name));
        match fs::read_to_string(&path) {
            Ok(text) => sections.push(serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        }
    }
    Ok(sections)
}

fn file_of(workload: &str) -> String {
    format!("{workload}.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Figure, Figures, Row};

    fn section(workload: &str, cpu_us: f64) -> Section {
        let figures = Figures::from([(Figure::CpuUs, cpu_us)]);
        let row = Row { server: "baseline-epoll".to_owned(), condition: String::new(), figures };
        Section {
            workload: workload.to_owned(),
            machine: machine::facts(&[0]),
            command: format!("-- {workload}"),
            seconds: 1.0,
            rounds: 1,
            servers: Vec::new(),
            missing: Vec::new(),
            cases: vec![Case {
                workload: workload.to_owned(),
                name: workload.to_owned(),
                title: "A title".to_owned(),
                rows: vec![row],
                notes: Vec::new(),
            }],
        }
    }

    #[test]
    fn a_workload_replaces_only_its_own_figures() {
        let folder = std::env::temp_dir().join(format!("selvedge-bench-report-{}", std::process::id()));
        for section in [section("slow", 71.25), section("hello", 11.25), section("slow", 72.25)] {
            write(&section, &folder).unwrap();
        }
        let text = fs::read_to_string(folder.join("README.md")).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert!(!text.contains("71.25"));
        let position = |wanted| text.find(wanted).expect(wanted);
        assert!(position("11.25") < position("72.25"), "the sections are not in the order of the workloads");
    }
}
