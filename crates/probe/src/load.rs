//! Loads the programs of the plan that the kernel accepts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use virtlens_abi as abi;
use zerocopy::IntoBytes;

use crate::loader::{Loader, Wanted};
use crate::maps::{STATES, STATES_HASH};
use crate::object::{Compiled, MapDefinition, Program, fingerprint};
use crate::pins::Pins;
use crate::plan::Plan;
use crate::sys::map::Map;
use crate::{Error, refusal, sys};

/// A loaded object.
pub(crate) struct Loaded {
    pub(crate) programs: Programs,
    /// By name.
    pub(crate) maps: BTreeMap<String, OwnedFd>,
    /// Fingerprint of the programs: see `config.programs` in `bpf/abi.h`.
    pub(crate) which: u64,
    /// See `config.states_complete` in `bpf/abi.h`.
    pub(crate) states_complete: bool,
    /// Whether the thread states were taken over from a former agent.
    pub(crate) states_adopted: bool,
    /// The paths of the maps on bpffs, if they are pinned.
    pub(crate) places: Vec<PathBuf>,
}

/// The loaded programs, by name.
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

    /// Keeps a program that a former agent loaded.
    pub(crate) fn adopt(&mut self, name: &str, program: OwnedFd) {
        self.loaded.insert(name.to_owned(), program);
    }

    /// Whether the program of this name runs at the entry or the return of a kernel function.
    pub(crate) fn is_at_function(&self, name: &str) -> bool {
        let compiled = self.compiled.get(name);
        compiled.is_some_and(|one| matches!(one.kind.as_str(), "fentry" | "fexit"))
    }

    /// Attaches the program of this name.
    pub(crate) fn attach(&self, name: &str) -> io::Result<OwnedFd> {
        let both = self.get(name).zip(self.compiled.get(name));
        let (program, compiled) = both.ok_or(ErrorKind::NotFound)?;
        sys::attach(program, &compiled.attach_point())
    }

    /// Attaches the iterator program of this name to one process.
    pub(crate) fn attach_to(&self, name: &str, tgid: u32) -> io::Result<OwnedFd> {
        let program = self.get(name).ok_or(ErrorKind::NotFound)?;
        sys::attach_to_process(program, tgid)
    }
}

/// The object to load, and how to load it.
#[derive(Clone, Copy)]
pub(crate) struct Target<'t> {
    pub(crate) object: &'t [u8],
    pub(crate) loader: Loader,
    /// The cpu controller is in a v1 hierarchy.
    pub(crate) cgroup_v1: bool,
    /// With pins, maps of a former agent with the same definition are used, and programs
    /// that are already attached are not loaded again.
    pub(crate) pins: Option<&'t Pins>,
}

/// The loaded object, and the paths of its maps.
struct Placed {
    which: u64,
    loaded: crate::loader::Loaded,
    places: BTreeMap<String, PathBuf>,
    pinned: BTreeMap<String, PathBuf>,
}

/// Loads the programs of `plan`, and removes from it what the kernel rejects.
pub(crate) fn object(target: &Target<'_>, plan: &mut Plan) -> Result<Loaded, Error> {
    let compiled = Compiled::read(target.object)?;
    let (settled, placed) = refusal::settle(plan, |plan| place(target, &compiled, plan))?;
    *plan = settled;
    let states_complete = states_complete(plan, &placed.pinned);
    pin(&placed.loaded.maps, &placed.places, &placed.pinned)?;
    let names: Vec<_> = placed.loaded.programs.keys().map(String::as_str).collect();
    tracing::debug!(programs = names.join(","), "loaded BPF programs");
    Ok(Loaded {
        programs: Programs::new(compiled, placed.loaded.programs),
        maps: placed.loaded.maps,
        which: placed.which,
        states_complete,
        states_adopted: placed.pinned.contains_key(states(plan).0),
        places: placed.places.into_values().collect(),
    })
}

/// Loads the programs of `plan`; pins nothing.
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

/// Loads the programs of `plan`. Returns their fingerprint too.
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
        states_complete: states_complete(plan, pinned).into(),
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

/// The map whose size depends on the host.
const RESIDENCY: &str = "residency";

/// Output of `walk_tasks`.
pub(crate) const STREAM: &str = "stream";

/// The threads that the last two passes of `walk_tasks` emitted.
const SLEEPERS: &str = "sleepers";

/// The addresses that `walk_tasks` prefetches.
const HINTS: &str = "hints";

/// The maps that only `walk_tasks` uses. They are never pinned, because they have no lasting
/// data.
const OF_WALK: [&str; 3] = [STREAM, SLEEPERS, HINTS];

/// Returns the map of thread states that the plan uses, and the other one.
fn states(plan: &Plan) -> (&'static str, &'static str) {
    if plan.task_storage {
        (STATES, STATES_HASH)
    } else {
        (STATES_HASH, STATES)
    }
}

/// Returns the maps that the plan does not use: one of the two maps of thread states, and
/// those of `walk_tasks` if it is not loaded.
fn unused(plan: &Plan) -> Vec<&'static str> {
    let (_, states) = states(plan);
    let of_walk = OF_WALK.into_iter().filter(|_| !plan.walks);
    std::iter::once(states).chain(of_walk).collect()
}

/// Whether all threads that `retired` counts have a state: `retired` is new, or the thread
/// states were taken over with it.
fn states_complete(plan: &Plan, pinned: &BTreeMap<String, PathBuf>) -> bool {
    let (states, _) = states(plan);
    pinned.contains_key(states) || !pinned.contains_key("retired")
}

/// Returns the definition of a map on this host.
fn wanted(name: &str, definition: &MapDefinition, plan: &Plan) -> MapDefinition {
    let mut wanted = definition.clone();
    if name == RESIDENCY {
        wanted.max_entries = plan.residency_entries;
    }
    wanted
}

/// Returns the path at which each map is pinned. The programs' constants and the maps of a
/// walk are useless to other agents, so they are not pinned.
fn places(compiled: &Compiled, plan: &Plan, pins: &Pins) -> BTreeMap<String, PathBuf> {
    let maps = compiled.maps.iter();
    let unused = unused(plan);
    let is_kept = |name: &str| !OF_WALK.contains(&name) && !unused.contains(&name);
    maps.filter(|(name, _)| is_kept(name))
        .map(|(name, definition)| {
            let whole = wanted(name, definition, plan).to_string();
            let place = pins.map(name, fingerprint(whole.as_bytes()));
            (name.clone(), place)
        })
        .collect()
}

/// Returns the maps that a former agent left. A file whose content does not match its
/// name is removed.
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

/// Pins the new maps.
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

/// Returns the error for a path on bpffs.
pub(crate) fn not_pinned(place: &Path) -> impl FnOnce(io::Error) -> Error {
    let place = place.to_owned();
    move |cause| Error::Pin { place, cause }
}
