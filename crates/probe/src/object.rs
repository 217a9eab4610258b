//! The maps and programs of a compiled object, for every loader.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::io;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::Error;
use crate::btf::{Btf, Index, Kind, Type};
use crate::sys::AttachPoint;

/// A compiled object.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The maps with a definition in the object, by name.
    pub(crate) maps: BTreeMap<String, MapDefinition>,
    /// The programs by name.
    pub(crate) programs: BTreeMap<String, Program>,
}

/// The definition of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapDefinition {
    /// `enum bpf_map_type`.
    pub(crate) kind: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
    /// Key and value: all fields with their names, offsets and types, down to integers.
    /// If the meaning of a field changes, it must be renamed, so that this text changes.
    pub(crate) layout: String,
}

/// The attach point of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// Program type: the part of its section name before the `/`.
    pub(crate) kind: String,
    /// Attach target: the part after the `/`; empty if the program is run directly.
    pub(crate) target: String,
}

impl Compiled {
    /// [`Error::Missing`] if it lacks a part that each object has.
    pub(crate) fn read(object: &[u8]) -> Result<Self, Error> {
        let elf = ElfFile64::<object::Endianness>::parse(object);
        let elf = elf.map_err(|_| Error::Missing("ELF header"))?;
        let programs = elf.symbols().filter_map(|symbol| {
            let section = elf.section_by_index(symbol.section_index()?).ok()?;
            let section = section.name().ok()?;
            let (kind, target) = section.split_once('/').unwrap_or((section, ""));
            // `.text` has the programs' functions.
            let is_program =
                symbol.kind() == SymbolKind::Text && symbol.is_global() && section != ".text";
            is_program.then_some(())?;
            let program = Program {
                kind: kind.to_owned(),
                target: target.to_owned(),
            };
            Some((symbol.name().ok()?.to_owned(), program))
        });
        let types = elf.section_by_name(".BTF");
        let types = types.and_then(|section| section.data().ok());
        let btf = types.and_then(Btf::parse);
        let btf = btf.ok_or(Error::Missing("type information"))?;
        let section = btf.find(Kind::DataSec, ".maps");
        let section = section.ok_or(Error::Missing(".maps"))?;
        let types = Index::of(&btf);
        let maps = section.variables().filter_map(|variable| {
            let map = types.get(variable)?;
            let definition = types.skip_names(map.size_or_id)?;
            Some((map.name().to_owned(), map_of(&types, definition)?))
        });
        Ok(Self {
            programs: programs.collect(),
            maps: maps.collect(),
        })
    }

    /// Returns the programs of these names.
    ///
    /// # Errors
    /// One of them is missing.
    pub(crate) fn named(
        &self,
        names: impl Iterator<Item = &'static str>,
    ) -> io::Result<BTreeMap<&'static str, &Program>> {
        let found = names.map(|name| {
            let program = self.programs.get(name);
            let program =
                program.ok_or_else(|| format!("program {name} not found in the BPF object"));
            Ok((name, program.map_err(io::Error::other)?))
        });
        found.collect()
    }
}

/// All properties of the map. The names on bpffs are fingerprints of this text, so every
/// build must format it identically.
impl fmt::Display for MapDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            key_size,
            value_size,
            max_entries,
            flags,
            layout,
        } = self;
        write!(
            f,
            "kind:{kind};key:{key_size};value:{value_size};entries:{max_entries};flags:{flags};{layout}"
        )
    }
}

impl Program {
    /// Returns the attach point.
    pub(crate) fn attach_point(&self) -> AttachPoint {
        match self.kind.as_str() {
            "iter" => AttachPoint::Iterator,
            "raw_tp" => AttachPoint::Raw(CString::new(self.target.as_str()).unwrap_or_default()),
            _ => AttachPoint::Typed,
        }
    }
}

/// Decodes a map's definition, which encodes numbers as lengths of arrays that it points
/// to (`__uint`, `tools/lib/bpf/bpf_helpers.h`), and key and value as types that it
/// points to (`__type`).
fn map_of(types: &Index<'_>, definition: Type<'_>) -> Option<MapDefinition> {
    let member = |name| {
        let mut members = definition.members();
        let member = members.find(|member| member.name == name)?;
        types.pointed(member.type_id)
    };
    let number = |name| member(name)?.array().map(|(_, number)| number);
    let size = |name| member(name).and_then(|one| types.size(one));
    let described = |name| {
        let described = member(name).map(|one| types.describe(one));
        described.map_or_else(String::new, |words| format!("{name}:{words};"))
    };
    Some(MapDefinition {
        kind: number("type")?,
        key_size: size("key").or_else(|| number("key_size")).unwrap_or(0),
        value_size: size("value").or_else(|| number("value_size")).unwrap_or(0),
        max_entries: number("max_entries").unwrap_or(0),
        flags: number("map_flags").unwrap_or(0),
        layout: ["key", "value"].map(described).concat(),
    })
}

/// Hash of a text (FNV-1a): the same in every build.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    bytes.iter().fold(OFFSET, step)
}

#[cfg(test)]
mod tests {
    use object::read::elf::ElfFile64;
    use object::{
        Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionKind,
    };

