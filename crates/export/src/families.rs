//! The table of all metric families.

use crate::agent_rows::AGENT_FAMILIES;
use crate::family::Family;
use crate::finding_rows::FINDING_FAMILIES;
use crate::kvm_rows::KVM_FAMILIES;
use crate::memory_rows::MEMORY_FAMILIES;
use crate::placement_rows::PLACEMENT_FAMILIES;
use crate::pressure_rows::PRESSURE_FAMILIES;
use crate::throttle_rows::THROTTLE_FAMILIES;
use crate::vm_rows::VM_FAMILIES;

/// All families, in export order.
pub fn families() -> impl Iterator<Item = &'static Family> {
    VM_FAMILIES
        .iter()
        .chain(KVM_FAMILIES)
        .chain(THROTTLE_FAMILIES)
        .chain(PLACEMENT_FAMILIES)
        .chain(MEMORY_FAMILIES)
        .chain(PRESSURE_FAMILIES)
        .chain(FINDING_FAMILIES)
        .chain(AGENT_FAMILIES)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::families;
    use crate::kind::Kind;

    #[test]
    fn family_names_are_unique_with_kind_and_unit() {
        let mut names = BTreeSet::new();
        for family in families() {
            let name = family.name;
            assert!(names.insert(name), "{name} is there twice");
            assert_eq!(
                name.ends_with("_total"),
                family.kind == Kind::Counter,
                "{name}"
            );
            assert_eq!(name.ends_with("_info"), family.kind == Kind::Info, "{name}");
            let unit = family.unit.map_or(String::new(), |unit| format!("_{unit}"));
            let suffix = match family.kind {
                Kind::Counter => "_total",
                Kind::Gauge | Kind::Histogram => "",
                Kind::Info => "_info",
            };
            assert_eq!(format!("{}{unit}{suffix}", family.base_name()), name);
            assert!(
                family.unit.is_some() || !name.contains("_seconds") && !name.contains("_bytes"),
                "{name} hides its unit"
            );
        }
    }

    #[test]
    fn help_is_one_line_without_escapes() {
        for family in families() {
            assert!(!family.help.is_empty(), "{}", family.name);
            assert!(!family.help.contains(['\n', '\\', '"']), "{}", family.name);
            assert!(family.help.ends_with('.'), "{}", family.name);
        }
    }

    #[test]
    fn labels_are_unique_within_a_family() {
        for family in families() {
            let labels = family.labels();
            let unique: BTreeSet<_> = labels.iter().collect();
            assert_eq!(unique.len(), labels.len(), "{}", family.name);
        }
    }
}
