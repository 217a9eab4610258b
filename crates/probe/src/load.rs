//! Loading the object with libbpf: what the plan says, less where the kernel
//! refuses it.

use std::io::ErrorKind;

use libbpf_rs::{Link, Object, ObjectBuilder, PrintLevel};
use virtlens_abi as abi;
use zerocopy::IntoBytes;

use crate::plan::{Feature, Plan};
use crate::{Error, OBJECT};

/// Loads what `plan` says, and takes out of it what the kernel refuses.
/// `cgroup_v1`: the cpu controller is in a v1 hierarchy.
pub(crate) fn object(plan: &mut Plan, cgroup_v1: bool) -> Result<Object, Error> {
    listen_to_libbpf();
    loop {
        match load_object(plan, cgroup_v1) {
            Ok(object) => return Ok(object),
            Err(cause) => *plan = retreat(plan.clone(), cause)?,
        }
    }
}

/// Has libbpf say to the log what it has to say.
pub(crate) fn listen_to_libbpf() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, print)));
}

/// Opens and loads the object as `plan` has it.
fn load_object(plan: &Plan, cgroup_v1: bool) -> Result<Object, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
    let config = abi::Config {
        cgroup_v1: cgroup_v1.into(),
        mask_words: u32::try_from(plan.mask_words).unwrap_or(0),
        task_storage: plan.task_storage.into(),
        pad: 0,
    };
    for mut map in open.maps_mut() {
        match map.name().to_str().unwrap_or_default() {
            name if name.ends_with(".rodata") => map.set_initial_value(config.as_bytes())?,
            "marks" => map.set_autocreate(plan.task_storage)?,
            "marks_hash" => map.set_autocreate(!plan.task_storage)?,
            "residency" => map.set_max_entries(plan.residency_entries)?,
            _ => {}
        }
    }
    let wanted: Vec<&str> = plan
        .features
        .iter()
        .flat_map(|feature| feature.programs())
        .copied()
        .collect();
    for mut program in open.progs_mut() {
        let load = wanted.iter().any(|name| program.name() == *name);
        program.set_autoload(load);
    }
    open.load()
}

/// After a refusal: less, in the order of what is least missed.
fn retreat(mut plan: Plan, cause: libbpf_rs::Error) -> Result<Plan, Error> {
    let features = plan.features.clone();
    let first_of = |optional: &[Feature]| {
        let mut optional = optional.iter().copied();
        optional.find(|feature| features.contains(feature))
    };
    let least_missed = first_of(&[Feature::Memory, Feature::Throttle]);
    if least_missed.is_none() && plan.task_storage {
        plan.task_storage = false;
        return Ok(plan);
    }
    let optional = [Feature::Placement, Feature::FilePass, Feature::Lifetime];
    match least_missed.or_else(|| first_of(&optional)) {
        Some(feature) => Ok(plan.without(feature, format!("refused by the kernel: {cause}"))),
        None => Err(Error::Load(cause)),
    }
}

pub(crate) fn attach(object: &Object, name: &str) -> Result<Link, libbpf_rs::Error> {
    let program = object.progs_mut().find(|program| program.name() == name);
    program
        .ok_or_else(|| libbpf_rs::Error::from(std::io::Error::from(ErrorKind::NotFound)))?
        .attach()
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature is libbpf-rs's"
)]
fn print(_: PrintLevel, text: String) {
    tracing::debug!(target: "libbpf", "{}", text.trim_end());
}
