//! What the entries of each map look like, told from the object's own type
//! information: maps that an agent left behind are only read by one whose maps are
//! the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use libbpf_rs::btf::types::{
    Array, Composite, DataSec, Int, IntEncoding, MemberAttr, Ptr, Struct, Var,
};
use libbpf_rs::btf::{Btf, BtfType, HasSize, ReferencesType};

use crate::Error;

/// Key and value of each map, by the map's name: all fields with their names,
/// places and types, down to integers. A field whose meaning changes is to be
/// renamed, and then this differs.
pub(crate) fn of_maps(object: &[u8]) -> Result<BTreeMap<String, String>, Error> {
    let btf = Btf::from_raw("virtlens", object).map_err(Error::Load)?;
    let btf = btf.ok_or(Error::Missing("type information"))?;
    let section: DataSec<'_> = btf.type_by_name(".maps").ok_or(Error::Missing(".maps"))?;
    let maps = section.iter().filter_map(|entry| {
        let map: Var<'_> = btf.type_by_id(entry.ty)?;
        let name = map.name()?.to_string_lossy().into_owned();
        let definition = Struct::try_from(map.next_type()?).ok()?;
        Some((name, of_map(&btf, &definition)))
    });
    Ok(maps.collect())
}

/// A number for a text (FNV-1a): the same in every build.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    bytes.iter().fold(OFFSET, step)
}

/// A map's definition points to its key and to its value (`__type`).
fn of_map(btf: &Btf<'_>, definition: &Struct<'_>) -> String {
    let mut text = String::new();
    for member in definition.iter() {
        let name = member.name.map(|name| name.to_string_lossy());
        let Some(name @ ("key" | "value")) = name.as_deref() else {
            continue;
        };
        let pointer: Option<Ptr<'_>> = btf.type_by_id(member.ty);
        write!(text, "{name}:").expect("a String takes everything");
        if let Some(pointed) = pointer.map(|pointer| pointer.referenced_type()) {
            describe(btf, pointed, &mut text);
        }
        text.push(';');
    }
    text
}

fn describe(btf: &Btf<'_>, one: BtfType<'_>, text: &mut String) {
    let one = one.skip_mods_and_typedefs();
    let put = if let Ok(int) = Int::try_from(one) {
        let kind = match int.encoding {
            IntEncoding::None => 'u',
            IntEncoding::Signed => 'i',
            IntEncoding::Char => 'c',
            IntEncoding::Bool => 'b',
        };
        write!(text, "{kind}{}", int.bits)
    } else if let Ok(array) = Array::try_from(one) {
        describe(btf, array.contained_type(), text);
        write!(text, "[{}]", array.capacity())
    } else if let Ok(composite) = Composite::try_from(one) {
        write!(text, "{{").expect("a String takes everything");
        for member in composite.iter() {
            let (MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. }) = member.attr;
            let name = member.name.unwrap_or_default().to_string_lossy();
            write!(text, "{name}@{offset}:").expect("a String takes everything");
            if let Some(field) = btf.type_by_id(member.ty) {
                describe(btf, field, text);
            }
            text.push(',');
        }
        write!(text, "}}{}", composite.size())
    } else {
        write!(text, "{:?}", one.kind())
    };
    put.expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use super::{fingerprint, of_maps};
    use crate::OBJECT;

    #[test]
    fn each_map_has_the_layout_of_its_types() {
        let maps = of_maps(OBJECT).expect("it has type information");
        assert_eq!(
            maps["vm_mms"],
            "key:u64;value:{id@0:u64,tgid@64:u32,pad@96:u32,}16;"
        );
        assert_eq!(maps["drops"], "key:u32;value:u64;");
        assert!(
            maps["retired"].contains("leader_comm@"),
            "{}",
            maps["retired"]
        );
        assert!(maps["ram"].contains("[16]"), "{}", maps["ram"]);
        assert!(maps.values().all(|layout| layout.len() > 10), "{maps:#?}");
    }

    #[test]
    fn a_fingerprint_tells_texts_apart() {
        // The two vectors are of the algorithm's authors.
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
