//! Families of metrics, by the crate `prometheus-client`.

use crate::durations::Durations;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;

/// Writes one family after the other. A family without rows is left out.
pub(super) struct Families<'e>(pub(super) DescriptorEncoder<'e>);

impl Families<'_> {
    /// Writes counters. Their names get the end `_total`.
    pub(super) fn counters<L: EncodeLabelSet>(
        &mut self,
        (name, help): (&str, &str),
        rows: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        rows.try_for_each(|(labels, count)| {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&count, None)
        })
    }

    /// Writes a counter without labels.
    pub(super) fn counter(&mut self, about: (&str, &str), count: u64) -> fmt::Result {
        self.counters(about, [(NO_LABELS, count)])
    }

    /// Writes counters of seconds. Their names get the end `_total`.
    pub(super) fn seconds<L: EncodeLabelSet>(
        &mut self,
        (name, help): (&str, &str),
        rows: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        rows.try_for_each(|(labels, seconds)| {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&seconds, None)
        })
    }

    /// Writes gauges.
    pub(super) fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        (name, help): (&str, &str),
        rows: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        rows.try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
    }

    /// Writes a gauge without labels.
    pub(super) fn gauge(&mut self, about: (&str, &str), value: impl EncodeGaugeValue) -> fmt::Result {
        self.gauges(about, [(NO_LABELS, value)])
    }

    /// Writes histograms of seconds.
    pub(super) fn histograms<'d, L: EncodeLabelSet>(
        &mut self,
        (name, help): (&str, &str),
        rows: impl IntoIterator<Item = (L, &'d Durations)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().filter(|(_, durations)| durations.count() > 0).peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        rows.try_for_each(|(labels, durations)| {
            let (sum, count, buckets) = (durations.sum_seconds(), durations.count(), durations.buckets());
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        })
    }

    /// Writes facts as labels of a value of 1. The name gets the end `_info`.
    pub(super) fn info(&mut self, (name, help): (&str, &str), facts: &impl EncodeLabelSet) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(facts)
    }
}

const NO_LABELS: [(&str, &str); 0] = [];
