//! Alerts that fire for VMs, on their way from the HTTP server to the thread that keeps
//! incidents.

use std::sync::{Arc, Mutex, PoisonError};

/// Most alerts that wait for the next reading. One that fires for all VMs of a node makes few
/// incidents.
const MAX_WAITING: usize = 64;

/// An alert that fires for a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerted {
    /// Process id of the VMM.
    pub pid: u32,
    /// Name of the VM.
    pub vm: Arc<str>,
    /// Name of the alert.
    pub alert: String,
}

/// Alerts that wait. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Alerts(Arc<Mutex<Waiting>>);

/// The alerts that wait, and the number of those that were lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) alerts: Vec<Alerted>,
    pub(super) lost: u64,
}

impl Alerts {
    /// Adds an alert; false if it waits already. If too many wait, it is lost, and counted.
    pub fn add(&self, alerted: Alerted) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.alerts.contains(&alerted) {
            return false;
        }
        if waiting.alerts.len() < MAX_WAITING {
            waiting.alerts.push(alerted);
        } else {
            waiting.lost += 1;
        }
        true
    }

    /// Takes all that waits.
    pub(super) fn take(&self) -> Waiting {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::{Alerted, Alerts, MAX_WAITING, Waiting};

    fn alerted(pid: usize) -> Alerted {
        Alerted {
            pid: u32::try_from(pid).expect("small"),
            vm: "db-01".into(),
            alert: "SlowDatabase".to_owned(),
        }
    }

    #[test]
    fn alert_waits_once_and_too_many_are_counted() {
        let alerts = Alerts::default();
        for pid in 0..MAX_WAITING {
            assert!(alerts.add(alerted(pid)), "{pid}");
            assert!(!alerts.add(alerted(pid)), "{pid}");
        }
        assert!(alerts.add(alerted(MAX_WAITING)));
        let taken = alerts.clone().take();
        assert_eq!((taken.alerts.len(), taken.lost), (MAX_WAITING, 1));
        assert_eq!(alerts.take(), Waiting::default());
    }
}
