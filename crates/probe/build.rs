//! Compiles the objects of `bpf/` once; every loader embeds the same ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

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
        compile(&sources, name, &built.join(format!("{name}.bpf.o")));
    }
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
        // Type information must not depend on the path of the checkout.
        .arg("-fdebug-prefix-map=.=bpf")
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
