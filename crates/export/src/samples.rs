//! Passes the series of one family to the encoder.

use std::fmt::{self, Write as _};

use prometheus_client::encoding::{
    EncodeCounterValue, EncodeGaugeValue, EncodeLabel, EncodeLabelSet, EncodeLabelValue,
    LabelSetEncoder, LabelValueEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::exemplar::Exemplar;
use virtlens_model::snapshot::Vm;

use crate::kind::Kind;
use crate::prepared::Prepared;
use crate::seconds::seconds;
use crate::vcpu_sums::VcpuSums;

/// The value of a label.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Label<'a> {
    Text(&'a str),
    Number(u32),
}

impl EncodeLabelValue for Label<'_> {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> fmt::Result {
        match *self {
            Self::Text(text) => EncodeLabelValue::encode(&text, encoder),
            Self::Number(number) => EncodeLabelValue::encode(&number, encoder),
        }
    }
}

impl<'a> From<&'a str> for Label<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: AsRef<str>> From<&'a Option<T>> for Label<'a> {
    /// An unknown value becomes the empty label, which Prometheus treats as absent.
    fn from(text: &'a Option<T>) -> Self {
        Self::Text(text.as_ref().map_or("", AsRef::as_ref))
    }
}

impl From<u32> for Label<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

/// Collects the series of one family; for a per-VM family, of one VM.
pub(crate) struct Samples<'m, 'v> {
    /// The name of the family.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The names of the family's own labels.
    pub(crate) own_labels: &'static [&'static str],
    pub(crate) metric: MetricEncoder<'m>,
    /// The name of the node.
    pub(crate) node: &'v str,
    /// The VM whose labels come first in the series.
    pub(crate) vm: Option<(&'v Vm, &'v Prepared)>,
}

impl<'v> Samples<'_, 'v> {
    /// The sums over the vCPUs of the VM.
    pub(crate) fn vcpus(&self) -> VcpuSums {
        self.vm
            .map(|(_, prepared)| prepared.vcpus)
            .unwrap_or_default()
    }

    /// Encodes a series whose value is a count.
    pub(crate) fn count(&mut self, labels: &[Label], count: u64) -> fmt::Result {
        self.series(labels, &count)
    }

    /// Encodes a series whose value is a time, in seconds.
    pub(crate) fn seconds(&mut self, labels: &[Label], ns: u64) -> fmt::Result {
        self.series(labels, &seconds(ns))
    }

    /// Encodes a series whose value is a float.
    pub(crate) fn real(&mut self, labels: &[Label], value: f64) -> fmt::Result {
        self.series(labels, &value)
    }

    /// Encodes the series of an info.
    pub(crate) fn info(&mut self, labels: &[Label]) -> fmt::Result {
        let set = self.labels(labels);
        self.metric.encode_info(&set)
    }

    /// Encodes a histogram of times: `counts` has one entry for each upper bound and one
    /// for `+Inf`.
    pub(crate) fn histogram(
        &mut self,
        labels: &[Label],
        sum_ns: u64,
        bounds_ns: &[u64],
        counts: &[u64],
    ) -> fmt::Result {
        let bounds = bounds_ns.iter().map(|ns| seconds(*ns));
        let bounds = bounds.chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
        let set = self.labels(labels);
        let count = counts
            .iter()
            .fold(0u64, |sum, one| sum.saturating_add(*one));
        self.metric
            .encode_family(&set)?
            .encode_histogram::<NoLabelSet>(seconds(sum_ns), count, &buckets, None)
    }

    fn labels<'a>(&self, values: &'a [Label<'a>]) -> Labels<'a>
    where
        'v: 'a,
    {
        let names = self.own_labels;
        debug_assert_eq!(values.len(), names.len(), "{}", self.name);
        Labels {
            vm: self.vm,
            names,
            values,
        }
    }

    fn series<V>(&mut self, labels: &[Label], value: &V) -> fmt::Result
    where
        V: EncodeCounterValue + EncodeGaugeValue,
    {
        let set = self.labels(labels);
        if set.is_empty() {
            return encode_value(self.kind, &mut self.metric, value);
        }
        encode_value(self.kind, &mut self.metric.encode_family(&set)?, value)
    }
}

fn encode_value<V>(kind: Kind, series: &mut MetricEncoder, value: &V) -> fmt::Result
where
    V: EncodeCounterValue + EncodeGaugeValue,
{
    match kind {
        Kind::Counter => series.encode_counter(value, NO_EXEMPLAR),
        Kind::Gauge | Kind::Info | Kind::Histogram => series.encode_gauge(value),
    }
}

/// Encodes a known value; an unknown value has no series.
pub(crate) fn known<T>(value: Option<T>, encode: impl FnOnce(T) -> fmt::Result) -> fmt::Result {
    value.map_or(Ok(()), encode)
}

const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;

/// The labels of one series: the VM's labels, then the family's own.
struct Labels<'a> {
    vm: Option<(&'a Vm, &'a Prepared)>,
    names: &'static [&'static str],
    values: &'a [Label<'a>],
}

impl Labels<'_> {
    fn is_empty(&self) -> bool {
        self.vm.is_none() && self.names.is_empty()
    }
}

impl EncodeLabelSet for Labels<'_> {
    /// A name is written as it is, so the identity labels are written as a part of the name of
    /// the label after them, or of the last of them.
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        let mut own = self.names.iter().zip(self.values);
        if let Some((vm, Prepared { identity, .. })) = self.vm {
            let mut label = encoder.encode_label();
            let mut name = label.encode_label_key()?;
            let mut value;
            if let Some((first_name, first)) = own.next() {
                name.write_str(identity.before_own())?;
                name.write_str(first_name)?;
                value = name.encode_label_value()?;
                first.encode(&mut value)?;
            } else {
                name.write_str(identity.up_to_last_name())?;
                value = name.encode_label_value()?;
                value.write_str(&vm.vm)?;
            }
            value.finish()?;
        }
        own.try_for_each(|(name, value)| (*name, *value).encode(encoder.encode_label()))
    }
}
