//! Traces one VM event by event, with programs of a separate object that stay loaded as
//! long as the [`Tracer`] exists.

mod decode;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use virtlens_abi::trace::{TRACED_WORDS, TraceEvent, Traced};
use virtlens_model::timeline::Event;
use virtlens_model::vocab::CgroupId;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub use self::decode::event;
use crate::facts::KernelFacts;
use crate::load::Programs;
use crate::loader::{Loader, Wanted};
use crate::object::Compiled;
use crate::refusal::{Settled, add_each};
use crate::sys::map::Map;
use crate::sys::ring::Ring;
use crate::{Error, plan};

/// The compiled object.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));

/// The programs for scheduling events: a trace requires them.
const STATES: Part = &[
    "trace_switch",
    "trace_wakeup",
    "trace_wakeup_new",
    "trace_migrate",
];
/// The programs for guest events.
const GUEST: Part = &["trace_entry", "trace_to_vmm", "trace_halt_end"];
/// The programs for VM exits, by the number of arguments of the tracepoint: the first one
/// that the kernel accepts is used.
const EXIT: [Part; 2] = [&["trace_exit_of_3"], &["trace_exit_of_2"]];
/// The programs for throttling.
const THROTTLE: Part = &["trace_throttle", "trace_unthrottl"];

/// Programs that are loaded or rejected together.
type Part = &'static [&'static str];

/// The ring buffer of events.
const EVENTS: &str = "trace_events";

/// Maximum number of events per [`Tracer::drain`], so that the call returns while more
/// arrive.
const AT_ONCE: usize = 1 << 19;

/// The loaded programs.
pub struct Tracer {
    links: Vec<OwnedFd>,
    ring: Ring,
    programs: Programs,
    maps: BTreeMap<String, Map>,
    reports_throttling: bool,
    reports_guest: bool,
    /// The limitation that applies if the tracepoint does not provide exit reasons.
    reasons: Option<Lack>,
    lacks: Vec<Lack>,
}

/// A part of a trace that this kernel does not provide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// The data that the trace lacks.
    pub what: &'static str,
    /// The reason.
    pub reason: String,
}

impl Tracer {
    /// Loads the programs with `loader`; none runs before [`Tracer::attach`]. Programs
    /// that the kernel rejects are left out, except [`STATES`].
    ///
    /// # Errors
    /// [`Error::Impossible`] if the kernel lacks a required feature, otherwise the
    /// kernel's error.
    pub fn load(loader: Loader, kernel: &KernelFacts) -> Result<Self, Error> {
        Self::load_object(OBJECT, loader, kernel)
    }

    /// Like [`Tracer::load`], with another build of [`OBJECT`].
    ///
    /// # Errors
    /// As [`Tracer::load`].
    pub fn load_object(object: &[u8], loader: Loader, kernel: &KernelFacts) -> Result<Self, Error> {
        if let Some(reason) = plan::trace_obstacle(kernel) {
            return Err(Error::Impossible(reason.to_owned()));
        }
        let obstacle = plan::throttle_obstacle(kernel);
        let mut lacks: Vec<Lack> = obstacle.into_iter().map(no_throttle).collect();
        let settled = settle(object, loader, obstacle.is_none())?;
        let (programs, maps) = settled.loaded;
        let cause = |of: &[Part]| {
            let mut refused = settled.refused.iter();
            let (_, cause) = refused.find(|(part, _)| of.contains(part))?;
            Some(format!("rejected by the kernel: {cause}"))
        };
        let no_throttle = cause(&[THROTTLE]).map(|cause| no_throttle(&cause));
        let reports_throttling = obstacle.is_none() && no_throttle.is_none();
        let reports_exits = EXIT.iter().any(|exit| settled.taken.contains(exit));
        let reports_guest = settled.taken.contains(&GUEST) && reports_exits;
        let no_guest = cause(&[GUEST, EXIT[0], EXIT[1]]).filter(|_| !reports_guest);
        lacks.extend(no_throttle);
        lacks.extend(no_guest.map(no_guest_times));
        let events = maps.get(EVENTS).ok_or(Error::Missing(EVENTS))?;
        Ok(Self {
            links: Vec::new(),
            ring: Ring::of(events).map_err(failed(EVENTS))?,
            programs,
            maps,
            reports_throttling,
            reports_guest,
            reasons: no_reasons(loader, kernel),
            lacks,
        })
    }

    /// Sets the threads to trace, and the cgroups whose quotas apply to them.
    ///
    /// # Errors
    /// There are too many, or the kernel rejects them.
    pub fn follow(&self, tids: &[u32], groups: &[CgroupId]) -> Result<(), Error> {
        let mut words: BTreeMap<u32, u64> = BTreeMap::new();
        for tid in tids.iter().filter(|tid| **tid / 64 < TRACED_WORDS) {
            *words.entry(tid / 64).or_default() |= 1 << (tid % 64);
            let fresh = Traced::new_zeroed();
            self.update("traced_threads", tid.as_bytes(), fresh.as_bytes())?;
        }
        for group in groups {
            self.update("traced_groups", group.0.as_bytes(), &[0; 8])?;
        }
        for (word, bits) in words {
            self.update("traced_bits", word.as_bytes(), bits.as_bytes())?;
        }
        Ok(())
    }

