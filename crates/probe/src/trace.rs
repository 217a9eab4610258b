//! Following one VM event by event: programs that live as long as the
//! [`Tracer`] does, of an object of their own.

mod decode;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use virtlens_abi::trace::{TRACED_WORDS, TraceEvent, Traced};
use virtlens_model::facts::CgroupId;
use virtlens_model::timeline::Event;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub use self::decode::event;
use crate::facts::KernelFacts;
use crate::{Error, load, plan};

/// The compiled object.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));

/// What threads do on their CPUs: without these there is nothing to trace.
const STATES: [&str; 4] = [
    "trace_switch",
    "trace_wakeup",
    "trace_wakeup_new",
    "trace_migrate",
];
/// What vCPUs do.
const GUEST: [&str; 3] = ["trace_entry", "trace_to_vmm", "trace_halt_end"];
/// The same, by how many arguments the tracepoint has: of the first that the kernel
/// takes.
const EXIT: [&str; 2] = ["trace_exit_of_3", "trace_exit_of_2"];
/// When quotas run out.
const THROTTLE: [&str; 2] = ["trace_throttle", "trace_unthrottl"];

/// The most events that are taken at once, so that a call ends while more come.
const AT_ONCE: usize = 1 << 19;

/// The programs, as long as they are there.
pub struct Tracer {
    // Links go before the object that they hold on to.
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    object: Object,
    arrived: Rc<RefCell<Vec<TraceEvent>>>,
    tells_throttle: bool,
    lacks: Vec<Lack>,
}

/// What this kernel does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// What is missing of a trace.
    pub what: &'static str,
    /// Why.
    pub reason: String,
}

impl Tracer {
    /// Loads the programs; none runs before [`Tracer::attach`].
    ///
    /// # Errors
    /// [`Error::Impossible`] where the kernel lacks what they need, else what it
    /// said as it refused them.
    pub fn load(kernel: &KernelFacts) -> Result<Self, Error> {
        if let Some(reason) = plan::obstacle(kernel) {
            return Err(Error::Impossible(reason.to_owned()));
        }
        let obstacle = plan::throttle_obstacle(kernel);
        let mut lacks: Vec<Lack> = obstacle.into_iter().map(no_throttle).collect();
        let mut tells_throttle = obstacle.is_none();
        load::listen_to_libbpf();
        let object = match open(tells_throttle) {
            Err(cause) if tells_throttle => {
                lacks.push(no_throttle(&cause.to_string()));
                tells_throttle = false;
                open(false).map_err(Error::Load)?
            }
            other => other.map_err(Error::Load)?,
        };
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let ring = ring(&object, &arrived)?;
        Ok(Self {
            links: Vec::new(),
            ring,
            object,
            arrived,
            tells_throttle,
            lacks,
        })
    }

    /// Says whom to follow: threads, and the cgroups whose quotas hold them.
    ///
    /// # Errors
    /// When there are too many, or the kernel does not take them.
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

    /// Begins.
    ///
    /// # Errors
    /// When the kernel does not attach what no trace can do without. What else it
    /// refuses is told by [`Tracer::lacks`].
    pub fn attach(&mut self) -> Result<(), Error> {
        if self.tells_throttle
            && let Err(cause) = self.attach_all(&THROTTLE)
        {
            self.lacks.push(no_throttle(&cause.to_string()));
        }
        if let Err(cause) = self.attach_guest() {
            self.lacks.push(Lack {
                what: "when vCPUs are in their guest",
                reason: format!("KVM's tracepoints cannot be followed: {cause:#}"),
            });
        }
        self.attach_all(&STATES).map_err(Error::Load)
    }

    /// What this kernel does not tell.
    pub fn lacks(&self) -> &[Lack] {
        &self.lacks
    }

    /// Shows what has happened since the last call.
    ///
    /// # Errors
    /// When the kernel's buffer cannot be read.
    pub fn drain(&mut self, each: impl FnMut(Event)) -> Result<(), Error> {
        let consumed = self.ring.consume_raw_n(AT_ONCE);
        if consumed < 0 {
            let cause = std::io::Error::from_raw_os_error(-consumed);
            return Err(failed("trace_events")(cause.into()));
        }
        let mut arrived = self.arrived.borrow_mut();
        arrived.drain(..).filter_map(event).for_each(each);
        Ok(())
    }

    /// Ends: nothing happens any more.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// How many events were lost: the buffer was full, or vCPUs entered and left
    /// their guest more often than is told.
    pub fn lost(&self) -> u64 {
        let map = self.object.maps().find(|map| map.name() == "trace_lost");
        let counts = map.and_then(|map| map.lookup_percpu(&[0; 4], MapFlags::ANY).ok().flatten());
        let counts = counts.unwrap_or_default();
        counts
            .iter()
            .filter_map(|bytes| u64::read_from_bytes(bytes).ok())
            .sum()
    }

    fn attach_guest(&mut self) -> Result<(), libbpf_rs::Error> {
        let [of_3, of_2] = EXIT.map(|name| [name]);
        self.attach_all(&of_3).or_else(|_| self.attach_all(&of_2))?;
        self.attach_all(&GUEST)
    }

    fn attach_all(&mut self, names: &[&str]) -> Result<(), libbpf_rs::Error> {
        let links: Result<Vec<Link>, _> = names
            .iter()
            .map(|name| load::attach(&self.object, name))
            .collect();
        self.links.extend(links?);
        Ok(())
    }

    fn update(&self, name: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.ok_or(Error::Missing(name))?
            .update(key, value, MapFlags::ANY)
            .map_err(failed(name))
    }
}

fn open(with_throttle: bool) -> Result<Object, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut program in open.progs_mut() {
        let is_throttle = THROTTLE.iter().any(|name| program.name() == *name);
        program.set_autoload(with_throttle || !is_throttle);
    }
    open.load()
}

fn ring(
    object: &Object,
    arrived: &Rc<RefCell<Vec<TraceEvent>>>,
) -> Result<RingBuffer<'static>, Error> {
    const NAME: &str = "trace_events";
    let map = object.maps().find(|map| map.name() == NAME);
    let map = map.ok_or(Error::Missing(NAME))?;
    let arrived = Rc::clone(arrived);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&map, move |bytes| {
            if let Ok(event) = TraceEvent::read_from_bytes(bytes) {
                arrived.borrow_mut().push(event);
            }
            0
        })
        .map_err(failed(NAME))?;
    builder.build().map_err(failed(NAME))
}

fn no_throttle(reason: &str) -> Lack {
    Lack {
        what: "when quotas hold threads back, which then are runnable",
        reason: reason.to_owned(),
    }
}

fn failed(map: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
    move |cause| Error::Map { map, cause }
}
