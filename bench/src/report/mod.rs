//! What is left when the servers are gone: Markdown to read, JSON to compute with, SVG to look at.
//! Never measures.

mod chart;
pub(crate) mod markdown;
mod plots;

use crate::figures::Case;
use crate::machine;
use crate::servers::{Facts, Missing};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// A whole run.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) machine: machine::Facts,
    pub(crate) command: String,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) servers: Vec<Facts>,
    pub(crate) missing: Vec<Missing>,
    pub(crate) notes: Vec<String>,
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

/// Writes the report into a folder.
pub(crate) fn write(report: &Report, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    let plots = plots::draw(report);
    for plot in &plots {
        fs::write(folder.join(&plot.file), &plot.svg)?;
    }
    fs::write(folder.join("README.md"), markdown::whole(report, &plots))?;
    fs::write(folder.join("report.json"), serde_json::to_string_pretty(report)? + "\n")?;
    Ok(())
}