    /// Starts the trace.
    ///
    /// # Errors
    /// The kernel does not attach the required programs. [`Tracer::lacks`] lists the
    /// other programs that it rejects.
    pub fn attach(&mut self) -> Result<(), Error> {
        if self.reports_throttling
            && let Err(cause) = self.attach_all(THROTTLE)
        {
            self.lacks.push(no_throttle(&cause.to_string()));
            self.reports_throttling = false;
        }
        if self.reports_guest
            && let Err(cause) = self.attach_guest()
        {
            let reason = format!("cannot attach to KVM's tracepoints: {cause:#}");
            self.lacks.push(no_guest_times(reason));
        }
        self.attach_all(STATES).map_err(Error::Load)
    }

    /// Whether the trace shows throttling; otherwise a throttled thread appears as
    /// runnable.
    pub fn reports_throttling(&self) -> bool {
        self.reports_throttling
    }

    /// Returns the parts of a trace that this kernel does not provide.
    pub fn lacks(&self) -> &[Lack] {
        &self.lacks
    }

    /// Passes the events since the last call to `each`.
    pub fn drain(&mut self, mut each: impl FnMut(Event)) {
        self.ring.drain(AT_ONCE, |bytes| {
            let arrived = TraceEvent::read_from_bytes(bytes).ok();
            arrived.and_then(event).into_iter().for_each(&mut each);
        });
    }

    /// Stops the trace: the programs no longer run.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Number of lost events: the ring buffer was full, or vCPUs entered and left their
    /// guest more often than the budget allows.
    pub fn lost(&self) -> u64 {
        let map = self.maps.get("trace_lost");
        map.and_then(|map| map.sum(&[0; 4]).ok()).unwrap_or(0)
    }

    fn attach_guest(&mut self) -> io::Result<()> {
        let [of_3, of_2] = EXIT;
        if self.attach_all(of_3).is_err() {
            self.attach_all(of_2)?;
            self.lacks.extend(self.reasons.take());
        }
        self.attach_all(GUEST)
    }

    fn attach_all(&mut self, names: &[&str]) -> io::Result<()> {
        let links = names.iter().map(|name| self.programs.attach(name));
        let links: Vec<OwnedFd> = links.collect::<io::Result<_>>()?;
        self.links.extend(links);
        Ok(())
    }

    fn update(&self, name: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let map = self.maps.get(name).ok_or(Error::Missing(name))?;
        map.update(key, value).map_err(failed(name))
    }
}

type Loaded = (Programs, BTreeMap<String, Map>);

/// Loads the programs that the kernel accepts.
fn settle(
    object: &[u8],
    loader: Loader,
    with_throttle: bool,
) -> Result<Settled<Part, Loaded>, Error> {
    let throttle = with_throttle.then_some(THROTTLE);
    let others = [GUEST].into_iter().chain(EXIT).chain(throttle);
    let others: Vec<Part> = others.collect();
    let whole: Vec<Part> = [STATES].into_iter().chain(others.iter().copied()).collect();
    if let Ok(loaded) = load(object, loader, &whole) {
        return Ok(Settled {
            loaded,
            taken: whole,
            refused: Vec::new(),
        });
    }
    let settled = Settled {
        loaded: load(object, loader, &[STATES])?,
        taken: vec![STATES],
        refused: Vec::new(),
    };
    add_each(settled, &others, |parts| load(object, loader, parts))
}

fn load(object: &[u8], loader: Loader, parts: &[Part]) -> Result<Loaded, Error> {
    let compiled = Compiled::read(object)?;
    let programs = parts.iter().flat_map(|part| part.iter().copied());
    let programs = compiled.named(programs).map_err(Error::Load)?;
    let loaded = loader.load(&Wanted {
        object,
        constant: None,
        unused_maps: &[],
        max_entries: None,
        pinned: &BTreeMap::new(),
        programs: &programs,
    });
    let loaded = loaded.map_err(Error::Load)?;
    let maps = loaded
        .maps
        .into_iter()
        .map(|(name, map)| Ok((name, Map::of(map)?)));
    let maps = maps.collect::<io::Result<_>>().map_err(Error::Load)?;
    Ok((Programs::new(compiled, loaded.programs), maps))
}

/// From v6.1 on the exit reason is read from the data of KVM's vendor module.
fn no_reasons(loader: Loader, kernel: &KernelFacts) -> Option<Lack> {
    let readable = loader.reads_modules() || kernel.kvm_built_in;
    (!readable).then(|| Lack {
        what: "exit reasons of vCPUs",
        reason: format!(
            "{loader} does not support type information of modules, and KVM is a module here"
        ),
    })
}

fn no_guest_times(reason: String) -> Lack {
    Lack {
        what: "guest time of vCPUs",
        reason,
    }
}

fn no_throttle(reason: &str) -> Lack {
    Lack {
        what: "throttling of threads, shown as waiting",
        reason: reason.to_owned(),
    }
}

fn failed(map: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::Map { map, cause }
}
