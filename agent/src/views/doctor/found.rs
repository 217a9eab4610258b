//! A finding with its VM, and when it held.

use std::time::Duration;

use serde::Serialize;
use virtlens_model::judge::past::Held;
use virtlens_model::snapshot::{Finding, Vm};

use crate::term::shown;

/// A finding and its VM.
#[derive(Debug, Serialize)]
pub(super) struct Found<'s> {
    pub(super) namespace: Option<&'s str>,
    pub(super) pod: Option<&'s str>,
    pub(super) uid: Option<&'s str>,
    pub(super) vm: &'s str,
    pub(super) pid: u32,
    #[serde(flatten)]
    pub(super) finding: &'s Finding,
    pub(super) rule: String,
    pub(super) impact: &'static str,
    pub(super) next: String,
    /// When it held in a past time.
    #[serde(flatten)]
    pub(super) held: Option<HeldTime>,
    #[serde(skip)]
    pub(super) of: &'s Vm,
}

/// When a finding held in a past time.
#[derive(Debug, Serialize)]
pub(in crate::views) struct HeldTime {
    /// Time of the first reading that had it, RFC 3339, UTC.
    since: String,
    /// Time of the last reading that had it, RFC 3339, UTC.
    until: String,
    /// Whether the readings between them had it too.
    continuous: bool,
    #[serde(skip)]
    seconds: f64,
}

impl From<Held> for HeldTime {
    fn from(held: Held) -> Self {
        let time = Duration::from_nanos(held.until_ns.saturating_sub(held.since_ns));
        Self {
            since: shown(held.since_ns),
            until: shown(held.until_ns),
            continuous: held.is_continuous,
            seconds: time.as_secs_f64(),
        }
    }
}

impl HeldTime {
    pub(in crate::views) fn line(&self) -> String {
        let Self { since, until, .. } = self;
        if since == until {
            return format!("held: in the reading of {since}");
        }
        let gaps = if self.continuous { "" } else { ", with gaps" };
        format!("held: {since} to {until} ({:.0} s{gaps})", self.seconds)
    }
}
