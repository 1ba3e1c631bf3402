//! The measured figures: one enum, from which the columns of every report are derived.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A measured figure. The variants are in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    OfferedPerSecond,
    RequestsPerSecond,
    HandshakesPerCpuSecond,
    CpuUs,
    UserUs,
    SystemUs,
    CpuToBaseline,
    CpuToSelvedge,
    CpuToAxum,
    BytesPerConnection,
    BytesToAxum,
    P50Us,
    P99Us,
    P999Us,
    P99CompletedUs,
    P99ToAlone,
    Instructions,
    SystemCalls,
    Errors,
    Timeouts,
    ServerBusy,
    GeneratorBusy,
    UpstreamBusy,
    UpstreamConnections,
    OtherProcessesBusy,
    GeneratorStalled,
    GeneratorLimited,
    BackgroundFilesPerSecond,
    SlowClientsClosed,
    PrivateMib,
    ResidentMib,
}

impl Figure {
    /// Returns the heading of its column and the number of decimals of its values.
    pub(crate) fn column(self) -> (&'static str, usize) {
        match self {
            Self::OfferedPerSecond => ("offered/s", 0),
            Self::RequestsPerSecond => ("requests/s", 0),
            Self::HandshakesPerCpuSecond => ("handshakes/CPU second", 0),
            Self::CpuUs => ("CPU µs/request", 2),
            Self::UserUs => ("user", 2),
            Self::SystemUs => ("system", 2),
            Self::CpuToBaseline => ("÷ baseline", 2),
            Self::CpuToSelvedge => ("÷ Selvedge", 2),
            Self::CpuToAxum => ("÷ axum", 2),
            Self::BytesPerConnection => ("private bytes/connection", 0),
            Self::BytesToAxum => ("bytes ÷ axum", 2),
            Self::P50Us => ("p50 µs", 0),
            Self::P99Us => ("p99 µs", 0),
            Self::P999Us => ("p99.9 µs", 0),
            Self::P99CompletedUs => ("p99 of completed requests, µs", 0),
            Self::P99ToAlone => ("p99 ÷ alone", 2),
            Self::Instructions => ("user instructions/request", 0),
            Self::SystemCalls => ("system calls/request", 2),
            Self::Errors => ("errors", 0),
            Self::Timeouts => ("timeouts", 0),
            Self::ServerBusy => ("server busy", 2),
            Self::GeneratorBusy => ("load busy", 2),
            Self::UpstreamBusy => ("upstream busy", 2),
            Self::UpstreamConnections => ("upstream connections", 0),
            Self::OtherProcessesBusy => ("other processes busy", 2),
            Self::GeneratorStalled => ("load stalled, ms/s", 1),
            Self::GeneratorLimited => ("load was the limit", 0),
            Self::BackgroundFilesPerSecond => ("files/s", 0),
            Self::SlowClientsClosed => ("slow clients closed", 0),
            Self::PrivateMib => ("private MiB", 1),
            Self::ResidentMib => ("resident MiB", 1),
        }
    }
}

/// The figures of one measurement, or their medians.
pub(crate) type Figures = BTreeMap<Figure, f64>;

/// The result of one round for one server.
pub(crate) struct Sample {
    /// The condition, if a case has several.
    pub(crate) condition: String,
    pub(crate) figures: Figures,
}

/// A row of a table: the medians of the rounds.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) server: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) condition: String,
    pub(crate) figures: Figures,
}

/// A table.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) workload: String,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
    /// Failures, and remarks for the reader.
    pub(crate) notes: Vec<String>,
}

/// All samples of a case, before the medians are computed.
#[derive(Default)]
pub(crate) struct Samples {
    /// Server, condition and figures, in the order of their first sample.
    groups: Vec<(String, String, Vec<Figures>)>,
}

impl Samples {
    pub(crate) fn add(&mut self, server: &str, sample: Sample) {
        let index =
            self.groups.iter().position(|(name, condition, _)| name == server && *condition == sample.condition);
        let index = index.unwrap_or_else(|| {
            self.groups.push((server.to_owned(), sample.condition, Vec::new()));
            self.groups.len() - 1
        });
        self.groups[index].2.push(sample.figures);
    }

    /// Returns the medians. All rows of a server are adjacent, in the order of `servers`.
    pub(crate) fn rows(self, servers: &[String]) -> Vec<Row> {
        let mut rows: Vec<Row> = self
            .groups
            .into_iter()
            .map(|(server, condition, rounds)| Row { server, condition, figures: medians(&rounds) })
            .collect();
        rows.sort_by_key(|row| servers.iter().position(|server| *server == row.server));
        rows
    }
}

fn medians(rounds: &[Figures]) -> Figures {
    let mut values: BTreeMap<Figure, Vec<f64>> = BTreeMap::new();
    for (figure, value) in rounds.iter().flatten() {
        values.entry(*figure).or_default().push(*value);
    }
    values.into_iter().map(|(figure, values)| (figure, median(values))).collect()
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// A figure that is derived from another one by division by the value of one server.
pub(crate) struct Ratio {
    pub(crate) figure: Figure,
    pub(crate) relative_to: &'static str,
    pub(crate) result: Figure,
}

/// Adds the ratios of a finished round. They are computed within a round because a disturbance of the machine
/// usually slows all servers of that round.
pub(crate) fn add_ratios(round: &mut [(&str, Sample)], ratios: &[Ratio]) {
    for ratio in ratios {
        let known: Vec<(String, f64)> = round
            .iter()
            .filter(|(server, _)| *server == ratio.relative_to)
            .filter_map(|(_, sample)| sample.figures.get(&ratio.figure).map(|value| (sample.condition.clone(), *value)))
            .collect();
        for (_, sample) in &mut *round {
            let base = known.iter().find(|(condition, _)| *condition == sample.condition);
            if let (Some((_, base)), Some(value)) = (base, sample.figures.get(&ratio.figure).copied()) {
                sample.figures.insert(ratio.result, value / base);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_medians_and_ratios_are_computed_within_each_round() {
        let mut samples = Samples::default();
        let ratio = |relative_to, result| Ratio { figure: Figure::CpuUs, relative_to, result };
        for (baseline, nginx) in [(1.0, 4.0), (9.0, 18.0), (2.0, 6.0)] {
            let sample = |value| Sample { condition: String::new(), figures: Figures::from([(Figure::CpuUs, value)]) };
            let mut round = [("baseline-epoll", sample(baseline)), ("nginx", sample(nginx))];
            add_ratios(
                &mut round,
                &[ratio("baseline-epoll", Figure::CpuToBaseline), ratio("selvedge", Figure::CpuToSelvedge)],
            );
            round.into_iter().for_each(|(server, sample)| samples.add(server, sample));
        }
        let rows = samples.rows(&["nginx".to_owned(), "baseline-epoll".to_owned()]);
        assert_eq!((rows[0].server.as_str(), rows[0].figures[&Figure::CpuUs]), ("nginx", 6.0));
        assert_eq!(rows[0].figures[&Figure::CpuToBaseline], 3.0);
        assert!(!rows[0].figures.contains_key(&Figure::CpuToSelvedge));
    }
}
