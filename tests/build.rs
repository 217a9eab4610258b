//! Compiles the BPF programs of tests (`*/oracles/*.bpf.c`) against the kernel types of
//! `bpf/`. Done here and not in the tests, because some of those run in emulated
//! machines, where a compiler takes half a minute.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let tests = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let types = tests.join("../bpf");
    println!("cargo:rerun-if-changed={}", types.display());
    println!("cargo:rerun-if-env-changed=CLANG");
    for suite in ["kernel", "memory", "scenario"] {
        let folder = tests.join(suite).join("oracles");
        println!("cargo:rerun-if-changed={}", folder.display());
        for source in fs::read_dir(folder).expect("it is readable").flatten() {
            let source = source.path();
            let object = source.with_extension("o");
            let name = object.file_name().expect("it is a file");
            compile(&source, &types, &out.join(name));
        }
    }
}

fn compile(source: &Path, types: &Path, object: &Path) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror",
        ])
        .arg("-D__TARGET_ARCH_x86")
        .arg("-I")
        .arg(types)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {} ({status})", source.display()),
        Err(error) => {
            panic!("cannot run {clang}: {error}; `make` installs it, or name one in CLANG")
        }
    }
}
