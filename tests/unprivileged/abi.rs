//! `bpf/abi.h` and the headers `bpf/*_abi.h` have the same layout as their mirrors in
//! crates/abi.

use std::path::Path;
use std::process::Command;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::HasSize;
use libbpf_rs::btf::types::{Enum, MemberAttr, Struct};
use virtlens_abi::{Field, Layout};

/// A header and its mirror.
struct Contract {
    header: &'static str,
    structs: &'static [Layout],
    enumerators: &'static [(&'static str, u32)],
}

const CONTRACTS: [Contract; 5] = [
    Contract {
        header: "abi.h",
        structs: virtlens_abi::STRUCTS,
        enumerators: &[],
    },
    Contract {
        header: "record_abi.h",
        structs: virtlens_abi::record::STRUCTS,
        enumerators: virtlens_abi::record::ENUMERATORS,
    },
    Contract {
        header: "map_abi.h",
        structs: virtlens_abi::map::STRUCTS,
        enumerators: virtlens_abi::map::ENUMERATORS,
    },
    Contract {
        header: "memory_abi.h",
        structs: virtlens_abi::memory::STRUCTS,
        enumerators: virtlens_abi::memory::ENUMERATORS,
    },
    Contract {
        header: "trace_abi.h",
        structs: virtlens_abi::trace::STRUCTS,
        enumerators: virtlens_abi::trace::ENUMERATORS,
    },
];

impl Contract {
    fn text(&self) -> String {
        std::fs::read_to_string(bpf().join(self.header)).expect("the header is there")
    }

    /// BTF of the header compiled alone, which has all of its structs and enums.
    fn compiled(&self) -> Btf<'static> {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let text = self.text();
        let anchors = declared(&text)
            .into_iter()
            .map(|(kind, name)| format!("{kind} {name} a_{name};"));
        let includes = ["kernel.bpf.h", self.header].map(|name| format!("#include \"{name}\""));
        let source = includes
            .into_iter()
            .chain(anchors)
            .collect::<Vec<_>>()
            .join("\n");
        let (file, object) = (folder.path().join("abi.c"), folder.path().join("abi.o"));
        std::fs::write(&file, source).expect("there is room for a file");
        let status = Command::new("clang")
            .args(["-target", "bpf", "-g", "-O2", "-c"])
            .arg("-I")
            .arg(bpf())
            .arg(&file)
            .arg("-o")
            .arg(&object)
            .status();
        assert!(
            status
                .expect("clang is installed, as for the build")
                .success()
        );
        Btf::from_path(object).expect("clang wrote type information")
    }
}

fn bpf() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf")
}

/// The structs and enums that the header declares: ("struct", "owner") …
fn declared(header: &str) -> Vec<(&str, &str)> {
    header
        .lines()
        .filter_map(|line| line.strip_suffix(" {"))
        .filter_map(|line| line.split_once(' '))
        .filter(|(kind, _)| matches!(*kind, "struct" | "enum"))
        .collect()
}

/// Names, offsets and sizes. There is no implicit padding, so a field ends where the next
/// begins.
fn of_header(found: &Struct<'_>) -> Vec<(String, usize, usize)> {
    let offsets: Vec<usize> = found
        .iter()
        .map(|member| match member.attr {
            MemberAttr::Normal { offset } => offset as usize / 8,
            MemberAttr::BitField { .. } => panic!("the contract has no bit fields"),
        })
        .collect();
    let ends = offsets[1..].iter().copied().chain([found.size()]);
    found
        .iter()
        .zip(offsets.iter().zip(ends))
        .map(|(member, (offset, end))| {
            let name = member
                .name
                .expect("it has one")
                .to_string_lossy()
                .into_owned();
            (name, *offset, end - offset)
        })
        .collect()
}

fn owned(fields: &[Field]) -> Vec<(String, usize, usize)> {
    fields
        .iter()
        .map(|(name, offset, size)| ((*name).to_owned(), *offset, *size))
        .collect()
}

#[test]
fn rust_mirror_has_every_struct_of_abi() {
    for contract in CONTRACTS {
        let btf = contract.compiled();
        let text = contract.text();
        let names: Vec<&str> = declared(&text)
            .into_iter()
            .filter(|(kind, _)| *kind == "struct")
            .map(|(_, n)| n)
            .collect();
        let layouts = contract.structs.iter();
        let mirrored: Vec<&str> = layouts.clone().map(|layout| layout.name).collect();
        let header = contract.header;
        assert_eq!(mirrored, names, "the structs of bpf/{header}, in its order");
        for Layout { name, size, fields } in layouts {
            let found: Struct<'_> = btf
                .type_by_name(name)
                .unwrap_or_else(|| panic!("no {name}"));
            assert_eq!(of_header(&found), owned(fields), "struct {name}");
            assert_eq!(*size, found.size(), "struct {name}");
        }
    }
}

#[test]
fn rust_mirror_has_every_enumerator_of_abi() {
    for contract in CONTRACTS {
        let btf = contract.compiled();
        let text = contract.text();
        let enums = declared(&text)
            .into_iter()
            .filter(|(kind, _)| *kind == "enum");
        let of_header: Vec<(String, i64)> = enums
            .flat_map(|(_, name)| {
                let found: Enum<'_> = btf
                    .type_by_name(name)
                    .unwrap_or_else(|| panic!("no {name}"));
                found
                    .iter()
                    .map(|one| {
                        let name = one.name.expect("it has one").to_string_lossy();
                        (name.into_owned(), one.value)
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        let mirrored: Vec<(String, i64)> = contract
            .enumerators
            .iter()
            .map(|(name, value)| ((*name).to_owned(), i64::from(*value)))
            .collect();
        assert_eq!(mirrored, of_header, "bpf/{}", contract.header);
    }
}
