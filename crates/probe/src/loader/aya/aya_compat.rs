//! Removes from an object the parts that aya cannot load, in place: each replacement has
//! the same length.
//!
//! aya 0.14 does not support kernel functions (`__ksym`); 0.16 does, but requires a newer
//! compiler than this project's. The kernel functions here are weak, and the programs
//! test for them before a call. A kernel without them never reaches the call, so the
//! object works without it. aya also creates all maps, including maps of a type that this
//! kernel does not have.

use std::io;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

use crate::btf::{Btf, Index, Kind, Member, Type};

/// `BPF_JMP | BPF_CALL`, `include/uapi/linux/bpf.h`.
const CALL: u8 = 0x85;
/// A helper id that does not exist: the verifier never reaches this call.
const NO_HELPER: i32 = i32::MAX;
/// `BPF_MAP_TYPE_HASH`, which every kernel has.
const HASH: u32 = 1;
/// The section whose variables are kernel symbols.
const KERNEL_SYMBOLS: &str = ".ksyms";

/// Returns a copy of `object` for aya, in which `unused_maps` have a type that every
/// kernel can create.
pub(super) fn convert(object: &[u8], unused_maps: &[&str]) -> io::Result<Vec<u8>> {
    let mut converted = object.to_vec();
    let elf = ElfFile64::<Endianness>::parse(object).map_err(io::Error::other)?;
    drop_calls(&elf, &mut converted)?;
    rename(&mut converted);
    let section = elf.section_by_name(".BTF").ok_or_else(broken)?;
    let (begin, _) = section.file_range().ok_or_else(broken)?;
    let types = section.data().map_err(io::Error::other)?;
    let mut types = Types {
        begin: usize::try_from(begin).map_err(io::Error::other)?,
        btf: Btf::parse(types).ok_or_else(broken)?,
        converted: &mut converted,
    };
    types.drop_kernel_symbols()?;
    for map in unused_maps {
        types.make_hash(map)?;
    }
    Ok(converted)
}

/// Replaces calls of kernel functions by calls of [`NO_HELPER`]. Loads of their addresses
/// read 0, which aya does not change.
fn drop_calls(elf: &ElfFile64<'_, Endianness>, converted: &mut [u8]) -> io::Result<()> {
    for section in elf.sections() {
        let Some((begin, _)) = section.file_range() else {
            continue;
        };
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                continue;
            };
            let symbol = elf.symbol_by_index(symbol).map_err(io::Error::other)?;
            if !symbol.is_undefined() {
                continue;
            }
            let name = symbol.name().unwrap_or_default();
            if !symbol.is_weak() {
                let why = format!("requires the kernel symbol {name}, which aya does not support");
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            let place = usize::try_from(begin + offset).map_err(io::Error::other)?;
            let instruction = converted
                .get_mut(place..)
                .and_then(<[u8]>::first_chunk_mut::<8>);
            let instruction = instruction.ok_or_else(broken)?;
            if instruction[0] == CALL {
                let [a, b, c, d] = NO_HELPER.to_ne_bytes();
                *instruction = [CALL, 0, 0, 0, a, b, c, d];
            }
        }
    }
    Ok(())
}

/// Renames the section `syscall`: aya does not know this program type, and rejects an
/// object with an unknown section type. Those programs are not loaded with aya.
fn rename(converted: &mut [u8]) {
    const SECTION: &[u8] = b"syscall\0";
    const KNOWN: &[u8] = b"iter/no\0";
    // The section name, the name of its relocations after ".rel", and its type
    // information.
    for at in 0..converted.len().saturating_sub(SECTION.len()) {
        if let Some(name) = converted.get_mut(at..at + SECTION.len())
            && name == SECTION
        {
            name.copy_from_slice(KNOWN);
        }
    }
}

/// The object's type information, and its offset.
struct Types<'d> {
    begin: usize,
    btf: Btf<'d>,
    converted: &'d mut [u8],
}

