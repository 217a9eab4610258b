//! Who loads objects into the kernel.
//!
//! A loader is given a compiled object and gives descriptors of its maps and programs;
//! all that is done with these is the same for each ([`crate::sys`]). What an object
//! must be changed in for one of them stands in its own file.

#[cfg(feature = "aya")]
mod aya;
#[cfg(feature = "libbpf")]
mod libbpf;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use crate::object::Program;

#[cfg(not(any(feature = "aya", feature = "libbpf")))]
compile_error!("no loader: build with the feature libbpf, aya or both");

/// Who loads objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loader {
    /// libbpf, in C.
    #[cfg(feature = "libbpf")]
    Libbpf,
    /// aya, in Rust.
    #[cfg(feature = "aya")]
    Aya,
}

impl Loader {
    /// Those that are built in; the first is the default.
    pub const ALL: &[Self] = &[
        #[cfg(feature = "libbpf")]
        Self::Libbpf,
        #[cfg(feature = "aya")]
        Self::Aya,
    ];

    /// The name as shown.
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "libbpf")]
            Self::Libbpf => "libbpf",
            #[cfg(feature = "aya")]
            Self::Aya => "aya",
        }
    }

    /// What programs do without where it loads them, if that is anything.
    pub const fn lacks(self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "libbpf")]
            Self::Libbpf => None,
            #[cfg(feature = "aya")]
            Self::Aya => Some("aya calls no function of the kernel; each pass takes longer"),
        }
    }

    /// Whether programs can read what only a module of the kernel has types of.
    pub(crate) const fn reads_modules(self) -> bool {
        match self {
            #[cfg(feature = "libbpf")]
            Self::Libbpf => true,
            #[cfg(feature = "aya")]
            Self::Aya => false,
        }
    }

    /// Loads what is wanted of an object.
    pub(crate) fn load(self, wanted: &Wanted<'_>) -> io::Result<Loaded> {
        match self {
            #[cfg(feature = "libbpf")]
            Self::Libbpf => libbpf::load(wanted),
            #[cfg(feature = "aya")]
            Self::Aya => aya::load(wanted),
        }
    }
}

impl Default for Loader {
    fn default() -> Self {
        #[cfg(feature = "libbpf")]
        return Self::Libbpf;
        #[cfg(not(feature = "libbpf"))]
        return Self::Aya;
    }
}

impl fmt::Display for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Loader {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|loader| loader.name() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|loader| loader.name()).collect();
            format!("no loader of this build; it has {}", names.join(", "))
        })
    }
}

/// What is wanted of an object.
pub(crate) struct Wanted<'w> {
    pub(crate) object: &'w [u8],
    /// A constant of its programs by the name of its symbol, and all of its value.
    pub(crate) constant: Option<(&'static str, &'w [u8])>,
    /// Maps that none of the programs needs as they are told to be.
    pub(crate) unused_maps: &'w [&'static str],
    /// A map that is to have another number of entries than the object says.
    pub(crate) max_entries: Option<(&'static str, u32)>,
    /// Maps that are there already, by name.
    pub(crate) pinned: &'w BTreeMap<String, PathBuf>,
    /// The programs to load, by name.
    pub(crate) programs: &'w BTreeMap<&'static str, &'w Program>,
}

/// The last line of the verifier before what it has cost
/// (`print_verification_stats`, `kernel/bpf/verifier.c`).
fn reason(log: &str) -> Option<&str> {
    const COSTS: [&str; 3] = ["verification time ", "stack depth ", "processed "];
    let is_cost = |line: &str| COSTS.iter().any(|cost| line.starts_with(cost));
    log.lines().rfind(|line| !is_cost(line))
}

/// What is loaded.
pub(crate) struct Loaded {
    pub(crate) maps: BTreeMap<String, OwnedFd>,
    pub(crate) programs: BTreeMap<String, OwnedFd>,
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn reason_is_the_line_before_the_costs() {
        let refused = "5: (85) call pc+6\nR1 type=scalar expected=fp\n";
        let cost = "verification time 49 usec\nstack depth 40+8\n\
                    processed 9 insns (limit 1000000) max_states_per_insn 0";
        let said = Some("R1 type=scalar expected=fp");
        assert_eq!(reason(&format!("{refused}{cost}")), said);
        assert_eq!(reason(refused), said);
        assert_eq!(reason(cost), None);
        assert_eq!(reason(""), None);
    }
}
