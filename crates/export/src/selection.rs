//! Selection of the families that are exported.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::families::families;
use crate::family::Rows;
use crate::profile::Profile;

/// The exported families: a profile, then changes from left to right, as in
/// `default,+virtlens_halt_*,-virtlens_pressure_seconds_total`. A name may end with `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    text: String,
    names: BTreeSet<&'static str>,
}

impl Selection {
    /// Whether the family is exported.
    pub fn has(&self, family: &str) -> bool {
        self.names.contains(family)
    }

    /// Every family.
    pub fn all() -> Self {
        Self {
            text: format!("{},+*", Profile::Full.name()),
            names: families().map(|family| family.name).collect(),
        }
    }

    /// The selected families that have series of VMs, without those of the agent.
    #[must_use]
    pub fn of_vms(mut self) -> Self {
        let of_agent = families().filter(|family| matches!(family.rows, Rows::Agent(_)));
        for family in of_agent {
            self.names.remove(family.name);
        }
        self
    }

    /// Whether a family shows the CPU time of vCPUs on each pCPU.
    pub fn needs_residency(&self) -> bool {
        self.has("virtlens_vcpu_pcpu_seconds_total")
    }

    /// Whether a family shows histograms of the halts of vCPUs.
    pub fn needs_halts(&self) -> bool {
        self.has("virtlens_halt_duration_seconds")
    }

    /// Adds or removes the families that match a pattern.
    fn change(&mut self, change: &str) -> Result<(), String> {
        let (pattern, is_added) = match (change.strip_prefix('+'), change.strip_prefix('-')) {
            (Some(pattern), _) => (pattern, true),
            (_, Some(pattern)) => (pattern, false),
            _ => return Err(format!("{change:?} begins with neither + nor -")),
        };
        let is_it = |name: &str| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        let matching = families().map(|family| family.name);
        let matching: Vec<&str> = matching.filter(|name| is_it(name)).collect();
        if matching.is_empty() {
            return Err(format!(
                "no metric is called {pattern:?}; `virtlens metrics` lists all"
            ));
        }
        for name in matching {
            if is_added {
                self.names.insert(name);
            } else {
                self.names.remove(name);
            }
        }
        Ok(())
    }
}

impl From<Profile> for Selection {
    fn from(profile: Profile) -> Self {
        let of_profile = families().filter(|family| family.profile.is_some_and(|of| of <= profile));
        Self {
            text: profile.name().to_owned(),
            names: of_profile.map(|family| family.name).collect(),
        }
    }
}

impl Default for Selection {
    fn default() -> Self {
        Self::from(Profile::default())
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let profile = Profile::ALL
            .into_iter()
            .find(|profile| profile.name() == name);
        let profile = profile.ok_or_else(|| {
            let names = Profile::ALL.map(Profile::name).join(", ");
            format!("unknown profile {name:?} (expected one of {names})")
        })?;
        let mut selection = Self::from(profile);
        parts.try_for_each(|change| selection.change(change))?;
        text.clone_into(&mut selection.text);
        Ok(selection)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::Selection;
    use crate::families::families;
    use crate::profile::Profile;

    fn has(text: &str, family: &str) -> bool {
        let selection: Selection = text.parse().expect("it is valid");
        assert_eq!(selection.to_string(), text);
        selection.has(family)
    }

    #[test]
    fn each_profile_contains_the_one_before() {
        let [minimal, default, full] = Profile::ALL.map(Selection::from);
        let sizes = [&minimal, &default, &full].map(|one| one.names.len());
        assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2], "{sizes:?}");
        assert!(minimal.names.is_subset(&default.names) && default.names.is_subset(&full.names));
        let left_out: Vec<&str> = families()
            .map(|family| family.name)
            .filter(|name| !full.has(name))
            .collect();
        assert_eq!(left_out, ["virtlens_vcpu_pcpu_seconds_total"]);
    }

    #[test]
    fn changes_apply_from_left_to_right() {
        let exits = "virtlens_kvm_exits_total";
        assert!(!has("default", exits));
        assert!(has("default,+virtlens_kvm_exits_total", exits));
        assert!(!has("full, -virtlens_kvm_*", exits));
        assert!(has("minimal,-virtlens_*,+virtlens_kvm_*", exits));
        assert!(!has(
            "minimal,-virtlens_*,+virtlens_kvm_*",
            "virtlens_vm_info"
        ));
    }

    #[test]
    fn all_families_can_be_named() {
        let all = Selection::all();
        assert_eq!(all.to_string().parse(), Ok(all.clone()));
        assert!(all.needs_residency() && all.needs_halts());
        let default = Selection::default();
        assert!(!default.needs_residency() && !default.needs_halts());
    }

    #[test]
    fn agent_has_no_families_among_those_of_vms() {
        let of_vms = Selection::default().of_vms();
        assert!(of_vms.has("virtlens_cpu_seconds_total"));
        assert!(!of_vms.has("virtlens_vms") && !of_vms.has("process_open_fds"));
    }

    #[test]
    fn unknown_profile_and_metric_are_errors() {
        for wrong in [
            "",
            "most",
            "default,virtlens_threads",
            "default,+virtlens_nothing",
            "full,",
        ] {
            assert!(wrong.parse::<Selection>().is_err(), "{wrong}");
        }
    }
}
