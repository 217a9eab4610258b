//! Loading the object with libbpf: what the plan says, less where the kernel
//! refuses it.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use libbpf_rs::{Link, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel};
use virtlens_abi as abi;
use zerocopy::IntoBytes;

use crate::pins::Pins;
use crate::plan::{Feature, Plan};
use crate::{Error, OBJECT, layout};

/// What is loaded.
pub(crate) struct Loaded {
    pub(crate) object: Object,
    /// Which programs these are: see `config.programs` in `bpf/abi.h`.
    pub(crate) programs: u64,
    /// The maps' places on bpffs, if they have some.
    pub(crate) maps: Vec<PathBuf>,
}

/// Loads what `plan` says, and takes out of it what the kernel refuses.
/// `cgroup_v1`: the cpu controller is in a v1 hierarchy. With `pins` the maps are
/// those that an agent left there, as far as they are the same; and programs that
/// are attached already are not loaded again.
pub(crate) fn object(
    plan: &mut Plan,
    cgroup_v1: bool,
    pins: Option<&Pins>,
) -> Result<Loaded, Error> {
    listen_to_libbpf();
    let layouts = pins.map(|_| layout::of_maps(OBJECT)).transpose()?;
    let pins = pins.zip(layouts.as_ref());
    loop {
        match load_object(plan, cgroup_v1, pins) {
            Ok((mut loaded, new)) => {
                pin(&mut loaded, new)?;
                return Ok(loaded);
            }
            Err(cause) => *plan = retreat(plan.clone(), cause)?,
        }
    }
}

/// Has libbpf say to the log what it has to say.
pub(crate) fn listen_to_libbpf() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, print)));
}

/// Opens and loads the object as `plan` has it. Also tells which maps are new, and
/// where each of them is to be pinned.
fn load_object(
    plan: &Plan,
    cgroup_v1: bool,
    pins: Option<(&Pins, &BTreeMap<String, String>)>,
) -> Result<(Loaded, New), libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
    let mut config = abi::Config {
        cgroup_v1: cgroup_v1.into(),
        mask_words: u32::try_from(plan.mask_words).unwrap_or(0),
        task_storage: plan.task_storage.into(),
        pad: 0,
        programs: 0,
    };
    config.programs = layout::fingerprint(&[OBJECT, config.as_bytes()].concat());
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
    let is_attached =
        |name| pins.is_some_and(|(pins, _)| pins.link(name, config.programs).exists());
    for mut program in open.progs_mut() {
        let name = wanted.iter().find(|name| program.name() == **name);
        program.set_autoload(name.is_some_and(|name| !is_attached(name)));
    }
    let places = pins.map_or_else(Vec::new, |(pins, layouts)| places(&open, pins, layouts));
    let new = reuse(&mut open, &places)?;
    let loaded = Loaded {
        object: open.load()?,
        programs: config.programs,
        maps: places.into_iter().map(|(_, place)| place).collect(),
    };
    Ok((loaded, new))
}

/// Maps by name, and where each is to be pinned.
type New = Vec<(String, PathBuf)>;

/// Where each map that has entries of its own is, or is to be, pinned.
fn places(open: &OpenObject, pins: &Pins, layouts: &BTreeMap<String, String>) -> New {
    open.maps()
        .filter_map(|map| {
            let name = map.name().to_string_lossy().into_owned();
            let kind = (map.map_type(), map.key_size(), map.value_size());
            let size = (map.max_entries(), map.map_flags());
            // What has no types is the constants of the programs.
            let whole = format!("{kind:?}{size:?}{}", layouts.get(&name)?);
            let place = pins.map(&name, layout::fingerprint(whole.as_bytes()));
            map.autocreate().then_some((name, place))
        })
        .collect()
}

/// Has the object use the maps that are there. Returns the others.
fn reuse(open: &mut OpenObject, places: &New) -> Result<New, libbpf_rs::Error> {
    let mut new = Vec::new();
    for (name, place) in places {
        let mut maps = open.maps_mut();
        let map = maps.find(|map| map.name() == name.as_str());
        if !map.map_or(Ok(false), |map| reuse_one(map, place))? {
            new.push((name.clone(), place.clone()));
        }
    }
    Ok(new)
}

/// False where there is no such map, or not really: what its name says it may not be.
fn reuse_one(mut map: OpenMapMut<'_>, place: &PathBuf) -> Result<bool, libbpf_rs::Error> {
    use libbpf_rs::MapCore as _;
    if !place.exists() {
        return Ok(false);
    }
    let left = MapHandle::from_pinned_path(place).ok().filter(|left| {
        left.map_type() == map.map_type()
            && left.key_size() == map.key_size()
            && left.value_size() == map.value_size()
            && left.max_entries() == map.max_entries()
    });
    let Some(left) = left else {
        fs::remove_file(place)?;
        return Ok(false);
    };
    map.reuse_fd(left.as_fd())?;
    Ok(true)
}

fn pin(loaded: &mut Loaded, new: New) -> Result<(), Error> {
    for (name, place) in new {
        let mut maps = loaded.object.maps_mut();
        let map = maps.find(|map| libbpf_rs::MapCore::name(map) == name.as_str());
        map.map_or(Ok(()), |mut map| map.pin(&place))
            .map_err(|cause| Error::Pin { place, cause })?;
    }
    Ok(())
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

/// Attaches a program of the object.
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
