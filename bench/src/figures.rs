//! What is measured: one table of figures, from which the columns of every report are made.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A figure. They stand in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    OfferedPerSecond,
    RequestsPerSecond,
    CpuUs,
    UserUs,
    SystemUs,
    CpuToFloor,
    CpuToSelvedge,
    CpuToAxum,
    BytesPerConnection,
    BytesToAxum,
    P50Us,
    P99Us,
    P999Us,
    P99AnsweredUs,
    P99ToAlone,
    Instructions,
    SystemCalls,
    Errors,
    Timeouts,
    ServerBusy,
    GeneratorBusy,
    OthersBusy,
    GeneratorHeldUp,
    GeneratorLimited,
    BesidePerSecond,
    SlowEnded,
    PrivateMib,
    ResidentMib,
}

impl Figure {
    /// The heading of its column, and how many decimals its values have.
    pub(crate) fn column(self) -> (&'static str, usize) {
        match self {
            Self::OfferedPerSecond => ("offered/s", 0),
            Self::RequestsPerSecond => ("requests/s", 0),
            Self::CpuUs => ("CPU µs/request", 2),
            Self::UserUs => ("user", 2),
            Self::SystemUs => ("system", 2),
            Self::CpuToFloor => ("÷ floor", 2),
            Self::CpuToSelvedge => ("÷ Selvedge", 2),
            Self::CpuToAxum => ("÷ axum", 2),
            Self::BytesPerConnection => ("private bytes/connection", 0),
            Self::BytesToAxum => ("bytes ÷ axum", 2),
            Self::P50Us => ("p50 µs", 0),
            Self::P99Us => ("p99 µs", 0),
            Self::P999Us => ("p99.9 µs", 0),
            Self::P99AnsweredUs => ("p99 of what was answered, µs", 0),
            Self::P99ToAlone => ("p99 ÷ alone", 2),
            Self::Instructions => ("user instructions/request", 0),
            Self::SystemCalls => ("system calls/request", 2),
            Self::Errors => ("errors", 0),
            Self::Timeouts => ("timeouts", 0),
            Self::ServerBusy => ("server busy", 2),
            Self::GeneratorBusy => ("load busy", 2),
            Self::OthersBusy => ("others busy", 2),
            Self::GeneratorHeldUp => ("load held up, ms/s", 1),
            Self::GeneratorLimited => ("load was the limit", 0),
            Self::BesidePerSecond => ("files/s", 0),
            Self::SlowEnded => ("slow clients ended", 0),
            Self::PrivateMib => ("private MiB", 1),
            Self::ResidentMib => ("resident MiB", 1),
        }
    }
}

/// The figures of one measurement, or their medians.
pub(crate) type Figures = BTreeMap<Figure, f64>;

/// What one round found about one server.
pub(crate) struct Sample {
    /// Under which condition, where a case has several.
    pub(crate) at: String,
    pub(crate) figures: Figures,
}

/// A line of a table: the medians of the rounds.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) server: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) at: String,
    pub(crate) figures: Figures,
}

/// A table.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) workload: String,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
    /// What did not work, and what a reader has to know.
    pub(crate) notes: Vec<String>,
}

/// All samples of a case, until the medians are taken.
#[derive(Default)]
pub(crate) struct Samples {
    /// In the order in which server and condition first appeared.
    groups: Vec<(String, String, Vec<Figures>)>,
}

impl Samples {
    pub(crate) fn add(&mut self, server: &str, sample: Sample) {
        let place = self.groups.iter().position(|(name, at, _)| name == server && *at == sample.at);
        let place = place.unwrap_or_else(|| {
            self.groups.push((server.to_owned(), sample.at, Vec::new()));
            self.groups.len() - 1
        });
        self.groups[place].2.push(sample.figures);
    }

    /// The medians, servers together, in the order of `servers`.
    pub(crate) fn rows(self, servers: &[String]) -> Vec<Row> {
        let mut rows: Vec<Row> =
            self.groups.into_iter().map(|(server, at, rounds)| Row { server, at, figures: medians(&rounds) }).collect();
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

/// A figure that is another one, divided by that of one server.
pub(crate) struct Ratio {
    pub(crate) of: Figure,
    pub(crate) to: &'static str,
    pub(crate) is: Figure,
}

/// Adds what is only known when a round is over: the ratios. Of one round, since what makes the machine
/// slower for a while mostly makes all of its servers slower.
pub(crate) fn add_ratios(round: &mut [(&str, Sample)], ratios: &[Ratio]) {
    for ratio in ratios {
        let known: Vec<(String, f64)> = round
            .iter()
            .filter(|(server, _)| *server == ratio.to)
            .filter_map(|(_, sample)| sample.figures.get(&ratio.of).map(|value| (sample.at.clone(), *value)))
            .collect();
        for (_, sample) in &mut *round {
            let base = known.iter().find(|(at, _)| *at == sample.at);
            if let (Some((_, base)), Some(value)) = (base, sample.figures.get(&ratio.of).copied()) {
                sample.figures.insert(ratio.is, value / base);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_medians_and_their_ratios_those_of_the_rounds() {
        let mut samples = Samples::default();
        let to = |to, is| Ratio { of: Figure::CpuUs, to, is };
        for (floor, nginx) in [(1.0, 4.0), (9.0, 18.0), (2.0, 6.0)] {
            let sample = |value| Sample { at: String::new(), figures: Figures::from([(Figure::CpuUs, value)]) };
            let mut round = [("floor", sample(floor)), ("nginx", sample(nginx))];
            add_ratios(&mut round, &[to("floor", Figure::CpuToFloor), to("selvedge", Figure::CpuToSelvedge)]);
            round.into_iter().for_each(|(server, sample)| samples.add(server, sample));
        }
        let rows = samples.rows(&["nginx".to_owned(), "floor".to_owned()]);
        assert_eq!((rows[0].server.as_str(), rows[0].figures[&Figure::CpuUs]), ("nginx", 6.0));
        assert_eq!(rows[0].figures[&Figure::CpuToFloor], 3.0);
        assert!(!rows[0].figures.contains_key(&Figure::CpuToSelvedge));
    }
}