    use super::{Compiled, fingerprint};
    use crate::OBJECT;

    /// No loader reads these sections, which are half of what clang writes.
    #[test]
    fn objects_have_neither_dwarf_nor_relocations_of_btf() {
        for object in [OBJECT, crate::trace::OBJECT] {
            let elf = ElfFile64::<object::Endianness>::parse(object).expect("an ELF file");
            let names = elf.sections().filter_map(|section| section.name().ok());
            let names: Vec<&str> = names.collect();
            assert!(names.contains(&".BTF.ext"), "{names:?}");
            let is_unread = |name: &&&str| name.contains(".debug") || name.starts_with(".rel.BTF");
            let unread: Vec<_> = names.iter().filter(is_unread).collect();
            assert!(unread.is_empty(), "{unread:?}");
        }
    }

    #[test]
    fn objects_do_not_depend_on_the_path_of_the_checkout() {
        let path = env!("CARGO_MANIFEST_DIR").as_bytes();
        let root = path.strip_suffix(b"/crates/probe").expect("its folder");
        for object in [OBJECT, crate::trace::OBJECT] {
            assert!(!object.windows(root.len()).any(|bytes| bytes == root));
        }
    }

    #[test]
    fn each_map_has_the_layout_of_its_types() {
        let maps = Compiled::read(OBJECT).expect("it is one").maps;
        assert_eq!(
            maps["vm_mms"].layout,
            "key:u64;value:{id@0:u64,tgid@64:u32,pad@96:u32,}16;"
        );
        assert_eq!(maps["drops"].layout, "key:u32;value:u64;");
        let layout = &maps["retired"].layout;
        assert!(layout.contains("leader_comm@"), "{layout}");
        assert!(maps["ram"].layout.contains("[16]"), "{maps:#?}");
        assert!(maps.values().all(|map| map.layout.len() > 10), "{maps:#?}");
    }

    #[test]
    fn each_map_has_its_numbers() {
        let maps = Compiled::read(OBJECT).expect("it is one").maps;
        let drops = &maps["drops"];
        // BPF_MAP_TYPE_PERCPU_ARRAY
        assert_eq!((drops.kind, drops.key_size, drops.value_size), (6, 4, 8));
        assert_eq!(drops.max_entries, virtlens_abi::map::DROP_REASONS);
        // BPF_MAP_TYPE_TASK_STORAGE, BPF_F_NO_PREALLOC
        assert_eq!((maps["marks"].kind, maps["marks"].flags), (29, 1));
        assert_eq!(
            drops.to_string(),
            "kind:6;key:4;value:8;entries:15;flags:0;key:u32;value:u64;"
        );
    }

    #[test]
    fn each_program_has_its_place() {
        let programs = Compiled::read(OBJECT).expect("it is one").programs;
        let place = |name: &str| (programs[name].kind.as_str(), programs[name].target.as_str());
        assert_eq!(place("sample_tasks"), ("iter", "task"));
        assert_eq!(place("walk_tasks"), ("syscall", ""));
        assert_eq!(place("on_exit"), ("tp_btf", "sched_process_exit"));
        assert_eq!(place("on_falloc_ret"), ("fexit", "vfs_fallocate"));
        let others = ["bpf_rdonly_cast", "sample_next"];
        assert!(others.iter().all(|name| !programs.contains_key(*name)));
    }

    /// In a map that is not preallocated each new element is an allocation, which a
    /// program must not make with a run queue locked.
    #[test]
    fn maps_that_allocate_are_only_read_by_programs() {
        // BPF_F_NO_PREALLOC, BPF_MAP_TYPE_HASH, BPF_FUNC_map_update_elem
        const NO_PREALLOC: u32 = 1;
        const HASH: u32 = 1;
        const UPDATE: [u8; 8] = [0x85, 0, 0, 0, 2, 0, 0, 0];
        let maps = Compiled::read(OBJECT).expect("it is one").maps;
        let allocates = |name: &str| {
            let map = maps.get(name);
            map.is_some_and(|map| map.kind == HASH && map.flags & NO_PREALLOC != 0)
        };
        assert!(allocates("walls") && allocates("book"));
        let elf = ElfFile64::<object::Endianness>::parse(OBJECT).expect("an object");
        let mut uses = 0;
        for section in elf.sections().filter(|one| one.kind() == SectionKind::Text) {
            let code = section.data().expect("code");
            for (offset, relocation) in section.relocations() {
                let RelocationTarget::Symbol(symbol) = relocation.target() else {
                    continue;
                };
                let map = elf.symbol_by_index(symbol).expect("a symbol");
                let map = map.name().expect("a name");
                if allocates(map) {
                    uses += 1;
                    let rest = &code[usize::try_from(offset).expect("a place")..];
                    // BPF_JMP | BPF_CALL
                    let call = rest.chunks_exact(8).find(|one| one[0] == 0x85);
                    assert_ne!(call.expect("a helper takes it"), UPDATE, "{map}");
                }
            }
        }
        assert!(uses > 0, "a program looks up walls");
    }

    #[test]
    fn different_texts_have_different_fingerprints() {
        // Test vectors of the algorithm's authors.
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
