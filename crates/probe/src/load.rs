//! Loading the object: what the plan says, less where the kernel refuses it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use virtlens_abi as abi;
use zerocopy::IntoBytes;

use crate::loader::{Loader, Wanted};
use crate::maps::MARKS;
use crate::object::{Compiled, MapDefinition, Program, fingerprint};
use crate::pins::Pins;
use crate::plan::Plan;
use crate::sys::map::Map;
use crate::{Error, refusal, sys};

/// What is loaded.
pub(crate) struct Loaded {
    pub(crate) programs: Programs,
    /// By name.
    pub(crate) maps: BTreeMap<String, OwnedFd>,
    /// Which programs these are: see `config.programs` in `bpf/abi.h`.
    pub(crate) which: u64,
    /// See `config.marks_all` there.
    pub(crate) marks_all: bool,
    /// Whether marks are those that an agent left.
    pub(crate) marks_left: bool,
    /// The maps' places on bpffs, if they have some.
    pub(crate) places: Vec<PathBuf>,
}

/// Programs that are loaded, by name.
pub(crate) struct Programs {
    loaded: BTreeMap<String, OwnedFd>,
    compiled: BTreeMap<String, Program>,
}

impl Programs {
    pub(crate) fn new(compiled: Compiled, loaded: BTreeMap<String, OwnedFd>) -> Self {
        Self {
            loaded,
            compiled: compiled.programs,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.loaded.get(name).map(|program| program.as_fd())
    }

    /// Attaches one.
    pub(crate) fn attach(&self, name: &str) -> io::Result<OwnedFd> {
        let both = self.get(name).zip(self.compiled.get(name));
        let (program, compiled) = both.ok_or(ErrorKind::NotFound)?;
        sys::attach(program, &compiled.attach_point())
    }
}

/// Where and how an object is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Target<'t> {
    pub(crate) object: &'t [u8],
    pub(crate) loader: Loader,
    /// The cpu controller is in a v1 hierarchy.
    pub(crate) cgroup_v1: bool,
    /// With these the maps are those that an agent left there, as far as they are the
    /// same; and programs that are attached already are not loaded again.
    pub(crate) pins: Option<&'t Pins>,
}

/// What is loaded, and where its maps are pinned.
struct Placed {
    which: u64,
    loaded: crate::loader::Loaded,
    places: BTreeMap<String, PathBuf>,
    pinned: BTreeMap<String, PathBuf>,
}

/// Loads what `plan` says, and takes out of it what the kernel refuses.
pub(crate) fn object(target: &Target<'_>, plan: &mut Plan) -> Result<Loaded, Error> {
    let compiled = Compiled::read(target.object)?;
    let (settled, placed) = refusal::settle(plan, |plan| place(target, &compiled, plan))?;
    *plan = settled;
    let marks_all = marks_all(plan, &placed.pinned);
    pin(&placed.loaded.maps, &placed.places, &placed.pinned)?;
    Ok(Loaded {
        programs: Programs::new(compiled, placed.loaded.programs),
        maps: placed.loaded.maps,
        which: placed.which,
        marks_all,
        marks_left: placed.pinned.contains_key(marks(plan).0),
        places: placed.places.into_values().collect(),
    })
}

/// Loads the object as `plan` has it; pins nothing.
fn place(target: &Target<'_>, compiled: &Compiled, plan: &Plan) -> Result<Placed, Error> {
    let pins = target.pins;
    let places = pins.map_or_else(BTreeMap::new, |pins| places(compiled, plan, pins));
    let pinned = left(compiled, plan, &places)?;
    let (which, loaded) = load(target, compiled, plan, &pinned).map_err(Error::Load)?;
    Ok(Placed {
        which,
        loaded,
        places,
        pinned,
    })
}

