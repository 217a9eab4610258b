//! Compiles the objects of `bpf/` once; every loader embeds the same ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use object::build::elf::{Builder, SectionData};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let sources = root.join("../../bpf");
    let built = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));

    for entry in fs::read_dir(&sources)
        .expect("the bpf folder is readable")
        .flatten()
    {
        println!("cargo:rerun-if-changed={}", entry.path().display());
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    for name in ["virtlens", "trace"] {
        let object = built.join(format!("{name}.bpf.o"));
        compile(&sources, name, &object);
        strip(&object);
    }
}

/// Removes the DWARF sections, and the relocations of type information: no loader reads them,
/// they are half of the object, and the agent contains the object. BTF keeps the line numbers
/// that the verifier prints.
fn strip(path: &Path) {
    let bytes = fs::read(path).expect("the compiled object is readable");
    let mut object = Builder::read(&*bytes).expect("clang writes valid ELF");
    let unread = [b".debug".as_slice(), b".rel.debug", b".rel.BTF"];
    for section in &mut object.sections {
        section.delete = unread.iter().any(|name| section.name.starts_with(name));
    }
    // clang stores section names in the table of symbol names; the writer needs a table for
    // each.
    let names = object.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = object::elf::SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    object.write(&mut stripped).expect("the object stays valid");
    fs::write(path, stripped).expect("the compiled object is writable");
}

fn compile(sources: &Path, name: &str, object: &Path) {
    let source = format!("{name}.bpf.c");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // v3 (32-bit ALU operations and jumps) is in every kernel from 5.3 on.
    let status = Command::new(&clang)
        .current_dir(sources)
        .args([
            "-target",
            "bpf",
            "-mcpu=v3",
            "-g",
            "-O2",
            "-D__TARGET_ARCH_x86",
        ])
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(["-Wno-unused-parameter", "-Wno-missing-field-initializers"])
        // No section of the type SHT_LLVM_ADDRSIG, which the crate `object` rejects in `strip`.
        .arg("-fno-addrsig")
        // Type information must not depend on the path of the checkout.
        .arg("-fdebug-compilation-dir=bpf")
        .args(["-c", &source, "-o"])
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile bpf/{source} ({status})"),
        Err(error) => panic!(
            "cannot run {clang}: {error}; `make` installs it (Debian packages clang and \
             libbpf-dev), or name another one in CLANG"
        ),
    }
}
