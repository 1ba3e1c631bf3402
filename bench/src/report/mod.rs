//! What is left when the servers are gone: Markdown to read, JSON to compute with, SVG to look at.
//! Never measures.
//!
//! A folder has one file of figures for each workload, and one text made of all that are there. So
//! a run that is cut off leaves what it had, and a workload that is measured again takes the place
//! of its own figures only.

mod chart;
pub(crate) mod markdown;
mod plots;

use crate::figures::Case;
use crate::machine;
use crate::servers::{Facts, Missing};
use crate::workloads::WORKLOADS;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The figures of one workload, and what they depend on.
#[derive(Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) workload: String,
    pub(crate) machine: machine::Facts,
    pub(crate) command: String,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) servers: Vec<Facts>,
    pub(crate) missing: Vec<Missing>,
    pub(crate) cases: Vec<Case>,
}

/// Tables with one name become one table.
pub(crate) fn merge(cases: Vec<Case>) -> Vec<Case> {
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

/// Writes a section into a folder, in place of what was found about the workload before.
pub(crate) fn write(section: &Section, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    for plot in plots::draw(section) {
        fs::write(folder.join(&plot.file), &plot.svg)?;
    }
    fs::write(folder.join(file_of(&section.workload)), serde_json::to_string_pretty(section)? + "\n")?;
    fs::write(folder.join("README.md"), markdown::whole(&read(folder)?))?;
    Ok(())
}

/// All sections of a folder, in the order of the workloads.
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
        let row = Row { server: "floor".to_owned(), at: String::new(), figures };
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
    fn a_workload_replaces_its_own_figures_and_no_others() {
        let folder = std::env::temp_dir().join(format!("selvedge-bench-report-{}", std::process::id()));
        for section in [section("slow", 71.25), section("hello", 11.25), section("slow", 72.25)] {
            write(&section, &folder).unwrap();
        }
        let text = fs::read_to_string(folder.join("README.md")).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert!(!text.contains("71.25"));
        let place = |wanted| text.find(wanted).expect(wanted);
        assert!(place("11.25") < place("72.25"), "in the order of the workloads");
    }
}
