//! Meters of cgroups by path.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::account::quota::QuotaMeter;

/// A VM has few levels. A path is usually the same allocation as at the previous reading,
/// so that its text need not be compared.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(
    into = "BTreeMap<Arc<str>, QuotaMeter>",
    from = "BTreeMap<Arc<str>, QuotaMeter>"
)]
pub struct ByPath(Vec<(Arc<str>, QuotaMeter)>);

impl ByPath {
    /// The meter of the cgroup at `path`, created if missing.
    pub fn of(&mut self, path: &Arc<str>) -> &mut QuotaMeter {
        let at = self.at(path).unwrap_or_else(|| {
            self.0.push((Arc::clone(path), QuotaMeter::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// The meter of the cgroup at `path`.
    pub fn get(&self, path: &Arc<str>) -> Option<&QuotaMeter> {
        Some(&self.0[self.at(path)?].1)
    }

    /// All meters.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut QuotaMeter> {
        self.0.iter_mut().map(|(_, meter)| meter)
    }

    /// All meters.
    pub fn values(&self) -> impl Iterator<Item = &QuotaMeter> {
        self.0.iter().map(|(_, meter)| meter)
    }

    /// All meters, with their paths.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut QuotaMeter)> {
        self.0.iter_mut().map(|(path, meter)| (&**path, meter))
    }

    /// Removes and returns the meters whose path matches.
    pub fn take_if(&mut self, is_one: impl Fn(&str) -> bool) -> Vec<QuotaMeter> {
        let taken = self.0.extract_if(.., |(path, _)| is_one(path));
        taken.map(|(_, meter)| meter).collect()
    }

    /// Keeps only the meters for which `is_kept` holds.
    pub fn retain(&mut self, is_kept: impl Fn(&QuotaMeter) -> bool) {
        self.0.retain(|(_, meter)| is_kept(meter));
    }

    fn at(&self, path: &Arc<str>) -> Option<usize> {
        let mut known = self.0.iter().map(|(path, _)| path);
        let same = known.clone().position(|one| Arc::ptr_eq(one, path));
        same.or_else(|| known.position(|one| one == path))
    }
}

impl From<ByPath> for BTreeMap<Arc<str>, QuotaMeter> {
    fn from(meters: ByPath) -> Self {
        meters.0.into_iter().collect()
    }
}

impl From<BTreeMap<Arc<str>, QuotaMeter>> for ByPath {
    fn from(meters: BTreeMap<Arc<str>, QuotaMeter>) -> Self {
        Self(meters.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::ByPath;
    use crate::vocab::CgroupId;

    #[test]
    fn path_requested_again_has_the_same_meter() {
        let mut meters = ByPath::default();
        for path in ["/a", "/a/b"].map(Arc::from) {
            meters.of(&path);
        }
        assert!(meters.get(&"/a/b".into()).is_some());
        assert!(meters.get(&"/b".into()).is_none());
        meters.of(&"/a".into());
        assert_eq!(meters.values_mut().count(), 2);
        meters.retain(|meter| meter.cgroup() == Some(CgroupId(1)));
        assert_eq!(meters.values_mut().count(), 0);
    }
}