/// Loads the object as `plan` has it. Also tells which programs they are.
fn load(
    target: &Target<'_>,
    compiled: &Compiled,
    plan: &Plan,
    pinned: &BTreeMap<String, PathBuf>,
) -> io::Result<(u64, crate::loader::Loaded)> {
    let mut config = abi::Config {
        cgroup_v1: target.cgroup_v1.into(),
        mask_words: u32::try_from(plan.mask_words).unwrap_or(0),
        task_storage: plan.task_storage.into(),
        walks: plan.walks.into(),
        marks_all: marks_all(plan, pinned).into(),
        pit_worker: plan.pit_worker,
        rss_error_bytes: plan.rss_error_bytes,
        programs: 0,
    };
    config.programs = fingerprint(&[target.object, config.as_bytes()].concat());
    let is_attached = |name: &&str| {
        let link = target.pins.map(|pins| pins.link(name, config.programs));
        link.is_some_and(|link| link.exists())
    };
    let programs = plan.programs().filter(|name| !is_attached(name));
    let programs = compiled.named(programs)?;
    let loaded = target.loader.load(&Wanted {
        object: target.object,
        constant: Some(("cfg", config.as_bytes())),
        unused_maps: &unused(plan),
        max_entries: Some(RESIDENCY).map(|name| (name, plan.residency_entries)),
        pinned,
        programs: &programs,
    })?;
    Ok((config.programs, loaded))
}

/// The map whose entries are as many as the host has room for.
const RESIDENCY: &str = "residency";

/// What a walk tells in: nobody needs it later.
pub(crate) const STREAM: &str = "stream";

/// The map of marks that is used, and the one that is not.
fn marks(plan: &Plan) -> (&'static str, &'static str) {
    if plan.task_storage {
        ("marks", MARKS)
    } else {
        (MARKS, "marks")
    }
}

/// Of the two maps of marks the one that is not used, and what no pass tells in.
fn unused(plan: &Plan) -> Vec<&'static str> {
    let (_, marks) = marks(plan);
    let stream = (!plan.walks).then_some(STREAM);
    std::iter::once(marks).chain(stream).collect()
}

/// Whether what has retired into a map that is taken over was marked in one that is.
fn marks_all(plan: &Plan, pinned: &BTreeMap<String, PathBuf>) -> bool {
    let (marks, _) = marks(plan);
    pinned.contains_key(marks) || !pinned.contains_key("retired")
}

/// The map as it is to be here.
fn wanted(name: &str, definition: &MapDefinition, plan: &Plan) -> MapDefinition {
    let mut wanted = definition.clone();
    if name == RESIDENCY {
        wanted.max_entries = plan.residency_entries;
    }
    wanted
}

/// Where each map is, or is to be, pinned. The constants of the programs are of no use
/// to others, nor is what a walk has told.
fn places(compiled: &Compiled, plan: &Plan, pins: &Pins) -> BTreeMap<String, PathBuf> {
    let maps = compiled.maps.iter();
    let unused = unused(plan);
    let is_kept = |name: &str| name != STREAM && !unused.contains(&name);
    maps.filter(|(name, _)| is_kept(name))
        .map(|(name, definition)| {
            let whole = wanted(name, definition, plan).to_string();
            let place = pins.map(name, fingerprint(whole.as_bytes()));
            (name.clone(), place)
        })
        .collect()
}

/// Those that an agent left. What is there and is not what its name says is removed.
fn left(
    compiled: &Compiled,
    plan: &Plan,
    places: &BTreeMap<String, PathBuf>,
) -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut left = BTreeMap::new();
    for (name, place) in places.iter().filter(|(_, place)| place.exists()) {
        let definition = compiled.maps.get(name);
        let is_it = definition.is_some_and(|of| is_map(place, &wanted(name, of, plan)));
        if is_it {
            left.insert(name.clone(), place.clone());
        } else {
            fs::remove_file(place).map_err(not_pinned(place))?;
        }
    }
    Ok(left)
}

fn is_map(place: &Path, wanted: &MapDefinition) -> bool {
    let map = sys::pinned(place).and_then(Map::of);
    map.is_ok_and(|map| {
        let info = map.info();
        let sizes = (info.key_size, info.value_size, info.max_entries);
        info.kind == wanted.kind
            && sizes == (wanted.key_size, wanted.value_size, wanted.max_entries)
    })
}

/// Pins the maps that are new.
fn pin(
    maps: &BTreeMap<String, OwnedFd>,
    places: &BTreeMap<String, PathBuf>,
    left: &BTreeMap<String, PathBuf>,
) -> Result<(), Error> {
    let new = places.iter().filter(|(name, _)| !left.contains_key(*name));
    for (name, place) in new {
        let pinned = maps
            .get(name)
            .map_or(Ok(()), |map| sys::pin(map.as_fd(), place));
        pinned.map_err(not_pinned(place))?;
    }
    Ok(())
}

/// The error of a place on bpffs.
pub(crate) fn not_pinned(place: &Path) -> impl FnOnce(io::Error) -> Error {
    let place = place.to_owned();
    move |cause| Error::Pin { place, cause }
}
