//! Loaders: libraries that load objects into the kernel.
//!
//! A loader receives a compiled object and returns descriptors of its maps and programs;
//! everything else is the same for each loader ([`crate::sys`]). Each loader's module
//! makes the changes to the object that only it needs.

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
compile_error!("no loader selected: build with the feature libbpf, aya or both");

/// A library that loads objects.
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
    /// The loaders of this build; the first is the default.
    pub const ALL: &[Self] = &[
        #[cfg(feature = "libbpf")]
        Self::Libbpf,
        #[cfg(feature = "aya")]
        Self::Aya,
    ];

    /// The name that is shown to users.
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "libbpf")]
            Self::Libbpf => "libbpf",
            #[cfg(feature = "aya")]
            Self::Aya => "aya",
        }
    }

    /// The limitation of programs that it loads, if any.
    pub const fn lacks(self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "libbpf")]
            Self::Libbpf => None,
            #[cfg(feature = "aya")]
            Self::Aya => {
                Some("aya does not support kernel functions (kfuncs); each pass takes longer")
            }
        }
    }

    /// Whether programs can read structures that only a kernel module has type
    /// information for.
    pub(crate) const fn reads_modules(self) -> bool {
        match self {
            #[cfg(feature = "libbpf")]
            Self::Libbpf => true,
            #[cfg(feature = "aya")]
            Self::Aya => false,
        }
    }

    /// Loads the wanted parts of an object.
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
            format!(
                "loader not available in this build (available: {})",
                names.join(", ")
            )
        })
    }
}

/// The wanted parts of an object.
pub(crate) struct Wanted<'w> {
    pub(crate) object: &'w [u8],
    /// The symbol name and the value of a constant of its programs.
    pub(crate) constant: Option<(&'static str, &'w [u8])>,
    /// Maps that none of the programs uses.
    pub(crate) unused_maps: &'w [&'static str],
    /// A map and its number of entries on this host.
    pub(crate) max_entries: Option<(&'static str, u32)>,
    /// Paths of pinned maps to use, by name.
    pub(crate) pinned: &'w BTreeMap<String, PathBuf>,
    /// The programs to load, by name.
    pub(crate) programs: &'w BTreeMap<&'static str, &'w Program>,
}

/// Returns the last line of the verifier's log before its statistics
/// (`print_verification_stats`, `kernel/bpf/verifier.c`).
fn reason(log: &str) -> Option<&str> {
    const COSTS: [&str; 3] = ["verification time ", "stack depth ", "processed "];
    let is_cost = |line: &str| COSTS.iter().any(|cost| line.starts_with(cost));
    log.lines().rfind(|line| !is_cost(line))
}

/// The descriptors of a loaded object.
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
