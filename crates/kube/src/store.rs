//! The known pods and their age.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use virtlens_model::vocab::{Pod, Pods};

/// Limit on the stored pods. Kubelet accepts 110 by default and 500 on the largest known
/// nodes.
pub(crate) const MAX_PODS: usize = 4096;

/// A copy of the state.
#[derive(Debug, Clone)]
pub struct PodsState {
    /// The pods by uid.
    pub pods: Arc<Pods>,
    /// Time since the source last confirmed the state; `None` if it never did.
    pub age: Option<Duration>,
    /// Reason of the present failure; empty if there is none.
    pub failure: String,
    /// Number of failures, plus the number of pods dropped by the limit.
    pub failures: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pods: Arc<Pods>,
    confirmed: Option<Instant>,
    failure: String,
    failures: u64,
}

impl Store {
    pub(crate) fn read(&self) -> PodsState {
        let state = self.lock();
        PodsState {
            pods: Arc::clone(&state.pods),
            age: state.confirmed.map(|confirmed| confirmed.elapsed()),
            failure: state.failure.clone(),
            failures: state.failures,
        }
    }

    pub(crate) fn wait(&self, timeout: Duration) {
        let waits = |state: &mut State| state.confirmed.is_none() && state.failures == 0;
        let state = self.lock();
        drop(self.answered.wait_timeout_while(state, timeout, waits));
    }

    /// Replaces all pods.
    pub(crate) fn replace(&self, pods: impl IntoIterator<Item = (Arc<str>, Pod)>) {
        let mut pods = pods.into_iter();
        let kept = pods.by_ref().take(MAX_PODS).collect();
        let excess = pods.count() as u64;
        self.update(|state| {
            state.pods = Arc::new(kept);
            state.failures += excess;
        });
    }

    /// Adds or updates a pod.
    pub(crate) fn put(&self, uid: Arc<str>, pod: Pod) {
        self.update(|state| {
            if state.pods.contains_key(&uid) || state.pods.len() < MAX_PODS {
                Arc::make_mut(&mut state.pods).insert(uid, pod);
            } else {
                state.failures += 1;
            }
        });
    }

    /// Removes a pod.
    pub(crate) fn remove(&self, uid: &str) {
        self.update(|state| {
            Arc::make_mut(&mut state.pods).remove(uid);
        });
    }

    /// Records that the source answered and nothing has changed.
    pub(crate) fn confirm(&self) {
        self.update(|_| ());
    }

    /// Records that the source failed; the known pods stay.
    pub(crate) fn fail(&self, why: String) {
        let mut state = self.lock();
        if state.failure != why {
            tracing::warn!(
                error = why,
                "cannot update pod names; the last known names stay in use"
            );
        }
        state.failure = why;
        state.failures += 1;
        drop(state);
        self.answered.notify_all();
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        state.confirmed = Some(Instant::now());
        if !state.failure.is_empty() {
            state.failure.clear();
            tracing::info!(pods = state.pods.len(), "pod names are available again");
        }
        drop(state);
        self.answered.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Duration, Pod, Store};

    fn pod(name: &str) -> Pod {
        Pod {
            namespace: "shop".into(),
            name: name.into(),
            spec: Arc::default(),
        }
    }

    #[test]
    fn failed_source_keeps_last_pods() {
        let store = Store::default();
        store.replace([("1".into(), pod("web"))]);
        store.fail("gone".to_owned());
        let state = store.read();
        assert_eq!(&*state.pods["1"].name, "web");
        assert_eq!((state.failure.as_str(), state.failures), ("gone", 1));
        assert!(state.age.is_some());
        store.confirm();
        assert_eq!(store.read().failure, "");
        assert_eq!(store.read().failures, 1, "a loss is not forgotten");
    }

    #[test]
    fn pods_without_answer_have_no_age() {
        let store = Store::default();
        store.fail("never there".to_owned());
        assert_eq!(store.read().age, None);
    }

    #[test]
    fn read_state_does_not_change_later() {
        let store = Store::default();
        store.put("1".into(), pod("web"));
        let state = store.read();
        store.remove("1");
        store.put("2".into(), pod("web"));
        assert!(state.pods.contains_key("1"));
        let now = store.read().pods;
        assert!(now.contains_key("2") && now.len() == 1);
    }

    #[test]
    fn wait_ends_at_first_failure_or_timeout() {
        let store = Store::default();
        store.wait(Duration::from_millis(1));
        store.fail("no".to_owned());
        store.wait(Duration::from_hours(1));
    }

    #[test]
    fn stored_pods_are_bounded_and_excess_is_counted() {
        let store = Store::default();
        for index in 0..super::MAX_PODS + 10 {
            store.put(index.to_string().into(), pod("web"));
        }
        assert_eq!(store.read().pods.len(), super::MAX_PODS);
        assert_eq!(store.read().failures, 10, "what found no room is counted");
        store.put("1".into(), pod("renamed"));
        assert_eq!(&*store.read().pods["1"].name, "renamed");
    }
}