impl Types<'_> {
    /// Makes the type information of kernel symbols acceptable to the kernel, which
    /// allows only variables in sections, and no undefined functions except its own: the
    /// section becomes a structure with an integer, and its functions become static.
    fn drop_kernel_symbols(&mut self) -> io::Result<()> {
        let Some(section) = self.btf.find(Kind::DataSec, KERNEL_SYMBOLS) else {
            return Ok(());
        };
        let mut types = self.btf.types();
        let integer = types.find(|one| one.is(Kind::Int) && one.size_or_id == 4);
        let integer = integer.ok_or_else(broken)?;
        let symbols: Vec<u32> = section.variables().collect();
        let functions = self.btf.types().filter(|one| symbols.contains(&one.id));
        for function in functions.collect::<Vec<_>>() {
            self.put(&function, 1, info(Kind::Func, 0))?;
        }
        // Its name starts with a dot, which the kernel rejects for a structure.
        self.put(&section, 0, 0)?;
        self.put(&section, 1, info(Kind::Struct, symbols.len()))?;
        self.put(&section, 2, integer.size_or_id)?;
        for entry in 0..symbols.len() {
            for (word, value) in [0, integer.id, 0].into_iter().enumerate() {
                self.put(&section, 3 + 3 * entry + word, value)?;
            }
        }
        Ok(())
    }

    /// Changes the type of `map` to a hash: a map's type is the length of an array that
    /// its definition points to.
    fn make_hash(&mut self, map: &str) -> io::Result<()> {
        let types = Index::of(&self.btf);
        let variable = self.btf.find(Kind::Var, map).ok_or_else(broken)?;
        let definition = types.skip_names(variable.size_or_id).ok_or_else(broken)?;
        let mut members = definition.members();
        let kind = members.find(|member| member.name == "type");
        let array = kind.and_then(|kind| types.pointed(kind.type_id));
        let array = array
            .filter(|array| array.is(Kind::Array))
            .ok_or_else(broken)?;
        // Maps of one type share the array. If another map that is needed has this type,
        // the kernel supports it.
        let section = self.btf.find(Kind::DataSec, ".maps").ok_or_else(broken)?;
        let mut others = section.variables().filter(|other| *other != variable.id);
        let is_shared = others.any(|other| {
            let definition = types
                .get(other)
                .and_then(|map| types.skip_names(map.size_or_id));
            let of_array = |member: Member<'_>| types.pointed(member.type_id).map(|one| one.id);
            definition.is_some_and(|of| of.members().any(|one| of_array(one) == Some(array.id)))
        });
        if is_shared {
            return Ok(());
        }
        self.put(&array, 5, HASH)
    }

    /// Writes one word of a type.
    fn put(&mut self, one: &Type<'_>, word: usize, value: u32) -> io::Result<()> {
        let place = self.begin + self.btf.begin() + one.offset + 4 * word;
        let bytes = self
            .converted
            .get_mut(place..)
            .and_then(<[u8]>::first_chunk_mut);
        *bytes.ok_or_else(broken)? = value.to_ne_bytes();
        Ok(())
    }
}

/// `struct btf_type.info`: a kind and a number of entries.
fn info(kind: Kind, entries: usize) -> u32 {
    (kind as u32) << 24 | u32::try_from(entries).unwrap_or(0)
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the BPF object is invalid")
}

#[cfg(test)]
mod tests {
    use object::read::elf::ElfFile64;
    use object::{Endianness, Object as _, ObjectSection as _};

    use super::{Btf, HASH, Kind, convert};
    use crate::OBJECT;
    use crate::object::Compiled;

    fn section<'d>(object: &'d [u8], name: &str) -> &'d [u8] {
        let elf = ElfFile64::<Endianness>::parse(object).expect("an object");
        let section = elf.section_by_name(name).expect("it is there");
        section.data().expect("it has data")
    }

    #[test]
    fn nothing_of_the_kernels_is_left() {
        let types = Btf::parse(section(OBJECT, ".BTF")).expect("types");
        assert!(
            types.find(Kind::DataSec, ".ksyms").is_some(),
            "it was there"
        );
        let converted = convert(OBJECT, &[]).expect("it can be");
        assert_eq!(converted.len(), OBJECT.len());
        let types = Btf::parse(section(&converted, ".BTF")).expect("types");
        assert!(types.find(Kind::DataSec, ".ksyms").is_none());
        assert!(
            ElfFile64::<Endianness>::parse(&*converted).is_ok_and(|elf| {
                elf.section_by_name("syscall").is_none() && elf.section_by_name("iter/no").is_some()
            })
        );
        // BTF_FUNC_EXTERN is the third linkage.
        let functions = types.types().filter(|one| one.is(Kind::Func));
        assert!(functions.into_iter().all(|one| one.vlen() < 2));
        let (words, _) = converted.as_chunks::<8>();
        let dropped = words
            .iter()
            .filter(|code| **code == *b"\x85\0\0\0\xff\xff\xff\x7f");
        assert!(dropped.count() > 10);
    }

    #[test]
    fn a_map_that_is_not_used_becomes_a_hash_and_no_other_changes() {
        let converted = convert(OBJECT, &["marks"]).expect("it can be");
        let before = Compiled::read(OBJECT).expect("an object").maps;
        let after = Compiled::read(&converted).expect("an object").maps;
        assert_ne!(before["marks"].kind, HASH);
        assert_eq!(after["marks"].kind, HASH);
        let changed = before.iter().filter(|(name, map)| after[*name] != **map);
        assert_eq!(changed.map(|(name, _)| name).collect::<Vec<_>>(), ["marks"]);
    }

    #[test]
    fn a_kind_that_another_map_has_stays() {
        let converted = convert(OBJECT, &["marks_hash"]).expect("it can be");
        let before = Compiled::read(OBJECT).expect("an object").maps;
        assert_eq!(Compiled::read(&converted).expect("an object").maps, before);
    }

    #[test]
    fn invalid_object_is_refused() {
        assert!(convert(b"no object", &[]).is_err());
        assert!(convert(OBJECT, &["no such map"]).is_err());
    }
}
